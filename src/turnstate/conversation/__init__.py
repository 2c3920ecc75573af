"""The conversation as an agent's command line keeps it: history, tangents, sticky files, tools, model."""

from __future__ import annotations

from ..catalog import ModelInfo
from .document import fields, from_json, to_json
from .history import HistoryEntry, RequestMetadata, UserMessage
from .ports import Agents, Os, System, ToolManager
from .state import ConversationState
from .strand import MAX_CONVERSATION_STATE_HISTORY_LEN
from .tangents import ConversationCheckpoint, KeptTangent
from .tools import ToolOrigin
from .tracker import FileLineTracker
from .transcript import MAX_TRANSCRIPT_LEN

__all__ = [
    "MAX_CONVERSATION_STATE_HISTORY_LEN",
    "MAX_TRANSCRIPT_LEN",
    "Agents",
    "ConversationCheckpoint",
    "ConversationState",
    "FileLineTracker",
    "HistoryEntry",
    "KeptTangent",
    "ModelInfo",
    "Os",
    "RequestMetadata",
    "System",
    "ToolManager",
    "ToolOrigin",
    "UserMessage",
    "fields",
    "from_json",
    "to_json",
]
