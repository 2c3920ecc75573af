"""The seal of a snapshot: whether its bytes are whole, and whether this installation wrote them.

A sealed snapshot is still one JSON document with the keys of the specification. Last in it, as the
last key of ``extension``, stands ``"seal": {"session", "hmac", "checksum"}``. The HMAC signs every
byte in front of it; the checksum covers every byte in front of it, the HMAC included. So damage is
told from foreign origin, and both before a single byte is parsed. The session is under the signature:
a snapshot of one session is foreign to every other.
"""

from __future__ import annotations

import hashlib
import re
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from .. import strict_json
from ..context.snapshot import ContextSnapshot
from ..errors import InputError, NewerFormat, TooLarge
from ..home import Key

__all__ = ["MAX_BYTES", "State", "Verdict", "opened", "sealed"]

MAX_BYTES = strict_json.MAX_BYTES
"""What the reader takes back; more is not written in the first place."""

State = Literal["own", "foreign", "damaged", "newer", "unreadable"]

_SEAL = "seal"
_PURPOSE = "snapshot"
_HMAC = b'"hmac":"%s",'
_CHECKSUM = b'"checksum":"%s"}}}'
_TAIL = re.compile(
    re.escape(_HMAC).replace(b"%s", b"([0-9a-f]{64})")
    + re.escape(_CHECKSUM).replace(b"%s", b"([0-9a-f]{64})")
)
_HMAC_LENGTH, _CHECKSUM_LENGTH = (len(field) - len(b"%s") + 64 for field in (_HMAC, _CHECKSUM))


class Verdict(Struct, frozen=True, kw_only=True):
    """What a document turned out to be, and why it is not simply ours."""

    state: State
    reason: str = ""
    snapshot: ContextSnapshot | None = None


def sealed(snapshot: ContextSnapshot, *, session: str, key: Key) -> bytes:
    """Write a snapshot of a session as a document that `opened` knows again."""
    _check(snapshot)
    extension = {**_without_seal(snapshot), _SEAL: {"session": session}}
    front = replace(snapshot, extension=extension).to_json().removesuffix(b"}}}") + b","
    front += _HMAC % key.sign(_PURPOSE, front).encode()
    data = front + _CHECKSUM % hashlib.sha256(front).hexdigest().encode()
    if len(data) > MAX_BYTES:
        raise TooLarge(f"the snapshot has {len(data):,} bytes; at most {MAX_BYTES:,} are read back")
    return data


def opened(data: bytes, *, session: str, key: Key | None) -> Verdict:
    """Tell what a document is; without a key, everything that is whole is foreign."""
    tail = _TAIL.fullmatch(data[-_HMAC_LENGTH - _CHECKSUM_LENGTH :])
    if tail is None:
        return _unsealed(data)
    signature, checksum = (field.decode() for field in tail.groups())
    view = memoryview(data)
    if hashlib.sha256(view[:-_CHECKSUM_LENGTH]).hexdigest() != checksum:
        return Verdict(state="damaged", reason="its checksum does not match: it changed after it was written")
    signed = view[: -_HMAC_LENGTH - _CHECKSUM_LENGTH]
    ours = key is not None and key.signed(signature, _PURPOSE, signed)
    return _whole(_read(data, foreign="" if ours else "this installation did not write it"), session=session)


def _unsealed(data: bytes) -> Verdict:
    verdict = _read(data, foreign="it carries no seal")
    if verdict.snapshot and _SEAL in verdict.snapshot.extension:
        return Verdict(state="damaged", reason="its seal is broken: it was changed, or laid out anew")
    return verdict


def _whole(verdict: Verdict, *, session: str) -> Verdict:
    """Take the seal off what was read; what is signed for another session is foreign to this one."""
    if verdict.snapshot is None:
        return verdict
    snapshot = replace(verdict.snapshot, extension=_without_seal(verdict.snapshot))
    written_for = verdict.snapshot.extension[_SEAL]["session"] if verdict.state == "own" else session
    if written_for != session:
        return Verdict(state="foreign", reason=f"it is of session {written_for!r:.80}", snapshot=snapshot)
    return replace(verdict, snapshot=snapshot)


def _read(data: bytes, *, foreign: str = "") -> Verdict:
    try:
        snapshot = ContextSnapshot.from_json(data)
    except NewerFormat as error:
        return Verdict(state="newer", reason=f"{error}; update Turnstate to read it")
    except InputError as error:
        return Verdict(state="damaged", reason=f"it is no snapshot: {error}")
    return Verdict(state="foreign" if foreign else "own", reason=foreign, snapshot=snapshot)


def _check(snapshot: ContextSnapshot) -> None:
    """Refuse what would not be read back as it was; messages are values and hold to that already."""
    strict_json.check(snapshot.extension, at="$.extension")
    strict_json.check(snapshot.summary, at="$.summary")
    ContextSnapshot.from_json(replace(snapshot, messages=()).to_json())


def _without_seal(snapshot: ContextSnapshot) -> dict[str, object]:
    return {name: value for name, value in snapshot.extension.items() if name != _SEAL}
