"""Peers in the server benchmarks: one server, with all sessions by their names."""

from __future__ import annotations

from .peer_process import Script
from .server_contest import session_name, settings_text
from .session_contest import Place
from .session_peer import Peer

_OPENAI = ("openai-agents[sqlalchemy,redis]", "asyncpg", "hiredis")
_LANGGRAPH = ("langgraph", "langgraph-checkpoint-postgres", "psycopg[binary]", "psycopg-pool")

ON_POSTGRES = {
    "openai-agents": Script("openai_postgres", "openai-agents-servers", _OPENAI),
    "LangGraph": Script("langgraph_postgres", "langgraph-postgres", _LANGGRAPH),
}
ON_REDIS = {"openai-agents": Script("openai_redis", "openai-agents-servers", _OPENAI)}


class ServerPeer(Peer):
    """A peer that keeps sessions on a server."""

    def __init__(self, name: str, script: Script, url: str) -> None:
        self._url = url
        super().__init__(name, script)
        self.settings = settings_text(self._settings())

    def _where(self, place: Place) -> dict[str, str]:
        return {"path": self._url, "session": session_name(place)}
