"""Edits: the difference between two JSON values turns one into the other, exactly."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnstate import codec
from turnstate.formats.edits import apply, difference
from turnstate.message import Message
from turnstate.part import Edit, Native

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def exact(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@pytest.mark.req("A8")
@settings(deadline=None)
@given(ours=values, theirs=values)
def test_the_difference_turns_one_value_into_the_other(ours: Any, theirs: Any) -> None:
    before = copy.deepcopy(ours)
    assert exact(apply(ours, difference(ours, theirs))) == exact(theirs)
    assert exact(ours) == exact(before)


def test_one_object_may_be_several_in_the_original() -> None:
    ours = {"content": [{"a": 1}, {"b": 2}]}
    edits = difference(ours, {"content": [({"text": ""}, {"a": 1, "c": 3}), {"b": 2, "d": 4}]})
    assert [edit.at for edit in edits] == [("content", 0), ("content", 1, "d")]
    assert apply(ours, edits) == {"content": [{"text": ""}, {"a": 1, "c": 3}, {"b": 2, "d": 4}]}


@settings(deadline=None)
@given(value=values)
def test_a_value_does_not_differ_from_its_copy(value: Any) -> None:
    assert difference(value, copy.deepcopy(value)) == ()


@settings(deadline=None)
@given(value=values, ours=values, theirs=values)
def test_edits_made_for_another_value_never_fail(value: Any, ours: Any, theirs: Any) -> None:
    apply(value, difference(ours, theirs))


@settings(deadline=None)
@given(ours=values, theirs=values)
def test_edits_survive_the_log(ours: Any, theirs: Any) -> None:
    native = Native(format="x", edits=difference(ours, theirs))
    kept = codec.decode(codec.encode(Message.user("hi").replace(native=native)))
    assert kept.native == native
    assert exact(apply(ours, kept.native.edits)) == exact(theirs)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (1, True),
        (1, 1.0),
        (0, False),
        (0.0, -0.0),
        ("1", 1),
        (None, False),
        ([], {}),
        ("", None),
        ([1], [1.0]),
    ],
)
def test_values_that_python_takes_for_equal_differ(ours: Any, theirs: Any) -> None:
    assert difference(ours, theirs) != ()
    assert exact(apply({"at": [ours]}, difference({"at": [ours]}, {"at": [theirs]}))) == exact(
        {"at": [theirs]}
    )


def test_only_what_differs_is_kept() -> None:
    ours = {"role": "user", "content": [{"type": "text", "text": "long " * 100}], "name": "ada"}
    theirs = {"role": "user", "content": [{**ours["content"][0], "cache": {"n": 1}}]}
    assert difference(ours, theirs) == (Edit(("name",)), Edit(("content", 0, "cache"), {"n": 1}))


def test_null_is_a_value_and_not_an_absence() -> None:
    assert apply({"a": 1}, difference({"a": 1}, {"a": None})) == {"a": None}
    assert apply({"a": None}, difference({"a": None}, {})) == {}


@pytest.mark.parametrize(
    "edit",
    [
        Edit(("gone", "deeper"), 1),
        Edit(("gone",)),
        Edit((0,), 1),
        Edit(("list", 7), 1),
        Edit(("list", -1), 1),
        Edit(("list", "key"), 1),
        Edit(("text", 0), 1),
        Edit(("list", 0)),
    ],
)
def test_an_edit_whose_place_is_gone_is_passed_over(edit: Edit) -> None:
    value = {"list": [1], "text": "abc"}
    assert apply(value, [edit]) == value


def test_many_edits_of_one_list_are_applied_in_one_pass() -> None:
    ours = [{"n": n} for n in range(1_000)]
    theirs = [{"n": n, "cache": True} for n in range(1_000)]
    edits = difference(ours, theirs)
    assert len(edits) == 1_000
    assert apply(ours, edits) == theirs
