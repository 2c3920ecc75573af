"""A function becomes a tool: its schema, its description, and the check of its arguments."""

from __future__ import annotations

import asyncio
import threading
from typing import Annotated, Any, Literal

import msgspec
import pytest

from turnstate import ToolCallRequest, formats
from turnstate.errors import InputError
from turnstate.tools import BadArguments, Tool, ToolContext, tool


class Place(msgspec.Struct):
    city: str
    zone: str | None = None


class Branch(msgspec.Struct):
    name: str
    below: list[Branch] = []


@tool
def forecast(city: str, days: int = 1, unit: Literal["C", "F"] = "C") -> str:
    """Return the weather forecast.

    It is a guess.

    Args:
        city: The name of the city,
            with its country.
        days: How many days ahead.

    Returns:
        The forecast.
    """
    return f"{city} {days} {unit}"


def run(one: Tool, **args: Any) -> Any:
    context = ToolContext(call=ToolCallRequest(name=one.name, args=args))
    return asyncio.run(one.run(args, context))


def test_the_schema_comes_from_the_hints_and_the_descriptions_from_the_docstring() -> None:
    assert forecast.name == "forecast"
    assert forecast.spec.description == "Return the weather forecast.\n\nIt is a guess."
    assert forecast.spec.input_schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The name of the city, with its country."},
            "days": {"type": "integer", "description": "How many days ahead.", "default": 1},
            "unit": {"enum": ["C", "F"], "default": "C"},
        },
        "required": ["city"],
        "additionalProperties": False,
    }


def test_a_decorated_function_can_still_be_called() -> None:
    assert forecast("Oslo", days=2) == "Oslo 2 C"


def test_nested_types_are_written_out_and_types_that_contain_themselves_are_referred_to() -> None:
    @tool
    def go(place: Place, tree: Branch | None = None) -> None:
        """Go."""

    schema = go.spec.input_schema
    assert schema["properties"]["place"]["properties"]["city"] == {"type": "string"}
    assert "$ref" in str(schema["properties"]["tree"])
    assert list(schema["$defs"]) == ["Branch"]


def test_every_provider_takes_the_definition() -> None:
    for name in formats.names():
        provider = formats.get(name)
        document = provider.render([], tools=[forecast.spec]) if name != "openai-chat" else None
        assert document is None or "forecast" in str(document), name


@pytest.mark.parametrize(
    ("args", "fault"),
    [
        ({}, "missing required field `city`"),
        ({"city": "Oslo", "days": "soon"}, "`$.days`"),
        ({"city": "Oslo", "unit": "K"}, "`$.unit`"),
        ({"city": "Oslo", "when": 1}, "unknown field `when`"),
        ({"city": 3.5}, "`$.city`"),
    ],
)
def test_arguments_that_do_not_match_are_refused_with_what_is_wrong(args: dict[str, Any], fault: str) -> None:
    with pytest.raises(BadArguments, match="invalid arguments") as refused:
        asyncio.run(forecast.checked(args))
    assert fault in str(refused.value)


def test_a_number_that_a_model_wrote_as_text_is_understood() -> None:
    assert run(forecast, city="Oslo", days="3") == "Oslo 3 C"


def test_a_plain_function_runs_in_a_thread_and_a_coroutine_in_the_loop() -> None:
    @tool
    def plain() -> bool:
        """Say where."""
        return threading.current_thread() is threading.main_thread()

    @tool
    async def coroutine(context: ToolContext) -> bool:
        """Say where."""
        return threading.current_thread() is threading.main_thread() and context.call.name == "coroutine"

    assert run(plain) is False
    assert run(coroutine) is True
    assert coroutine.spec.input_schema["properties"] == {}


def test_a_function_that_cannot_be_a_tool_is_refused_with_the_reason() -> None:
    def untyped(city) -> str:  # type: ignore[no-untyped-def]
        return str(city)

    def many(*cities: str) -> str:
        return str(cities)

    def odd(what: Annotated[complex, "no JSON"]) -> str:
        return str(what)

    for function, fault in ((untyped, "city has no type hint"), (many, "cities"), (odd, "complex")):
        with pytest.raises(InputError, match=fault):
            tool(function)
    with pytest.raises(InputError, match="name of a tool"):
        tool(name="räume")(forecast._function)  # type: ignore[arg-type]
