"""The tree of errors is what the module's docstring draws, and each one tells people and shells enough."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest

from turnstate import errors
from turnstate.errors import InputError, TurnstateError

DRAWN = re.compile(r"^ {4}(?P<rails>[│├└─ ]*)(?P<name>[A-Z]\w+)(?: {2,}(?P<meaning>\S.*))?$")
WIDTH = len("├── ")


def drawn(text: str) -> dict[str, str]:
    """Read a tree of names from a docstring: each with the name of the one it hangs on."""
    parents: dict[str, str] = {}
    branch: list[str] = []
    for line in text.splitlines():
        if match := DRAWN.match(line):
            depth = len(match["rails"]) // WIDTH
            branch = [*branch[:depth], match["name"]]
            parents[match["name"]] = branch[-2] if depth else ""
    return parents


def classes() -> dict[str, type[TurnstateError]]:
    found = {name: value for name, value in vars(errors).items() if isinstance(value, type)}
    return {name: value for name, value in found.items() if issubclass(value, TurnstateError)}


every_error = pytest.mark.parametrize("kind", classes().values(), ids=classes())


def test_the_tree_in_the_docstring_is_the_tree_in_the_code() -> None:
    written = {
        name: next((base.__name__ for base in kind.__bases__ if issubclass(base, TurnstateError)), "")
        for name, kind in classes().items()
    }
    assert drawn(errors.__doc__ or "") == written


def test_the_drawing_is_read_as_it_is_drawn() -> None:
    text = "    Top\n    ├── One      first\n    │   └── Two  second\n    └── Six      third\n"
    assert drawn(text) == {"Top": "", "One": "Top", "Two": "One", "Six": "Top"}


def test_every_error_is_exported() -> None:
    assert set(classes()) == set(errors.__all__) - {"exit_code"}


@every_error
def test_every_error_has_a_meaning_for_a_shell(kind: type[TurnstateError]) -> None:
    code = errors.exit_code(kind())
    assert code in (1, 2, 3)
    assert (code == 2) == issubclass(kind, InputError)


def test_an_error_of_somebody_elses_making_counts_as_its_kind() -> None:
    class Custom(errors.InvalidPayload):
        """Made by an adapter."""

    class Plain(TurnstateError):
        """Made by a store."""

    assert errors.exit_code(Custom()) == 2
    assert errors.exit_code(Plain()) == 1


@every_error
def test_the_default_text_is_the_docstring(kind: type[TurnstateError]) -> None:
    assert kind().text == kind.__doc__
    assert str(kind()).startswith(str(kind.__doc__))


def test_an_error_without_a_docstring_still_says_something() -> None:
    class Bare(TurnstateError):
        pass

    assert str(Bare()) == "Bare"


@every_error
def test_a_text_of_ones_own_takes_the_place_of_the_docstring(kind: type[TurnstateError]) -> None:
    assert kind("the disk is full").text == "the disk is full"
    assert str(kind("the disk is full")).startswith("the disk is full")


def test_bad_input_names_the_path_where_there_is_one() -> None:
    assert str(InputError("no", path="$.messages[3]")) == "no (at $.messages[3])"
    assert str(InputError("no")) == "no"
    assert InputError("no", path="$.a").text == "no"
    assert InputError(path="$.a").path == "$.a"


def test_bad_input_can_be_caught_as_a_value_error() -> None:
    assert issubclass(InputError, ValueError)
    assert not issubclass(errors.InvalidConversation, ValueError)


@every_error
@pytest.mark.parametrize(
    "through", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))]
)
def test_errors_survive_copying_and_the_way_between_processes(
    kind: type[TurnstateError], through: Any
) -> None:
    error = kind("no", path="$.a") if issubclass(kind, InputError) else kind("no")
    again = through(error)
    assert type(again) is kind
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_an_error_can_be_printed_whatever_it_quotes() -> None:
    error = InputError(f"there is no session a\ud800b{'x' * 10_000_000}", path="$.\udfff")
    assert str(error).encode()
    assert "a\\ud800b" in str(error)
    assert len(str(error)) < 5_000
