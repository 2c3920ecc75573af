"""The conversation as an agent's command line keeps it: history, tangents, sticky files, tools, model."""

from __future__ import annotations

from ..catalog import ModelInfo
from ..context.cut import MAX_CONVERSATION_STATE_HISTORY_LEN
from ..log.tangents import KeptTangent
from .document import fields, from_json, to_json
from .environment import Agents, Checkpoints, Os, System, ToolSource
from .history import (
    MAX_TRANSCRIPT_LEN,
    CheckpointState,
    ConversationCheckpoint,
    HistoryEntry,
    RequestMetadata,
    UserMessage,
)
from .line_tracker import FileLineTracker
from .state import ConversationState
from .tools import ToolOrigin

__all__ = [
    "MAX_CONVERSATION_STATE_HISTORY_LEN",
    "MAX_TRANSCRIPT_LEN",
    "Agents",
    "CheckpointState",
    "Checkpoints",
    "ConversationCheckpoint",
    "ConversationState",
    "FileLineTracker",
    "HistoryEntry",
    "KeptTangent",
    "ModelInfo",
    "Os",
    "RequestMetadata",
    "System",
    "ToolOrigin",
    "ToolSource",
    "UserMessage",
    "fields",
    "from_json",
    "to_json",
]
