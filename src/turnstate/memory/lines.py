"""The lines of a memory file: whose it is, what was said, what a cut was summarised as, how a session ended.

Each line is one JSON object with its ``kind``. A line has an identity; one whose identity stands in the
file already is not written again, which makes every delivery repeatable.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from .. import codec
from ..errors import TurnstateError
from ..message import Message

__all__ = [
    "VERSION",
    "Line",
    "MessageLine",
    "SessionLine",
    "SummaryLine",
    "UserLine",
    "identity",
    "read",
    "written",
]

VERSION = 1


class UserLine(Struct, frozen=True, kw_only=True, tag="user", tag_field="kind"):
    """The first line: whose file it is. ``file`` is new whenever the file is written anew."""

    version: int = VERSION
    tenant: str
    user: str | None
    file: str


class MessageLine(Struct, frozen=True, kw_only=True, tag="message", tag_field="kind"):
    """A message, as the log holds it."""

    session: str
    epoch: int
    id: str
    message: Raw

    @classmethod
    def of(cls, message: Message, *, session: str, epoch: int) -> MessageLine:
        """Write a message down."""
        return cls(session=session, epoch=epoch, id=message.id, message=Raw(codec.encode(message)))

    @property
    def value(self) -> Message | None:
        """The message itself, unless it is damaged."""
        try:
            return codec.decode(bytes(self.message))
        except TurnstateError:
            return None


class SummaryLine(Struct, frozen=True, kw_only=True, tag="summary", tag_field="kind"):
    """What stood for the messages that a cut took out of the window."""

    session: str
    epoch: int
    key: str
    summary: str


class SessionLine(Struct, frozen=True, kw_only=True, tag="session", tag_field="kind"):
    """A session that has ended; all its messages stand before this line."""

    session: str
    epoch: int
    key: str
    reason: str
    started: int
    ended: int
    summary: str


Line = UserLine | MessageLine | SummaryLine | SessionLine

_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
_encoder = msgspec.json.Encoder()


def read(line: bytes) -> Line | None:
    """Read a line; nothing where it is damaged."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def written(line: Line) -> bytes:
    """Write a line with its end."""
    return _encoder.encode(line) + b"\n"


def identity(line: Line) -> tuple[str, ...]:
    """Tell a line from others: a message by its session and id, the rest by the key of their delivery."""
    match line:
        case UserLine():
            return ("user",)
        case MessageLine():
            return ("message", line.session, line.id)
        case _:
            return ("key", line.key)
