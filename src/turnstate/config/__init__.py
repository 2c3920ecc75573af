"""Configuration: settings, agents as files, and the approval of what a workspace asks for.

Names are imported on first use, so commands that only need a setting start without loading the agent modules.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .assembly import load_agent
    from .profile import AgentProfile, HookCommand, HookCommands, load_profile
    from .settings import Settings
    from .trust import NotTrusted, Trust

__all__ = [
    "AgentProfile",
    "HookCommand",
    "HookCommands",
    "NotTrusted",
    "Settings",
    "Trust",
    "load_agent",
    "load_profile",
]

_HOME = {
    "AgentProfile": "profile",
    "HookCommand": "profile",
    "HookCommands": "profile",
    "NotTrusted": "trust",
    "Settings": "settings",
    "Trust": "trust",
    "load_agent": "assembly",
    "load_profile": "profile",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
