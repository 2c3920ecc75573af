"""The rules of Google Gemini's generateContent."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ..port import Violation
from .report import NAME_64, Report, objects

__all__ = ["KEYS", "SYSTEM_KEYS", "camel", "violations"]

SYSTEM_KEYS = ("systemInstruction", "system_instruction")

KEYS = frozenset(
    (
        "contents systemInstruction system_instruction tools toolConfig tool_config safetySettings "
        "safety_settings generationConfig generation_config cachedContent cached_content model labels"
    ).split()
)

_CAMEL = {
    "function_call": "functionCall",
    "function_response": "functionResponse",
    "inline_data": "inlineData",
    "file_data": "fileData",
    "thought_signature": "thoughtSignature",
    "mime_type": "mimeType",
    "file_uri": "fileUri",
    "function_declarations": "functionDeclarations",
}


def camel(part: dict[str, Any]) -> dict[str, Any]:
    """Spell the keys of a part as the reference does; the service takes both spellings."""
    return {
        _CAMEL.get(key, key): camel(value)
        if key in ("inline_data", "file_data", "inlineData", "fileData") and isinstance(value, dict)
        else value
        for key, value in part.items()
    }


def violations(payload: Any) -> list[Violation]:
    """List what generateContent would reject."""
    report = Report()
    asked: list[dict[str, Any]] = []
    asked_at, before = 0, None
    for content in report.items(
        payload.get("contents") if isinstance(payload, dict) else payload, "contents"
    ):
        role = content.get("role", "user")
        if role not in ("user", "model"):
            report.add("role", f"no role is called {role!r:.40}; the system prompt stands apart")
        elif before is None and role != "user":
            report.add("first-user", "the first content is the user's")
        parts = _parts(content.get("parts"), report)
        _check_responses(parts, role, asked, asked_at, report)
        asked = _calls(parts)
        if asked:
            asked_at = report.index
            _check_calls(asked, role, before, report)
        before = role
    if asked:
        report.unanswered([_label(call) for call in asked], asked_at)
    if isinstance(payload, dict):
        _check_system(payload, report)
    return sorted(report.found, key=lambda violation: violation.index)


def _parts(parts: Any, report: Report) -> list[dict[str, Any]]:
    if not isinstance(parts, list) or not parts:
        report.add("parts-empty", "parts is a non-empty list")
    elif len(objects(parts)) < len(parts) or any(_is_empty(part) for part in objects(parts)):
        report.add("part-empty", "a part holds data: text that is not empty, a call, a response, a file")
    return [camel(part) for part in objects(parts)]


def _is_empty(part: dict[str, Any]) -> bool:
    data = {
        key: value
        for key, value in part.items()
        if key not in ("thought", "thoughtSignature", "thought_signature")
    }
    signed = part.get("thoughtSignature") or part.get("thought_signature")
    return not data or (data == {"text": ""} and not signed)


def _calls(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = (part["functionCall"] for part in parts if "functionCall" in part)
    return [call if isinstance(call, dict) else {} for call in found]


def _label(call: dict[str, Any]) -> str:
    return str(call.get("id") or call.get("name"))


def _check_calls(calls: list[dict[str, Any]], role: Any, before: Any, report: Report) -> None:
    if role != "model":
        report.add("role", "only the model calls functions", calls[0].get("id"))
    elif before != "user":
        report.add("call-place", "a function call comes right after a user content", calls[0].get("id"))
    ids = Counter(call["id"] for call in calls if isinstance(call.get("id"), str))
    for id in (id for id, times in ids.items() if times > 1):
        report.add("call-id", f"the id {id} stands twice in one content", id)
    for call in calls:
        report.name(call.get("name"), NAME_64, call.get("id"))
        if not isinstance(call.get("args", {}), dict):
            report.add("arguments", "args is a JSON object", call.get("id"))


def _check_responses(
    parts: list[dict[str, Any]], role: Any, asked: list[dict[str, Any]], asked_at: int, report: Report
) -> None:
    responses = [part["functionResponse"] for part in parts if "functionResponse" in part]
    waiting = list(asked)
    for response in (one if isinstance(one, dict) else {} for one in responses):
        id = response.get("id")
        if role != "user":
            report.add("role", "only the user's contents hold function responses", id)
        if not isinstance(response.get("response"), dict):
            report.add("response-object", "response is a JSON object", id)
        call = next((call for call in waiting if _answers(response, call)), None)
        if call is not None:
            waiting.remove(call)
        else:
            report.add("result-orphan", f"no open call {_label(response):.80} in the content before", id)
    report.unanswered([_label(call) for call in waiting], asked_at)


def _answers(response: dict[str, Any], call: dict[str, Any]) -> bool:
    if response.get("id") is not None and call.get("id") is not None:
        return bool(response["id"] == call["id"])
    return bool(response.get("name") == call.get("name"))


def _check_system(payload: dict[str, Any], report: Report) -> None:
    for key in SYSTEM_KEYS:
        system = payload.get(key)
        if system is None or isinstance(system, str):
            continue
        parts = system.get("parts") if isinstance(system, dict) else None
        if not isinstance(parts, list) or not parts or len(objects(parts)) < len(parts):
            report.add("system", "systemInstruction is a content with parts", index=0)
