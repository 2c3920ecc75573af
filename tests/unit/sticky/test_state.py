"""What is kept goes into JSON and comes back, whoever wrote it, with owners and all that is foreign."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstate.errors import DuplicatePath, InputError, InvalidPayload, UnknownName
from turnstate.sticky import ContextManager, ContextState, StickyPath
from turnstate.sticky.sticky_paths import limit_for

HOOKS = {"agentSpawn": [{"command": "git status", "timeout_ms": 30000, "max_output_size": 10240}]}
ORIGINAL = {
    "max_context_files_size": 150_000,
    "current_profile": "q_cli_default",
    "paths": ["AmazonQ.md", "README.md", ".amazonq/rules/**/*.md"],
    "hooks": HOOKS,
}


@pytest.mark.req("K1")
def test_what_the_original_wrote_is_read_as_the_agents_and_can_be_given_back() -> None:
    state = ContextState.from_json(ORIGINAL)
    assert [one.path for one in state.paths] == ORIGINAL["paths"]
    assert {one.owner for one in state.paths} == {"agent"}
    assert state.original() == ORIGINAL


@pytest.mark.req("K1")
def test_ours_remembers_whose_each_path_is() -> None:
    state = ContextState.from_json(ORIGINAL).adding("notes.md", "session")
    written = json.loads(json.dumps(state.to_json()))
    assert written["paths"][-2:] == [
        {"path": ".amazonq/rules/**/*.md", "owner": "agent"},
        {"path": "notes.md", "owner": "session"},
    ]
    assert ContextState.from_json(written) == state
    assert ContextState.from_json(state.original()) != state


@pytest.mark.req("K1")
def test_fields_that_nobody_knows_survive_where_they_stood() -> None:
    document = {**ORIGINAL, "color": "red", "paths": [{"path": "a", "owner": "session", "pinned": True}]}
    state = ContextState.from_json(document)
    assert state.to_json() == document
    assert state.adding("b", "agent").to_json()["paths"][0]["pinned"] is True
    assert state.adding("b", "agent").to_json()["color"] == "red"


@pytest.mark.req("K1")
def test_hooks_are_kept_and_nobody_can_change_them_from_outside() -> None:
    hooks: dict[str, Any] = json.loads(json.dumps(HOOKS))
    state = ContextState.from_json({**ORIGINAL, "hooks": hooks})
    hooks.clear()
    state.to_json()["hooks"].clear()
    assert state.to_json()["hooks"] == HOOKS


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ([], "$"),
        ({}, "$.paths"),
        ({"paths": "a.md"}, "$.paths"),
        ({"paths": [1]}, "$.paths[0]"),
        ({"paths": [{"owner": "agent"}]}, "$.paths[0].path"),
        ({"paths": [{"path": 1}]}, "$.paths[0].path"),
        ({"paths": [{"path": "a", "owner": "cat"}]}, "$.paths[0].owner"),
        ({"paths": [{"path": "a", "owner": []}]}, "$.paths[0].owner"),
        ({"paths": [], "hooks": []}, "$.hooks"),
        ({"paths": [], "max_context_files_size": True}, "$.max_context_files_size"),
        ({"paths": [], "max_context_files_size": -1}, "$.max_context_files_size"),
        ({"paths": [], "current_profile": None}, "$.current_profile"),
    ],
)
def test_a_document_that_is_none_is_refused_with_the_place_of_the_fault(document: Any, path: str) -> None:
    with pytest.raises(InvalidPayload) as caught:
        ContextState.from_json(document)
    assert caught.value.path == path


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(InputError, match="surrogate"):
        ContextState.from_json({"paths": ["caf\udce9"]})
    with pytest.raises(InputError, match="surrogate"):
        StickyPath("caf\udce9")


@pytest.mark.req("K1")
def test_paths_stay_in_the_order_in_which_they_were_added() -> None:
    state = ContextState().adding("b", "session").adding("a", "agent").adding("c", "session")
    assert [(one.path, one.owner) for one in state.paths] == [
        ("b", "session"),
        ("a", "agent"),
        ("c", "session"),
    ]
    assert [one.path for one in state.without("a").paths] == ["b", "c"]


@pytest.mark.req("K1")
@pytest.mark.parametrize("again", ["docs", "docs/", "./docs", "docs//."])
def test_a_path_that_is_there_already_is_refused_whosever_it_is(again: str) -> None:
    state = ContextState().adding("docs", "agent")
    with pytest.raises(DuplicatePath, match="by the agent"):
        state.adding(again, "session")


def test_a_path_is_removed_by_any_of_its_spellings_and_an_unknown_one_is_told() -> None:
    state = ContextState().adding("./docs/", "agent")
    assert state.without("docs").paths == ()
    with pytest.raises(UnknownName, match=r"other\.md"):
        state.without("other.md")


@pytest.mark.req("K1")
def test_another_agent_brings_its_own_paths_and_leaves_the_sessions() -> None:
    state = ContextState().adding("README.md", "agent").adding("mine.md", "session")
    other = state.under_agent("reviewer", ["rules.md", "./rules.md", "mine.md"])
    assert other.current_profile == "reviewer"
    assert [(one.path, one.owner) for one in other.paths] == [("rules.md", "agent"), ("mine.md", "session")]


@pytest.mark.req("K1")
@given(st.integers(min_value=1, max_value=10**12))
def test_the_limit_is_three_quarters_of_the_window(window: int) -> None:
    assert limit_for(window) <= window * 0.75 + 1e-3 * window
    assert 4 * limit_for(window) in range(3 * window - 3, 3 * window + 1)


@pytest.mark.parametrize("window", [0, -1, 1.5, True, None])
def test_a_window_that_is_none_is_refused(window: Any) -> None:
    with pytest.raises(InputError):
        ContextManager().for_window(window)


def test_an_owner_is_the_agent_or_the_session() -> None:
    with pytest.raises(InputError, match="cat"):
        ContextState().adding("a", "cat")  # type: ignore[arg-type]
