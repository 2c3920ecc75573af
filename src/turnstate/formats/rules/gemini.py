"""The rules of Google Gemini's generateContent."""

from __future__ import annotations

from collections import deque
from typing import Any

from ..port import Violation
from .fields import Fields
from .report import NAME_64, Report, objects, shown

SYSTEM_KEYS = ("systemInstruction", "system_instruction")

_BLOB = Fields("data! mimeType displayName", snake=True)
_FILE = Fields("fileUri! mimeType displayName", snake=True)
_PART = Fields(
    "text thought thoughtSignature functionCall functionResponse inlineData fileData executableCode "
    "codeExecutionResult videoMetadata mediaResolution toolCall toolResponse partMetadata "
    "audioTranscription mediaProcessing speechMetadata",
    inner={
        "functionCall": Fields("id name! args partialArgs willContinue", snake=True),
        "functionResponse": Fields("id name! response! scheduling willContinue parts", snake=True),
        "inlineData": _BLOB,
        "fileData": _FILE,
        "executableCode": Fields("code! language! id"),
        "codeExecutionResult": Fields("outcome! output id"),
        "videoMetadata": Fields("startOffset endOffset fps", snake=True),
    },
    snake=True,
)
_CANDIDATE = (
    "index finishReason finishMessage tokenCount safetyRatings citationMetadata groundingMetadata "
    "avgLogprobs logprobsResult urlContextMetadata continuationToken"
)
_CONTENT = Fields("role parts!", response=_CANDIDATE, inner={"parts": _PART}, snake=True)
DOCUMENT = Fields(
    "contents! systemInstruction? tools? toolConfig? safetySettings? generationConfig? cachedContent? model? "
    "labels? serviceTier? store?",
    response=(
        "candidates usageMetadata promptFeedback modelVersion modelStatus responseId createTime "
        "sdkHttpResponse automaticFunctionCallingHistory parsed"
    ),
    inner={"contents": _CONTENT, "systemInstruction": _CONTENT},
    snake=True,
)
"""The request and response types of google-genai 3.1; the service accepts both spellings."""

_CAMEL = {
    "function_call": "functionCall",
    "function_response": "functionResponse",
    "inline_data": "inlineData",
    "file_data": "fileData",
    "thought_signature": "thoughtSignature",
    "mime_type": "mimeType",
    "file_uri": "fileUri",
    "function_declarations": "functionDeclarations",
    "parameters_json_schema": "parametersJsonSchema",
}
_SIGNING_MODELS = "gemini-3"
"""A part of the names of the models that answer 400 to an unsigned call."""


