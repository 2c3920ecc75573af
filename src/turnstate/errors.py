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
    │   ├── InvalidSetting        a setting has an invalid value
    │   ├── TooManyTools          a request offers more tools than the provider accepts
    │   ├── UnknownName           no format, counter, model or store has that name
    │   ├── NewerFormat           written by a newer Turnstate than this one
    │   ├── NotLoaded             a view of a conversation was loaded without what is asked for
    │   ├── DuplicatePath         the sticky context already contains that path
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
    ├── SnapshotFailed            a snapshot could not be written or erased
    ├── CheckpointError           files could not be saved or restored
    │   ├── GitMissing            git is not installed, or too old
    │   ├── GitFailed             git failed; ``stderr`` is its output
    │   ├── WorkTreeRefused       checkpoints of this folder would be harmful or useless
    │   ├── UnknownCheckpoint     no checkpoint has that name
    │   ├── CheckpointsBusy       another process is using the same checkpoints
    │   ├── CheckpointsDamaged    the saved files cannot be read
    │   └── RestoreFailed         a restore could not be prepared, so nothing was changed
    ├── SessionError              the session does not exist, or cannot do this now
    │   ├── NotFound              no such session, message or branch for this tenant and user
    │   ├── AlreadyExists         the id is taken
    │   ├── EpochEnded            the conversation was reset, closed or expired in the meantime
    │   ├── KeyReused             an idempotency key was reused for another request
    │   ├── Fenced                another worker took the lease over
    │   ├── Busy                  another worker holds the lease
    │   ├── ClockSkew             the clock of this machine cannot be trusted, so nothing was ended
    │   ├── Conflict              the conversation has changed since it was read
    │   └── NothingToUndo         there is no operation to undo here
    ├── WrongProcess              the handle was opened before a fork, by the parent process
    └── StoreError                the store cannot be used
        ├── StoreUnavailable      missing, not writable, full, or locked for too long
        └── StoreDamaged          not a Turnstate store, or damaged
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
    "NotLoaded",
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
    "TooManyTools",
    "TurnstateError",
    "UnknownCheckpoint",
    "UnknownName",
    "UnusableSnapshot",
    "WorkTreeRefused",
    "WrongProcess",
    "exit_code",
]


LONGEST = 4_000
"""Characters of an error's text: it may quote what came from outside."""


def _printable(text: str) -> str:
    """Return a text that can be printed and logged, whatever it quotes."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"
    if text.isascii():
        return text
    try:
        data = text.encode(errors="surrogateescape")  # the bytes of a file's name
    except UnicodeEncodeError:
        data = text.encode(errors="backslashreplace")
    return data.decode(errors="backslashreplace")


class TurnstateError(Exception):
    """Something went wrong in Turnstate."""

    def __init__(self, text: str = "") -> None:
        super().__init__(_printable(text) or self.__doc__ or type(self).__name__)

    @property
    def text(self) -> str:
        """The message without any position in a document."""
        return str(self.args[0])


class InputError(TurnstateError, ValueError):
    """The input cannot be used; ``path`` is the place of the fault in the document."""

    def __init__(self, text: str = "", *, path: str = "") -> None:
        super().__init__(text)
        self.path = _printable(path)

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
    """A setting has an invalid value; ``setting`` is its name."""

    def __init__(self, text: str = "", *, path: str = "", setting: str = "") -> None:
        super().__init__(text, path=path)
        self.setting = setting


class TooManyTools(InputError):
    """A request offers more tools than the provider accepts; it was not sent."""


class UnknownName(InputError):
    """There is nothing of that name."""


class NewerFormat(InputError):
    """The document was written by a newer Turnstate; update this one to read it."""


class NotLoaded(InputError):
    """A view of a conversation was loaded without what is asked for; pass last=… to session.conversation."""


class DuplicatePath(InputError):
    """The sticky context already contains that path."""


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
        self, text: str = "", *, limit: int = 0, preface: int = 0, question: int = 0, last: int = 0
    ) -> None:
        super().__init__(text)
        self.limit, self.preface, self.question, self.last = limit, preface, question, last

    def __str__(self) -> str:
        return (
            f"{self.text}: preface {self.preface:,} + question {self.question:,} + kept {self.last:,} tokens "
            f"in a budget of {self.limit:,}; raise the budget, or shorten prompt, tools or message"
        )


class ModelFailed(TurnstateError):
    """The model gave no complete answer; ``partial`` is the part that arrived."""

    def __init__(self, text: str = "", *, partial: Message | None = None) -> None:
        super().__init__(text)
        self.partial = partial


class ReplyInterrupted(ModelFailed):
    """The stream of a reply broke off, or the provider ended it; sent again, the request may succeed."""


class RequestTooLong(ModelFailed):
    """The request has more tokens than the model accepts, whatever was counted locally."""


class SnapshotFailed(TurnstateError):
    """A snapshot could not be written or erased; existing snapshots are intact."""


class CheckpointError(TurnstateError):
    """Files could not be saved or restored."""


class GitMissing(CheckpointError):
    """Git is not installed, or too old; checkpoints need it."""


class GitFailed(CheckpointError):
    """Git failed; ``stderr`` is its output."""

    def __init__(self, text: str = "", *, stderr: str = "") -> None:
        super().__init__(text)
        self.stderr = stderr


class WorkTreeRefused(CheckpointError):
    """Checkpoints of this folder would be harmful or useless."""


class UnknownCheckpoint(CheckpointError):
    """There is no checkpoint of that name."""


class CheckpointsBusy(CheckpointError):
    """Another process is using the same checkpoints; try again when it has finished."""


class CheckpointsDamaged(CheckpointError):
    """The saved files cannot be read; the files in the work tree are unchanged."""


class RestoreFailed(CheckpointError):
    """The restore could not be prepared completely, so no file was changed."""


class SessionError(TurnstateError):
    """The session does not exist, or cannot do this now."""


class NotFound(SessionError):
    """There is no such session, message or branch for this tenant and user."""


class AlreadyExists(SessionError):
    """The id is taken."""


class EpochEnded(SessionError):
    """The conversation was reset, closed or expired since this handle was opened; open it again."""


class KeyReused(SessionError):
    """The idempotency key was used for another request; use a new key."""


class Fenced(SessionError):
    """Another worker took the lease over, and this handle may be outdated; open the session again."""


class Busy(SessionError):
    """Another worker holds the lease; wait until it is released or expires."""


class ClockSkew(SessionError):
    """The clock of this machine jumped, or differs from the store's: no idle session was ended."""


class Conflict(SessionError):
    """The conversation has changed since it was read; ``version``, ``head`` and ``total`` are current."""

    def __init__(
        self, text: str = "", *, version: int = 0, head: tuple[int, int] = (0, 0), total: int = 0
    ) -> None:
        super().__init__(text)
        self.version, self.head, self.total = version, head, total


class NothingToUndo(SessionError):
    """There is no operation to undo here."""


class WrongProcess(TurnstateError):
    """The handle was opened by another process, and a fork does not share it; open it again in this one."""


class StoreError(TurnstateError):
    """The store cannot be used."""


class StoreUnavailable(StoreError):
    """The store is missing, not writable, full, or locked by another process for too long."""


class StoreDamaged(StoreError):
    """The file is not a Turnstate store, or is damaged; `turnstate verify` says more."""


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
