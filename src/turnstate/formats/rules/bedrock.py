"""The rules of Amazon Bedrock Converse."""

from __future__ import annotations

import re
from typing import Any

from ..port import Violation
from .fields import Fields
from .report import NAME_64, Report, objects, shown

ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_ANSWERED = "stopReason usage metrics trace additionalModelResponseFields"
_RESULT_BLOCKS = ("text", "json", "image", "document", "video", "searchResult")
_BLOCK = Fields(
    "text image document video audio toolUse toolResult guardContent cachePoint reasoningContent "
    "citationsContent searchResult toolAddition toolRemoval",
    inner={
        "toolUse": Fields("toolUseId! name! input! type"),
        "toolResult": Fields(
            "toolUseId! content! status type", inner={"content": Fields(" ".join(_RESULT_BLOCKS))}
        ),
        "reasoningContent": Fields("reasoningText redactedContent"),
    },
)
DOCUMENT = Fields(
    "messages! system? toolConfig? modelId? inferenceConfig? guardrailConfig? additionalModelRequestFields? "
    "additionalModelResponseFieldPaths? promptVariables? requestMetadata? performanceConfig? serviceTier? "
    "outputConfig?",
    response=f"output ResponseMetadata {_ANSWERED}",
    inner={
        "messages": Fields("role! content!", response=_ANSWERED, inner={"content": _BLOCK}),
        "system": Fields("text guardContent cachePoint"),
    },
)
"""The shapes of Converse's input and output in botocore 1.44."""


def violations(payload: Any, *, request: bool = False) -> list[Violation]:
    """List what Converse would reject."""
    report = Report()
    asked: dict[str, int] = {}
    seen: set[str] = set()
    role, uses_tools = None, False
    for message in report.items(
        payload.get("messages") if isinstance(payload, dict) else payload, "messages"
    ):
        _check_role(message.get("role"), role, report)
        role = message.get("role")
        blocks = _blocks(message.get("content"), report)
        asked = _check_blocks(blocks, role, asked, seen, report)
        uses_tools = uses_tools or any("toolUse" in block or "toolResult" in block for block in blocks)
    for id, index in asked.items():
        report.unanswered([id], index)
    if request and role == "assistant":
        report.add("last-user", "the last message of a request must be the user's")
    if isinstance(payload, dict):
        _check_fields(payload, uses_tools, report)
    return report.violations


def is_blank(block: Any) -> bool:
    """Return True for a text block that says nothing."""
    text = block.get("text") if isinstance(block, dict) else None
    return isinstance(text, str) and not text.strip() and block.keys() == {"text"}


def _check_role(role: Any, before: Any, report: Report) -> None:
    if role not in ("user", "assistant", "system"):
        report.add("role", f"unknown role {shown(role)}; the system prompt goes in `system`")
    elif "system" in (role, before) and (before, role) not in (("user", "system"), ("system", "assistant")):
        report.add("system-place", "a system message must follow the user's and come before the assistant's")
    elif report.index == 0 and role != "user":
        report.add("first-user", "the first message must be the user's")
    elif role == before:
        report.add("alternation", f"two messages of the {role} in a row")


def _blocks(content: Any, report: Report) -> list[dict[str, Any]]:
    if not isinstance(content, list) or not content:
        report.add("content-empty", "content must be a non-empty list of blocks")
    elif len(objects(content)) < len(content) or not all(objects(content)):
        report.add("shape", "a block must be an object with one key")
    return objects(content)


def _check_blocks(
    blocks: list[dict[str, Any]], role: Any, asked: dict[str, int], seen: set[str], report: Report
) -> dict[str, int]:
    """Check one message against the calls it must answer; return the calls that it makes."""
    calls: dict[str, int] = {}
    answered: set[str] = set()
    for block in blocks:
        if "text" in block and (not isinstance(block["text"], str) or not block["text"].strip()):
            report.add("text-blank", "a text block must not be blank")
        if "toolUse" in block:
            _check_call(block["toolUse"], role, seen, report)
            calls |= _asked(block["toolUse"], report.index)
        if "toolResult" in block:
            _check_result(block["toolResult"], role, asked, answered, report)
    for id, index in asked.items():
        if id not in answered:
            report.unanswered([id], index)
    return calls


def _asked(call: Any, index: int) -> dict[str, int]:
    id = call.get("toolUseId") if isinstance(call, dict) else None
    return {id: index} if isinstance(id, str) else {}


def _check_call(call: Any, role: Any, seen: set[str], report: Report) -> None:
    call = call if isinstance(call, dict) else {}
    id = call.get("toolUseId")
    if role != "assistant":
        report.add("role", "only the assistant may use tools", id)
    if not isinstance(id, str) or not ID.fullmatch(id):
        report.add("call-id", f"the toolUseId {shown(id)} does not match ^{ID.pattern}$", id)
    elif id in seen:
        report.add("call-id", f"the toolUseId {id:.80} is not unique", id)
    else:
        seen.add(id)
    report.name(call.get("name"), NAME_64, id)
    if not isinstance(call.get("input"), dict):
        report.add("arguments", "input must be a JSON object", id)


def _check_result(result: Any, role: Any, asked: dict[str, int], answered: set[str], report: Report) -> None:
    result = result if isinstance(result, dict) else {}
    id = result.get("toolUseId")
    if role != "user":
        report.add("role", "only the user's messages may hold tool results", id)
    elif not isinstance(id, str) or id not in asked:
        report.add("result-orphan", f"no toolUse {shown(id)} in the message before", id)
    elif id in answered:
        report.add("result-twice", f"the toolUse {id:.80} is answered twice", id)
    else:
        answered.add(id)
    content = result.get("content")
    if not isinstance(content, list) or not all(_is_result_block(block) for block in content):
        kinds = "text, json (an object), image, document, video or searchResult"
        report.add("result-content", f"content must be a list of blocks of {kinds}", id)
    elif not content and result.get("status") == "error":
        report.add("result-content", "the content of an error must not be empty", id)
    if any(map(is_blank, objects(content))):
        report.add("text-blank", "a text block inside a result must not be blank", id)
    if result.get("status", "success") not in ("success", "error"):
        report.add("result-status", "status must be success or error", id)


def _is_result_block(block: Any) -> bool:
    if not isinstance(block, dict) or not any(key in block for key in _RESULT_BLOCKS):
        return False
    return isinstance(block.get("json", {}), dict) and isinstance(block.get("text", ""), str)


def _check_fields(payload: dict[str, Any], uses_tools: bool, report: Report) -> None:
    config = payload.get("toolConfig")
    if uses_tools and not (isinstance(config, dict) and config.get("tools")):
        report.add("tool-config", "toolConfig must be present whenever tool blocks are", index=0)
    system = payload.get("system")
    if system is not None and not (
        isinstance(system, list) and all(_is_system_block(block) for block in system)
    ):
        report.add("system", "system must be a list of blocks whose text is not blank", index=0)


def _is_system_block(block: Any) -> bool:
    return (
        isinstance(block, dict)
        and isinstance(block.get("text", "-"), str)
        and bool(block.get("text", "-").strip())
    )
