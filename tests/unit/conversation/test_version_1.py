"""Documents of version 1, as the version wrote them that had timelines instead of branches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.conversation.conversation_fixtures import Desk, prompts, talk, validate
from turnstate.conversation import ConversationState, fields, from_json, to_json
from turnstate.errors import InvalidPayload, NothingToUndo

pytestmark = pytest.mark.req("I9")

DOCUMENTS = sorted(Path(__file__).with_name("version_1").glob("*.json"))


@pytest.fixture(params=DOCUMENTS, ids=lambda path: path.stem)
def kept(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return a document, and what the version that wrote it showed after each undo and in each tangent."""
    found: dict[str, Any] = json.loads(request.param.read_text())
    assert found["document"]["turnstate"]["version"] == 1
    return found


def read(kept: dict[str, Any], folder: Path) -> ConversationState:
    return from_json(kept["document"], os=Desk(folder))


def test_it_shows_what_it_showed(kept: dict[str, Any], tmp_path: Path) -> None:
    state = read(kept, tmp_path)
    shown = {name: value for name, value in kept["document"].items() if name != "turnstate"}
    assert json.loads(json.dumps(fields(state))) == shown
    validate(state.preview(), state)


def test_it_is_written_in_the_new_version_and_is_the_same(kept: dict[str, Any], tmp_path: Path) -> None:
    state = read(kept, tmp_path)
    document = to_json(state)
    assert document["turnstate"]["version"] == 2
    again = from_json(json.loads(json.dumps(document)), os=Desk(tmp_path))
    assert to_json(again) == document
    assert again.log.branches == state.log.branches
    assert again.log.entries == state.log.entries
    assert again.kept_tangents() == state.kept_tangents()


def test_undo_goes_where_it_went(kept: dict[str, Any], tmp_path: Path) -> None:
    state = read(kept, tmp_path)
    for name, shown in kept["after each undo"]:
        if name == "nothing":
            with pytest.raises(NothingToUndo):
                state.undo()
        else:
            assert state.undo() == name
        assert prompts(state) == shown


def test_its_tangents_are_left_for_where_they_began(kept: dict[str, Any], tmp_path: Path) -> None:
    state = read(kept, tmp_path)
    for shown in kept["after each leave"]:
        state.exit_tangent_mode()
        assert prompts(state) == shown
    assert not state.is_in_tangent_mode()


def test_its_tangents_can_be_reopened(kept: dict[str, Any], tmp_path: Path) -> None:
    expected = kept["in each tangent and after it"]
    assert [one.opening for one in read(kept, tmp_path).kept_tangents()] == list(expected)
    for one in read(kept, tmp_path).kept_tangents():
        state = read(kept, tmp_path)
        inside, after = expected[one.opening]
        state.reopen_tangent(one.name)
        assert prompts(state) == inside
        state.exit_tangent_mode()
        assert prompts(state) == after


def test_it_goes_on(kept: dict[str, Any], tmp_path: Path) -> None:
    state = read(kept, tmp_path)
    before = prompts(state)
    state.begin_tangent()
    talk(state, "aside")
    state.exit_tangent_mode()
    talk(state, "next")
    assert prompts(state)[: len(before)] == before
    assert (prompts(state)[-1] or "").endswith("next")
    assert to_json(from_json(to_json(state))) == to_json(state)


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (["timelines"], 7, "$.turnstate"),
        (["head"], 99, "$.turnstate.head"),
        (["head"], -1, "$.turnstate.head"),
        (["timelines"], [], "$.turnstate.head"),
        (["timelines", 1, "parent"], 1, "$.turnstate.timelines[1].parent"),
        (["timelines", 1, "parent"], -1, "$.turnstate.timelines[1].parent"),
        (["timelines", 1, "at"], 999, "$.turnstate.timelines[1].at"),
        (["timelines", 1, "restores"], 7, "$.turnstate.timelines[1].restores"),
        (["timelines", 1, "restores"], 0, "$.turnstate.timelines[1].shared"),
        (["timelines", 0, "left"], [[1, 99]], "$.turnstate.timelines[0].left"),
        (["timelines", 0, "entries", 0], "no such id", "$.turnstate.branches[0].entries[0]"),
    ],
)
def test_what_is_unreadable_is_refused(path: list[Any], value: Any, told: str) -> None:
    document = json.loads(DOCUMENTS[-1].read_text())["document"]
    inner = document["turnstate"]
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    if told.endswith("shared"):
        document["turnstate"]["timelines"][1]["shared"] = 999
    with pytest.raises(InvalidPayload) as raised:
        from_json(document)
    assert raised.value.path == told
