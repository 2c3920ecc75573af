"""What a session of the chat is bound to: the folder it works in, and the endpoint its messages may go to.

The chat records both in the session's metadata when it creates the session. Without that record, a session
would go to whatever model the environment names on the day it is continued, and the calls that it left open
would run in whatever folder the user happens to be in. Only the user changes a binding, by naming a model
for this session or by sending a message from another folder.

A store or an archive may come from anyone, so a binding counts only with the signature of this installation.
Otherwise a foreign session could name the endpoint that it is sent to. A key is never part of a binding.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from ..errors import Conflict
from ..home import Home
from ..models import Endpoint
from ..models.endpoint import OPENAI_URL
from ..session import Session
from .trust import canonical

META = "turnstate"
"""The key of the binding in a session's metadata."""

_PURPOSE = "the binding of a session"


class Described(Protocol):
    """What a binding is read from: the row of a session, or its public description."""

    @property
    def tenant(self) -> str:
        """The tenant of the session."""

    @property
    def id(self) -> str:
        """The id of the session."""

    @property
    def meta(self) -> dict[str, Any]:
        """The metadata of the session."""


class Binding(Struct, frozen=True, kw_only=True):
    """The folder of a session, empty if it is unknown, and the model that answers with its endpoint."""

    folder: str
    model: str
    provider: str
    url: str

    @classmethod
    def of(cls, folder: Path | None, model: str, endpoint: Endpoint) -> Binding:
        """Return the binding to a folder and an endpoint."""
        place = "" if folder is None else canonical(folder)
        return cls(folder=place, model=model, provider=endpoint.provider, url=endpoint.url)

    @property
    def endpoint(self) -> Endpoint:
        """Where the session's messages may go."""
        return Endpoint(self.provider, self.url)

    @property
    def address(self) -> str:
        """The address of the model; with `endpoint` it leads to the same place in every environment."""
        if self.provider == "local":
            return self.provider
        is_other = self.provider == "openai" and self.url != OPENAI_URL
        return f"{self.model}@{self.url}" if is_other else self.model

    def is_in(self, folder: Path) -> bool:
        """Return True if the session belongs to this folder."""
        return self.folder == canonical(folder)

    def signed(self, home: Home, tenant: str, id: str) -> dict[str, str]:
        """Return the record of this binding of one session, with the signature of this installation."""
        fields: dict[str, str] = msgspec.to_builtins(self)
        return {**fields, "signature": home.key().sign(_PURPOSE, *self._pieces(tenant, id))}

    def is_signed(self, signature: object, home: Home, tenant: str, id: str) -> bool:
        """Return True if this installation recorded this binding of this session."""
        key = home.known_key() if isinstance(signature, str) else None
        return key is not None and key.signed(str(signature), _PURPOSE, *self._pieces(tenant, id))

    def _pieces(self, tenant: str, id: str) -> list[bytes]:
        return [one.encode() for one in (tenant, id, self.folder, self.model, self.provider, self.url)]


def bound(session: Described, home: Home) -> Binding | None:
    """Return the binding that this installation recorded for a session; None if there is none."""
    record: Any = session.meta.get(META)
    try:
        binding = msgspec.convert(record, Binding)
    except msgspec.ValidationError:
        return None
    is_ours = binding.is_signed(record.get("signature"), home, session.tenant, session.id)
    return binding if is_ours else None


async def bind(session: Session, binding: Binding, home: Home) -> None:
    """Record a binding in a session, unless it is recorded already; the other metadata stays."""
    while bound(session.info, home) != binding:
        info = session.info
        record = binding.signed(home, info.tenant, info.id)
        with suppress(Conflict):  # another process changed other metadata, which `annotate` has now read
            await session.annotate({**info.meta, META: record}, expected=info.meta)