def camel(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part with the keys of the reference, without the nulls that the SDK's objects write."""
    spelled = {_CAMEL.get(key, key): value for key, value in part.items() if value is not None}
    for key in ("inlineData", "fileData"):
        if isinstance(blob := spelled.get(key), dict):
            spelled[key] = {_CAMEL.get(name, name): value for name, value in blob.items()}
    return spelled


def violations(payload: Any, *, request: bool = False) -> list[Violation]:
    """List what generateContent would reject."""
    report = Report()
    batch = _Batch([], report)
    turn: list[tuple[int, list[dict[str, Any]]]] = []
    before = None
    for content in report.items(
        payload.get("contents") if isinstance(payload, dict) else payload, "contents"
    ):
        role = content.get("role") or "user"
        _check_role(role, before, report)
        parts = _parts(content.get("parts"), report)
        answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
        for answer in answers:
            batch.answer(answer, role)
        batch.close()
        batch = _Batch([part["functionCall"] for part in parts if "functionCall" in part], report)
        batch.check(role, before)
        if role == "user" and not answers:
            turn.clear()
        turn.append((report.index, parts))
        before = role
    batch.close()
    if isinstance(payload, dict):
        _check_system(payload, report)
        if request and _SIGNING_MODELS in (_text(payload.get("model")) or ""):
            _check_signatures(turn, report)
    return report.violations


class _Batch:
    """The calls of one content, which the next content answers by id, or else by name and order."""

    def __init__(self, calls: list[Any], report: Report) -> None:
        self._report = report
        self._index = report.index
        self._calls = [call if isinstance(call, dict) else {} for call in calls]
        self._open = dict.fromkeys(range(len(calls)))
        self._waiting: dict[tuple[str, str | None], deque[int]] = {}
        for number, call in enumerate(self._calls):
            id, name = _text(call.get("id")), _text(call.get("name"))
            for key in (("name", name), ("id", id) if id else ("without id", name)):
                self._waiting.setdefault(key, deque()).append(number)

    def check(self, role: object, before: object) -> None:
        """Check where the calls are and what they contain."""
        report, calls = self._report, self._calls
        if calls and role != "model":
            report.add("role", "only the model may call functions", calls[0].get("id"))
        elif calls and before != "user":
            report.add(
                "call-place", "a function call must come right after a user content", calls[0].get("id")
            )
        for (key, id), numbers in self._waiting.items():
            if key == "id" and len(numbers) > 1:
                report.add("call-id", f"the id {id:.80} occurs twice in one content", id)
        for call in calls:
            report.name(call.get("name"), NAME_64, call.get("id"))
            if not isinstance(call.get("args", {}), dict):
                report.add("arguments", "args must be a JSON object", call.get("id"))

    def answer(self, response: Any, role: object) -> None:
        """Match a response to one of the calls."""
        report, response = self._report, response if isinstance(response, dict) else {}
        id, name = _text(response.get("id")), _text(response.get("name"))
        if role != "user":
            report.add("role", "only the user's contents may hold function responses", id)
        if not isinstance(response.get("response"), dict):
            report.add("response-object", "response must be a JSON object", id)
        keys = (("id", id), ("without id", name)) if id else (("name", name),)
        if not any(self._take(key) for key in keys):
            report.add("result-orphan", f"no open call {shown(id or name)} in the content before", id)

    def close(self) -> None:
        """Report the calls that got no response."""
        calls = (self._calls[number] for number in self._open)
        labels = [_text(call.get("id")) or _text(call.get("name")) or "(unnamed)" for call in calls]
        self._report.unanswered(labels, self._index)

    def _take(self, key: tuple[str, str | None]) -> bool:
        waiting = self._waiting.get(key, ())
        while waiting:
            number = waiting.popleft()
            if number in self._open:
                del self._open[number]
                return True
        return False


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _check_role(role: object, before: object, report: Report) -> None:
    if role not in ("user", "model"):
        report.add("role", f"unknown role {shown(role)}; the system prompt goes in `systemInstruction`")
    elif before is None and role != "user":
        report.add("first-user", "the first content must be the user's")


def _parts(parts: Any, report: Report) -> list[dict[str, Any]]:
    if not isinstance(parts, list) or not parts:
        report.add("parts-empty", "parts must be a non-empty list")
    elif len(objects(parts)) < len(parts) or any(_is_empty(part) for part in objects(parts)):
        report.add(
            "part-empty", "a part must hold data: text that is not empty, a call, a response or a file"
        )
    return [camel(part) for part in objects(parts)]


def _is_empty(part: dict[str, Any]) -> bool:
    spelled = camel(part)
    signed = spelled.pop("thoughtSignature", None)
    spelled.pop("thought", None)
    return not spelled or (spelled == {"text": ""} and not signed)


def _check_signatures(turn: list[tuple[int, list[dict[str, Any]]]], report: Report) -> None:
    """Check that the first call of each content since the user's last text carries its signature."""
    for index, parts in turn:
        call = next((part for part in parts if "functionCall" in part), None)
        if call is not None and not call.get("thoughtSignature"):
            id = call["functionCall"].get("id") if isinstance(call["functionCall"], dict) else None
            report.add(
                "thought-signature", "a call of the current turn must carry a signature", id, index=index
            )


def _check_system(payload: dict[str, Any], report: Report) -> None:
    for key in SYSTEM_KEYS:
        system = payload.get(key)
        if system is None or isinstance(system, str):
            continue
        parts = system.get("parts") if isinstance(system, dict) else None
        if not isinstance(parts, list) or not parts or len(objects(parts)) < len(parts):
            report.add("system", "systemInstruction must be a content with parts", index=0)
