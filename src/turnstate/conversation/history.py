"""History: a conversation as exchanges, which is how people who chat with an agent see it.

Each assistant message closes an entry. The user side of an entry is everything since the previous
assistant message: text, tool results, or tool results followed by text if the user did not wait.
"""

from __future__ import annotations

from msgspec import Struct

from ..entry import Checkpoint, Usage
from ..message import Message, ToolCallResult
from ..part import ImagePart
from ..value import Value

RequestMetadata = Usage
"""Metadata of a request: what the provider reported, and details such as its id and its times."""


class UserMessage(Value, frozen=True):
    """The messages between two assistant messages, in order."""

    messages: tuple[Message, ...]

    @property
    def prompt(self) -> str | None:
        """The user's words; None if there are only tool results."""
        words = [message.text for message in self.messages if message.role == "user"]
        return "\n\n".join(words) if words else None

    @property
    def tool_use_results(self) -> tuple[ToolCallResult, ...]:
        """The tool results."""
        return tuple(result for message in self.messages for result in message.tool_results)

    @property
    def images(self) -> tuple[ImagePart, ...]:
        """The images."""
        parts = (part for message in self.messages for part in message.parts)
        return tuple(part for part in parts if isinstance(part, ImagePart))

    @property
    def opens_turn(self) -> bool:
        """True if a turn begins here: the first message is the user's."""
        return bool(self.messages) and self.messages[0].role == "user"


class HistoryEntry(Value, frozen=True):
    """One exchange: the user's side, the assistant's message, and the metadata of the request."""

    user: UserMessage
    assistant: Message
    request_metadata: RequestMetadata | None = None


class CheckpointState(Value, frozen=True, kw_only=True):
    """The checkpoints of a conversation's files since the newest start, and their work tree."""

    work_tree: str = ""
    checkpoints: tuple[Checkpoint, ...] = ()


MAX_TRANSCRIPT_LEN = 10_000


class ConversationCheckpoint(Struct, frozen=True, kw_only=True):
    """The main conversation while a tangent is open."""

    main_history: list[HistoryEntry]
    main_next_message: UserMessage | None
    main_transcript: list[str]
    main_latest_summary: tuple[str, RequestMetadata] | None
    tangent_start_time: int
