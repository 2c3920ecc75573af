"""The seal of a snapshot: whether its bytes are intact, and whether this installation wrote them.

A sealed snapshot is still one JSON document with the keys of the specification. The last key of its
``extension`` is ``"seal": {"session", "hmac", "checksum"}``. The HMAC signs every byte before it; the
checksum covers every byte before it, including the HMAC. So damage and foreign origin can be told apart
before a single byte is parsed. The signature covers the session: a snapshot of one session is foreign to
every other.
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
from ..home import SigningKey

MAX_BYTES = strict_json.MAX_BYTES
"""The most bytes that are read; larger snapshots are not written."""

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


class SealCheck(Struct, frozen=True, kw_only=True):
    """The state of a document, and the reason if it is not our own or not intact."""

    state: State
    reason: str = ""
    snapshot: ContextSnapshot | None = None


def sealed(snapshot: ContextSnapshot, *, session: str, key: SigningKey) -> bytes:
    """Return a snapshot of a session as a document that `opened` accepts."""
    _check_readable(snapshot)
    extension = {**_without_seal(snapshot), _SEAL: {"session": session}}
    front = replace(snapshot, extension=extension).to_json().removesuffix(b"}}}") + b","
    front += _HMAC % key.sign(_PURPOSE, front).encode()
    data = front + _CHECKSUM % hashlib.sha256(front).hexdigest().encode()
    if len(data) > MAX_BYTES:
        raise TooLarge(f"the snapshot has {len(data):,} bytes; at most {MAX_BYTES:,} are read back")
    return data


def opened(data: bytes, *, session: str, key: SigningKey | None) -> SealCheck:
    """Check a document; without a key, every intact document is foreign."""
    tail = _TAIL.fullmatch(data[-_HMAC_LENGTH - _CHECKSUM_LENGTH :])
    if tail is None:
        return _unsealed(data)
    signature, checksum = (field.decode() for field in tail.groups())
    view = memoryview(data)
    if hashlib.sha256(view[:-_CHECKSUM_LENGTH]).hexdigest() != checksum:
        return SealCheck(
            state="damaged", reason="its checksum does not match: it was changed after it was written"
        )
    signed = view[: -_HMAC_LENGTH - _CHECKSUM_LENGTH]
    ours = key is not None and key.signed(signature, _PURPOSE, signed)
    return _whole(_read(data, foreign="" if ours else "this installation did not write it"), session=session)


def _unsealed(data: bytes) -> SealCheck:
    check = _read(data, foreign="it has no seal")
    if check.snapshot and _SEAL in check.snapshot.extension:
        return SealCheck(state="damaged", reason="its seal is broken: it was changed or reformatted")
    return check


def _whole(check: SealCheck, *, session: str) -> SealCheck:
    """Remove the seal; a snapshot signed for another session is foreign."""
    if check.snapshot is None:
        return check
    snapshot = replace(check.snapshot, extension=_without_seal(check.snapshot))
    written_for = check.snapshot.extension[_SEAL]["session"] if check.state == "own" else session
    if written_for != session:
        reason = f"it belongs to session {written_for!r:.80}"
        return SealCheck(state="foreign", reason=reason, snapshot=snapshot)
    return replace(check, snapshot=snapshot)


def _read(data: bytes, *, foreign: str = "") -> SealCheck:
    try:
        snapshot = ContextSnapshot.from_json(data)
    except NewerFormat as error:
        return SealCheck(state="newer", reason=f"{error}; update Turnstate to read it")
    except InputError as error:
        return SealCheck(state="damaged", reason=f"it is not a snapshot: {error}")
    return SealCheck(state="foreign" if foreign else "own", reason=foreign, snapshot=snapshot)


def _check_readable(snapshot: ContextSnapshot) -> None:
    """Raise InputError if the snapshot would not be read back unchanged; messages are checked already."""
    strict_json.check(snapshot.extension, at="$.extension")
    strict_json.check(snapshot.summary, at="$.summary")
    ContextSnapshot.from_json(replace(snapshot, messages=()).to_json())


def _without_seal(snapshot: ContextSnapshot) -> dict[str, object]:
    return {name: value for name, value in snapshot.extension.items() if name != _SEAL}
