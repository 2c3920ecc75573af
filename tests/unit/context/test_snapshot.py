"""Snapshots have the keys of the specification, and come back as they were."""

from __future__ import annotations

import json

import pytest

from tests.unit.context.scripts import Letters, talk
from turnstate import Message
from turnstate.context import Budget, ContextSnapshot, StateManager
from turnstate.errors import InputError, InvalidPayload, NewerFormat

MANAGER = StateManager(Letters())


@pytest.mark.req("H1")
def test_a_snapshot_has_exactly_these_keys() -> None:
    snapshot = MANAGER.snapshot(talk("S U A"), timestamp=1_760_000_000_000)
    document = json.loads(snapshot.to_json())
    assert list(document) == ["version", "timestamp", "tokenCount", "messages"]
    assert (document["version"], document["timestamp"]) == ("1.0", 1_760_000_000_000)
    assert document["tokenCount"] == MANAGER.count(talk("S U A")).tokens


@pytest.mark.req("H1")
def test_the_summary_is_told_by_its_kind() -> None:
    window = MANAGER.window(talk("S " + "U A " * 40, text="w" * 100), Budget(4_000))
    snapshot = MANAGER.snapshot(window.messages)
    assert snapshot.summary == next(m.text for m in window.messages if m.kind == "summary")
    assert json.loads(snapshot.to_json())["summary"] == snapshot.summary


@pytest.mark.req("H1")
def test_a_snapshot_comes_back_as_it_was() -> None:
    snapshot = ContextSnapshot(
        timestamp=5, token_count=9, messages=tuple(talk("S U A[x] T[x] A")), summary="s", extension={"seq": 4}
    )
    assert ContextSnapshot.from_json(snapshot.to_json()) == snapshot


@pytest.mark.req("H1")
@pytest.mark.parametrize(
    "change",
    [
        {"version": "2.0"},
        {"timestamp": "now"},
        {"tokenCount": None},
        {"messages": {}},
        {"messages": [5]},
        {"summary": 1},
    ],
)
def test_what_is_not_a_snapshot_is_refused_with_its_path(change: dict[str, object]) -> None:
    document = json.loads(MANAGER.snapshot([Message.user("hi")]).to_json()) | change
    with pytest.raises(InputError) as caught:
        ContextSnapshot.from_json(json.dumps(document))
    assert caught.value.path.startswith(f"$.{next(iter(change))}")


@pytest.mark.req("H1")
@pytest.mark.parametrize("version", [None, 1, True, "", "latest", "1", "1.0.0", "1.0\n", "\u0661.\u0660"])
def test_a_version_that_is_none_is_not_a_newer_one(version: object) -> None:
    document = json.loads(MANAGER.snapshot([Message.user("hi")]).to_json()) | {"version": version}
    if version is None:
        del document["version"]
    with pytest.raises(InvalidPayload, match="version") as caught:
        ContextSnapshot.from_json(json.dumps(document))
    assert caught.value.path == "$.version"
    with pytest.raises(NewerFormat, match=r"snapshot version '2\.10' is not '1\.0'"):
        ContextSnapshot.from_json(json.dumps(document | {"version": "2.10"}))


@pytest.mark.parametrize("text", ["[]", "5", "{", '{"version": "1.0"}'])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        ContextSnapshot.from_json(text)
