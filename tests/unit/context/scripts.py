"""Conversations in shorthand: ``S U A[x,y] T[y] T[x] A`` as messages."""

from __future__ import annotations

import re

from turnstate import Message, ToolCallRequest, ToolCallResult
from turnstate.ids import CallId
from turnstate.tokens import Count

_WORD = re.compile(r"([SUAT])(?:\[([^\]]*)\])?(?::(\S+))?")
TIME = "2026-01-01T00:00:00Z"


class Letters:
    """A counter that counts characters, so that tests can do sums."""

    name = "letters"

    def count(self, text: str) -> Count:
        return Count(len(text), "exact")


def talk(script: str, text: str = "words") -> list[Message]:
    """Write a conversation: `U:hello` says hello, `A[x,y]` calls x and y, `T[x!]` answers x with an error."""
    return [_message(match, number, text) for number, match in enumerate(_WORD.finditer(script))]


def _message(match: re.Match[str], number: int, text: str) -> Message:
    kind, inner, said = match[1], match[2], match[3] or text
    stamp = {"id": f"m{number}", "timestamp": TIME}
    names = [name.strip() for name in inner.split(",")] if inner else []
    match kind:
        case "S":
            return Message.system(said, **stamp)
        case "U":
            return Message.user(said, **stamp)
        case "A":
            calls = [ToolCallRequest(id=CallId(name), name="tool", args={}) for name in names]
            return Message.assistant(said if match[3] or not calls else None, tool_calls=calls, **stamp)
        case _:
            results = [
                ToolCallResult(
                    tool_call_id=CallId(name.rstrip("!")), result=said, is_error=name.endswith("!")
                )
                for name in names
            ]
            return Message.tool(results, **stamp)


def shown(messages: list[Message] | tuple[Message, ...]) -> str:
    """Write messages back in shorthand, without their words."""
    return " ".join(_shown(message) for message in messages)


def _shown(message: Message) -> str:
    if message.kind == "summary":
        return "M"
    names = [call.id for call in message.tool_calls]
    names += [one.tool_call_id + ("!" if one.is_error else "") for one in message.tool_results]
    letter = {"system": "S", "user": "U", "assistant": "A", "tool": "T"}[message.role]
    return f"{letter}[{','.join(names)}]" if names else letter
