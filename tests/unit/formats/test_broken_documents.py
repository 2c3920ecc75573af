"""What a provider rejects: every rule of every provider, several documents a rule."""

from __future__ import annotations

import ast
import copy
from pathlib import Path
from typing import Any

import pytest

from tests.unit.formats.broken_documents import BROKEN, Broken
from turnstate import formats
from turnstate.formats import rules

RULES = Path(rules.__file__).parent
SHARED = {"name": "tool-name", "unanswered": "call-unanswered"}
REQUEST_ONLY = [broken for broken in BROKEN if broken.request]


def of(cases: list[Broken]) -> Any:
    return pytest.mark.parametrize("broken", cases, ids=lambda broken: f"{broken.provider}: {broken.says}")


def rules_in_source(provider: str) -> set[str]:
    """Name the rules that a validator can report: the constants it hands to its report."""
    source = (RULES / f"{provider.replace('-', '_')}.py").read_text()
    found = {"shape", "no-messages", "response-field"}  # of every document
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            match node.func.attr, node.args:
                case "add", [ast.Constant(value=str(rule)), *_]:
                    found.add(rule)
                case ("name" | "unanswered") as method, _:
                    found.add(SHARED[method])
    return found


@pytest.mark.req("A8")
@of(BROKEN)
def test_a_broken_document_is_rejected_for_its_rule_its_message_and_its_id(broken: Broken) -> None:
    found = formats.get(broken.provider).validate(broken.document, request=broken.request)
    assert broken.expected in [(one.rule, one.index, one.id) for one in found]
    rest = [one.rule for one in found if (one.rule, one.index, one.id) != broken.expected]
    assert sorted(rest) == sorted(broken.also)


@pytest.mark.req("A8")
@of(REQUEST_ONLY)
def test_rules_about_a_request_do_not_apply_to_a_conversation(broken: Broken) -> None:
    assert formats.get(broken.provider).validate(broken.document) == []


@of([broken for broken in BROKEN if not broken.request])
def test_a_request_is_held_to_the_other_rules_too(broken: Broken) -> None:
    found = formats.get(broken.provider).validate(broken.document, request=True)
    assert broken.expected in [(one.rule, one.index, one.id) for one in found]


@of(BROKEN)
def test_validating_changes_nothing_and_gives_the_same_every_time(broken: Broken) -> None:
    provider, before = formats.get(broken.provider), copy.deepcopy(broken.document)
    found = provider.validate(broken.document, request=True)
    assert provider.validate(broken.document, request=True) == found
    assert broken.document == before


@of(BROKEN)
def test_violations_come_in_the_order_of_the_messages_and_say_what_is_wrong(broken: Broken) -> None:
    found = formats.get(broken.provider).validate(broken.document, request=True)
    assert [one.index for one in found] == sorted(one.index for one in found)
    assert all(str(one).startswith(f"message {one.index}: {one.rule}: ") and one.text for one in found)


@pytest.mark.parametrize("provider", formats.names())
def test_every_rule_of_a_provider_has_a_document_that_breaks_it(provider: str) -> None:
    shown = {broken.expected[0] for broken in BROKEN if broken.provider == provider}
    assert shown == rules_in_source(provider)


@pytest.mark.parametrize("provider", formats.names())
@pytest.mark.parametrize(
    "garbage",
    [None, True, 7, 1.5, "", "text", [], {}, [[]], [None], [{}], {"messages": None}, {"input": [[]]}],
)
def test_anything_at_all_can_be_validated(provider: str, garbage: Any) -> None:
    assert formats.get(provider).validate(garbage, request=True)


def deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


BOTTOMLESS = deep(100_000)


@pytest.mark.parametrize("provider", formats.names())
@pytest.mark.parametrize("key", ["role", "type", "content", "parts", "id", "tool_call_id", "call_id", "name"])
def test_a_value_that_is_deeper_than_the_stack_is_named_by_its_type(provider: str, key: str) -> None:
    bottomless = BOTTOMLESS
    items = [{key: bottomless}, {key: bottomless}, {"role": "user", "content": [{key: bottomless}] * 2}]
    parts = [{"functionCall": {key: bottomless}}, {"functionResponse": {key: bottomless}}, {"inlineData": {}}]
    items += [{"role": "model", "parts": parts}, {"role": "user", "parts": parts}]
    assert formats.get(provider).validate(items, request=True)
