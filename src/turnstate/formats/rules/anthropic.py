"""The rules of Anthropic Messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from ..port import Violation
from .fields import Fields, by_type
from .report import Report, objects, shown

LONGEST_NAME = 128
ID = re.compile(r"[a-zA-Z0-9_-]+")
THINKING = ("thinking", "redacted_thinking")
_SERVED = ("server_tool_use", "mcp_tool_use")
_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{LONGEST_NAME}}}")

_CITATION = Fields("", response="file_id", open=True)
_RESULT = Fields("type! tool_use_id! content! cache_control? caller")
_NESTED = {
    "text": Fields(
        "type! text! cache_control? citations", inner={"citations": _CITATION}, response="parsed_output"
    ),
    "image": Fields("type! source! cache_control? transformations?"),
    "document": Fields("type! source! cache_control? citations? context? title?"),
    "search_result": Fields("type! source! title! content! cache_control? citations?"),
    "tool_reference": Fields("type! tool_name! cache_control?"),
}
_BLOCKS = _NESTED | {
    "tool_use": Fields("type! id! name! input! cache_control? caller toolset_name"),
    "tool_result": Fields(
        "type! tool_use_id! content? is_error cache_control? toolset_name?",
        inner={"content": by_type(_NESTED)},
    ),
    "thinking": Fields("type! thinking! signature!"),
    "redacted_thinking": Fields("type! data!"),
    "server_tool_use": Fields("type! id! name! input! cache_control? caller"),
    "container_upload": Fields("type! file_id! cache_control?"),
    **dict.fromkeys(
        (
            "web_search_tool_result web_fetch_tool_result code_execution_tool_result "
            "bash_code_execution_tool_result text_editor_code_execution_tool_result tool_search_tool_result"
        ).split(),
        _RESULT,
    ),
}
_MESSAGE = Fields(
    "role! content! clear_at? output_config?",  # the last two belong to messages of the system
    response=(
        "id type model stop_reason stop_sequence stop_details usage container context_management diagnostics"
    ),
    inner={"content": by_type(_BLOCKS)},
)
DOCUMENT = Fields(
    "messages! system? model? max_tokens? tools? tool_choice? temperature? top_p? top_k? stop_sequences? "
    "stream? metadata? thinking? service_tier? cache_control? container? context_management? mcp_servers? "
    "output_config? inference_geo? speed? diagnostics? user_profile_id? workspace_id? betas? "
    "anthropic_version? anthropic_beta?",
    response="type role content stop_reason stop_sequence stop_details usage",
    inner={"messages": _MESSAGE, "system": by_type(_NESTED)},
)
"""The request and response types of anthropic 2.8."""


def violations(payload: Any, *, request: bool = False) -> list[Violation]:
    """List what the Messages API would reject."""
    report = Report()
    listed = payload.get("messages") if isinstance(payload, dict) else payload
    turns = list(_turns(listed, report))
    seen: set[str] = set()
    for position, turn in enumerate(turns):
        before = turns[position - 1] if position else None
        after = turns[position + 1] if position + 1 < len(turns) else None
        turn.check(before, after, seen, report)
    if turns and turns[0].role not in ("user", "system"):
        report.add("first-user", "the first message must be the user's", index=turns[0].index)
    if request and turns and turns[-1].role == "assistant":
        turns[-1].check_end(report)
    if isinstance(payload, dict):
        _check_system(payload.get("system"), report)
        if request and _thinks(payload) and len(turns) > 1 and turns[-1].answers:
            turns[-2].check_own_thinking(report)
    return report.violations


def is_blank(block: Any) -> bool:
    """Return True for a text block that says nothing."""
    text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
    return isinstance(text, str) and not text.strip()


def may_precede_system(message: dict[str, Any]) -> bool:
    """Return True if a system message may follow: after the user, or after a tool that the service runs."""
    blocks = objects(message.get("content"))
    served = bool(blocks) and blocks[-1].get("type") in _SERVED
    return message.get("role") == "user" or (message.get("role") == "assistant" and served)


class _Turn:
    """Neighbors of one role, which the service merges into one message."""

    def __init__(self, role: object, index: int) -> None:
        self.role, self.index, self.last = role, index, index
        self.blocks: list[tuple[int, dict[str, Any]]] = []

    @property
    def calls(self) -> set[str]:
        """The ids of the calls that the assistant makes here."""
        return self._ids("tool_use", "id") if self.role == "assistant" else set()

    @property
    def answers(self) -> set[str]:
        """The ids of the calls that the user answers here."""
        return self._ids("tool_result", "tool_use_id") if self.role == "user" else set()

    @property
    def may_be_paused(self) -> bool:
        """True if it holds calls that the service runs itself: the service can pause there and continue."""
        return any(block.get("type") in _SERVED for _, block in self.blocks)

    def check_end(self, report: Report) -> None:
        """Check an assistant's message that the request asks to continue."""
        if not self.may_be_paused:
            report.add("last-user", "the last message of a request must be the user's", index=self.last)
        elif self.blocks and self.blocks[-1][1].get("type") == "text":
            text = self.blocks[-1][1].get("text")
            if isinstance(text, str) and text != text.rstrip():
                report.add("text-end", "the last message must not end with white space", index=self.last)

    def _ids(self, kind: str, key: str) -> set[str]:
        found = (block.get(key) for _, block in self.blocks if block.get("type") == kind)
        return {id for id in found if isinstance(id, str)}

    def check(self, before: _Turn | None, after: _Turn | None, seen: set[str], report: Report) -> None:
        """Check the turn by itself and against its neighbors; `seen` holds the call ids so far."""
        if self.role == "system":
            self._check_place(before, after, report)
        asked = before.calls if before else set()
        answers = after.answers if after else set()
        answered: set[str] = set()
        words = False
        for report.index, block in self.blocks:
            match block.get("type"):
                case "tool_use":
                    self._check_call(block, answers, seen, report)
                case "tool_result":
                    if words:
                        report.add(
                            "results-first",
                            "tool_result blocks must come before any other block",
                            block.get("tool_use_id"),
                        )
                    self._check_result(block, asked, answered, report)
                case "text":
                    words = True
                    _check_text(block.get("text"), report)
                case _:
                    words = True
        self._check_thinking(report)

    def check_own_thinking(self, report: Report) -> None:
        """Check that a message whose tools were just run begins with its own thinking."""
        if not self.blocks or self.blocks[0][1].get("type") not in THINKING:
            report.add(
                "thinking-first",
                "with thinking on, this message must start with its thinking",
                index=self.index,
            )

    def _check_call(self, block: dict[str, Any], answers: set[str], seen: set[str], report: Report) -> None:
        id = block.get("id")
        if self.role != "assistant":
            report.add("role", "only the assistant may use tools", id)
        if not isinstance(id, str) or not ID.fullmatch(id):
            report.add("call-id", f"the tool_use id {shown(id)} does not match ^{ID.pattern}$", id)
        elif id in seen:
            report.add("call-id", f"the tool_use id {id:.80} is not unique", id)
        else:
            seen.add(id)
        report.name(block.get("name"), _NAME, id)
        if not isinstance(block.get("input"), dict):
            report.add("arguments", "input must be a JSON object", id)
        if isinstance(id, str) and id not in answers:
            report.unanswered([id], report.index)

    def _check_result(
        self, block: dict[str, Any], asked: set[str], answered: set[str], report: Report
    ) -> None:
        id = block.get("tool_use_id")
        if self.role != "user":
            report.add("role", "only the user's messages may hold tool results", id)
        elif not isinstance(id, str) or id not in asked:
            report.add("result-orphan", f"no tool_use {shown(id)} in the previous message", id)
        elif id in answered:
            report.add("result-twice", f"the tool_use {id:.80} is answered twice", id)
        else:
            answered.add(id)
        content = block.get("content")
        if isinstance(content, str) and content:
            _check_text(content, report, id)
        for inner in objects(content):
            if inner.get("type") == "text":
                _check_text(inner.get("text"), report, id)

    def _check_place(self, before: _Turn | None, after: _Turn | None, report: Report) -> None:
        """Check where a system message is: after the user, and before the assistant or at the end."""
        ends = before.blocks[-1][1].get("type") if before and before.blocks else None
        follows = before is not None and (before.role == "user" or ends in _SERVED)
        if not follows or (after is not None and after.role != "assistant") or self.last != self.index:
            report.add(
                "system-place",
                "a system message must follow the user's message and come before the assistant's",
                index=self.index,
            )

    def _check_thinking(self, report: Report) -> None:
        for report.index, run in groupby(self.blocks, key=lambda pair: pair[0]):
            blocks = [block for _, block in run]
            if self.role != "assistant" and any(block.get("type") in THINKING for block in blocks):
                report.add("thinking", "only the assistant may think")
            if any(block.get("type") == "thinking" and not block.get("signature") for block in blocks):
                report.add("thinking", "a thinking block must carry its signature")


