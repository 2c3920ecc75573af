"""Every error Turnstate raises, and what each means to a shell.

An error says what happened, to which id or path, and what to do about it.
Catch ``TurnstateError`` for all of them; the leaves for what you can act on.

    TurnstateError
    ├── InputError                what came from outside cannot be used (also a ValueError)
    │   ├── MalformedJSON         not JSON at all, or not UTF-8
    │   ├── ForbiddenJSON         JSON, but with a duplicate key, NaN, a lone surrogate, a foreign type
    │   ├── TooLarge              more bytes, or deeper nesting, than a reader accepts
    │   ├── InvalidMessage        a message whose fields contradict its role
    │   ├── InvalidPayload        a document that is not of the provider's format
    │   ├── InvalidSetting        a setting has a value that makes no sense
    │   ├── UnknownName           no format, counter, model or store goes by that name
    │   ├── NewerFormat           written by a newer Turnstate than this one
    │   ├── DuplicatePath         the sticky context holds that path already
    │   ├── NothingMatches        a path for the sticky context matches no file
    │   ├── HomeUnusable          the installation's own folder cannot be used
    │   └── UnusableSnapshot      there are snapshots of the session, and none can be used
    │       ├── DamagedSnapshot   none of them can be read
    │       └── ForeignSnapshot   some can be read, and this installation wrote none of those
    ├── InvalidConversation       well-formed, but a provider would answer 400
    ├── ContextOverflow           even the least that must be sent exceeds the budget
    ├── ModelFailed               the model gave no complete answer
    │   ├── ReplyInterrupted      its stream broke off; sent again, the request may succeed
    │   └── RequestTooLong        the request has more tokens than the model takes
    ├── SnapshotFailed            the disk refused to write or to erase a snapshot
    ├── CheckpointError           files could not be kept or brought back
    │   ├── GitMissing            there is no git program, or an old one
    │   ├── GitFailed             git said no; ``stderr`` is what it said
    │   ├── WorkTreeRefused       checkpoints of this folder would do harm, or mean nothing
    │   ├── UnknownCheckpoint     there is none of that name
    │   ├── CheckpointsBusy       another process is at work on the same checkpoints
    │   ├── CheckpointsDamaged    what was kept cannot be read
    │   └── RestoreFailed         nothing was changed, since not everything could be made ready
    ├── SessionError              the session is not there, or cannot take this now
    │   ├── NotFound              no such session, message or branch for this tenant and user
    │   ├── AlreadyExists         the id is taken
    │   ├── EpochEnded            the conversation was reset, closed or left idle since
    │   ├── KeyReused             an idempotency key came again with another request
    │   ├── Fenced                another worker took the lease over
    │   ├── Busy                  another worker holds the lease
    │   ├── ClockSkew             the clock of this machine cannot be trusted, so nothing was ended
    │   ├── Conflict              the conversation moved on since it was read
    │   └── NothingToUndo         there is no operation that can be taken back here
    └── StoreError                the store cannot be used
        ├── StoreUnavailable      not there, not writable, full, or held too long
        └── StoreDamaged          not a store of ours, or its bytes are damaged
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .message import Message

__all__ = [
    "AlreadyExists",
    "Busy",
    "CheckpointError",
    "CheckpointsBusy",
    "CheckpointsDamaged",
    "ClockSkew",
    "Conflict",
    "ContextOverflow",
    "DamagedSnapshot",
    "DuplicatePath",
    "EpochEnded",
    "Fenced",
    "ForbiddenJSON",
    "ForeignSnapshot",
    "GitFailed",
    "GitMissing",
    "HomeUnusable",
    "InputError",
    "InvalidConversation",
    "InvalidMessage",
    "InvalidPayload",
    "InvalidSetting",
    "KeyReused",
    "MalformedJSON",
    "ModelFailed",
    "NewerFormat",
    "NotFound",
    "NothingMatches",
    "NothingToUndo",
    "ReplyInterrupted",
    "RequestTooLong",
    "RestoreFailed",
    "SessionError",
    "SnapshotFailed",
    "StoreDamaged",
    "StoreError",
    "StoreUnavailable",
    "TooLarge",
    "TurnstateError",
    "UnknownCheckpoint",
    "UnknownName",
    "UnusableSnapshot",
    "WorkTreeRefused",
    "exit_code",
]


class TurnstateError(Exception):
    """Something went wrong in Turnstate."""

    def __init__(self, text: str = "") -> None:
        super().__init__(text or self.__doc__ or type(self).__name__)

    @property
    def text(self) -> str:
        """The message without any position in a document."""
        return str(self.args[0])


class InputError(TurnstateError, ValueError):
    """The input cannot be used; ``path`` is the place of the fault in the document."""

    def __init__(self, text: str = "", *, path: str = "") -> None:
        super().__init__(text)
        self.path = path

    def __str__(self) -> str:
        return f"{self.text} (at {self.path})" if self.path else self.text


class MalformedJSON(InputError):
    """The text is not JSON."""


class ForbiddenJSON(InputError):
    """The JSON holds something that cannot be kept faithfully on every store."""


class TooLarge(InputError):
    """The document is larger or deeper than the reader accepts."""


class InvalidMessage(InputError):
    """The fields of a message contradict its role."""


class InvalidPayload(InputError):
    """The document is not of the provider's format."""