def _turns(listed: Any, report: Report) -> Iterator[_Turn]:
    turn: _Turn | None = None
    for message in report.items(listed, "messages"):
        role = message.get("role")
        if role not in ("user", "assistant", "system"):
            report.add("role", f"unknown role {shown(role)}; the system prompt goes in `system`")
            role = None
        if turn is None or turn.role != role:
            if turn:
                yield turn
            turn = _Turn(role, report.index)
        turn.last = report.index
        turn.blocks += [(report.index, block) for block in _blocks(message.get("content"), report)]
    if turn:
        yield turn


def _blocks(content: Any, report: Report) -> list[dict[str, Any]]:
    if isinstance(content, str) and content:
        return [{"type": "text", "text": content}]
    if not isinstance(content, list) or not content:
        report.add("content-empty", "content must be text or a non-empty list of blocks")
        return []
    blocks = objects(content)
    if len(blocks) < len(content) or not all(isinstance(block.get("type"), str) for block in blocks):
        report.add("shape", "a block must be an object with a type")
    return blocks


def _thinks(payload: dict[str, Any]) -> bool:
    thinking = payload.get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") == "enabled"


def _check_text(text: Any, report: Report, id: object = None) -> None:
    if not isinstance(text, str) or not text:
        report.add("text-empty", "a text block must not be empty", id)
    elif not text.strip():
        report.add("text-blank", "a text block must hold more than white space", id)


def _check_system(system: Any, report: Report) -> None:
    if system is None or isinstance(system, str):
        return
    texts = [block.get("text") for block in objects(system)]
    if (
        not isinstance(system, list)
        or len(texts) < len(system)
        or not all(isinstance(t, str) and t.strip() for t in texts)
    ):
        report.add("system", "system must be text or a list of text blocks that are not blank", index=0)