class InvalidSetting(InputError):
    """A setting has a value that makes no sense; ``setting`` is its name."""

    def __init__(self, text: str = "", *, path: str = "", setting: str = "") -> None:
        super().__init__(text, path=path)
        self.setting = setting


class UnknownName(InputError):
    """Nothing goes by that name."""


class NewerFormat(InputError):
    """The document was written by a newer Turnstate; update this one to read it."""


class DuplicatePath(InputError):
    """The sticky context holds that path already."""


class NothingMatches(InputError):
    """The path matches no file."""


class HomeUnusable(InputError):
    """The installation's own folder cannot be used; set TURNSTATE_HOME to another."""


class UnusableSnapshot(InputError):
    """No snapshot of the session can be used; ``passed_over`` says why of each."""

    def __init__(self, text: str = "", *, path: str = "", passed_over: tuple[Any, ...] = ()) -> None:
        super().__init__(text, path=path)
        self.passed_over = passed_over


class DamagedSnapshot(UnusableSnapshot):
    """No snapshot of the session can be read."""


class ForeignSnapshot(UnusableSnapshot):
    """This installation did not write the snapshot; load it only if you trust its source."""


class InvalidConversation(TurnstateError):
    """A provider would reject the conversation."""


class ContextOverflow(TurnstateError):
    """What must be sent exceeds the budget; nothing was deleted, and the conversation stays usable."""

    def __init__(
        self, text: str = "", *, limit: int = 0, head: int = 0, question: int = 0, last: int = 0
    ) -> None:
        super().__init__(text)
        self.limit, self.head, self.question, self.last = limit, head, question, last

    def __str__(self) -> str:
        return (
            f"{self.text}: head {self.head:,} + question {self.question:,} + kept {self.last:,} tokens "
            f"in a budget of {self.limit:,}; raise the budget, or shorten prompt, tools or message"
        )


class ModelFailed(TurnstateError):
    """The model gave no complete answer; ``partial`` is what it had said until then."""

    def __init__(self, text: str = "", *, partial: Message | None = None) -> None:
        super().__init__(text)
        self.partial = partial


class ReplyInterrupted(ModelFailed):
    """The stream of a reply broke off, or the provider ended it; sent again, the request may succeed."""


class RequestTooLong(ModelFailed):
    """The request has more tokens than the model takes, whatever we counted."""


class SnapshotFailed(TurnstateError):
    """The disk refused to write or to erase a snapshot; those that it holds are whole."""


class CheckpointError(TurnstateError):
    """Files could not be kept or brought back."""


class GitMissing(CheckpointError):
    """There is no git program, or one that is too old; checkpoints need it."""


class GitFailed(CheckpointError):
    """The git program failed; ``stderr`` is what it said."""

    def __init__(self, text: str = "", *, stderr: str = "") -> None:
        super().__init__(text)
        self.stderr = stderr


class WorkTreeRefused(CheckpointError):
    """Checkpoints of this folder would do harm, or mean nothing."""


class UnknownCheckpoint(CheckpointError):
    """There is no checkpoint of that name."""


class CheckpointsBusy(CheckpointError):
    """Another process is at work on the same checkpoints; try again when it is done."""


class CheckpointsDamaged(CheckpointError):
    """What was kept cannot be read; the files in the work tree are as they were."""


class RestoreFailed(CheckpointError):
    """Not everything could be made ready, so no file was changed."""


class SessionError(TurnstateError):
    """The session is not there, or cannot take this now."""


class NotFound(SessionError):
    """There is no such session, message or branch for this tenant and user."""


class AlreadyExists(SessionError):
    """The id is taken."""


class EpochEnded(SessionError):
    """The conversation was reset, closed or left idle since this handle was opened; open it again."""


class KeyReused(SessionError):
    """The idempotency key was used for another request; take a new key."""


class Fenced(SessionError):
    """Somebody else took the lease over; what this worker knows may be old: open the session again."""


class Busy(SessionError):
    """Somebody else holds the lease; wait until it is released, or until it expires."""


class ClockSkew(SessionError):
    """The clock of this machine jumped, or differs from the store's: no idle session was ended."""


class Conflict(SessionError):
    """The conversation moved on since it was read; ``version``, ``head`` and ``total`` say how it is now."""

    def __init__(
        self, text: str = "", *, version: int = 0, head: tuple[int, int] = (0, 0), total: int = 0
    ) -> None:
        super().__init__(text)
        self.version, self.head, self.total = version, head, total


class NothingToUndo(SessionError):
    """There is no operation that can be taken back here."""


class StoreError(TurnstateError):
    """The store cannot be used."""


class StoreUnavailable(StoreError):
    """The store is not there, not writable, full, or held by another process for too long."""


class StoreDamaged(StoreError):
    """The file is not a store of ours, or its bytes are damaged; `turnstate verify` says more."""


EXIT_CODES: dict[type[TurnstateError], int] = {
    TurnstateError: 1,
    InvalidConversation: 1,
    ContextOverflow: 1,
    InputError: 2,
    StoreError: 3,
}


def exit_code(error: TurnstateError) -> int:
    """The exit code: 1 refused or invalid, 2 bad usage or input, 3 the store cannot be used."""
    return next(EXIT_CODES[kind] for kind in type(error).__mro__ if kind in EXIT_CODES)
