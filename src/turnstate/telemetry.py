"""Telemetry: OpenTelemetry spans under the semantic conventions for GenAI, and a silent logger.

A program that wants spans has already imported OpenTelemetry, so this module looks it up in `sys.modules` and
never imports it: programs without it pay nothing. A span is current only while something is awaited, never
across a ``yield``, so that it cannot leak into the program that reads the events.

The text of conversations is not recorded unless ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`` is
``true``; other instrumentations honor the same variable. Modules log to ``turnstate.…`` with the standard
library, and nothing is printed unless the program configures logging.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

from . import wire_text
from ._version import __version__
from .message import Message

Attributes = Mapping[str, str | int | float | bool | list[str] | None]

logging.getLogger("turnstate").addHandler(logging.NullHandler())

_CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


class TracedSpan:
    """A span in progress; a no-op without OpenTelemetry."""

    __slots__ = ("_span", "_trace")

    def __init__(self, trace: Any = None, span: Any = None) -> None:
        self._trace, self._span = trace, span

    def set(self, attributes: Attributes) -> None:
        """Set attributes, except those that are None."""
        if self._span is not None:
            self._span.set_attributes(_known(attributes))

    def event(self, name: str, attributes: Attributes) -> None:
        """Add an event to the span."""
        if self._span is not None:
            self._span.add_event(name, _known(attributes))

    def fail(self, kind: str, text: str = "") -> None:
        """Mark the span as failed with a kind of error."""
        if self._span is not None:
            self._span.set_attribute("error.type", kind)
            self._span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, text or None))

    def current(self) -> AbstractContextManager[Any]:
        """Return a context manager in which new spans become children of this one."""
        if self._span is None:
            return nullcontext()
        block: AbstractContextManager[Any] = self._trace.use_span(
            self._span, end_on_exit=False, record_exception=False, set_status_on_exception=False
        )
        return block

    def end(self) -> None:
        """End the span."""
        if self._span is not None:
            self._span.end()


_NOTHING = TracedSpan()


def started(
    operation: str, subject: str, attributes: Attributes, *, kind: Literal["CLIENT", "INTERNAL"] = "INTERNAL"
) -> TracedSpan:
    """Start a span for an operation on a subject, such as a model or a tool."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return _NOTHING
    named = {"gen_ai.operation.name": operation} if "." not in operation else {}
    span = trace.get_tracer("turnstate", __version__).start_span(
        f"{operation} {subject}".strip(),
        kind=trace.SpanKind[kind],
        attributes=_known({**named, **attributes}),
    )
    return TracedSpan(trace, span)


@contextmanager
def traced(operation: str, attributes: Attributes) -> Iterator[TracedSpan]:
    """Run a block in a span, which records an error raised by the block."""
    span = started(operation, "", attributes)
    try:
        with span.current():
            yield span
    except Exception as error:
        span.fail(type(error).__name__)
        raise
    finally:
        span.end()


def captures_content() -> bool:
    """Return True if the user wants the text of conversations in spans."""
    return "opentelemetry.trace" in sys.modules and os.environ.get(_CAPTURE, "").lower() == "true"


def message_texts(messages: Iterable[Message]) -> str:
    """Return messages in the JSON of the semantic conventions: roles and parts."""
    return wire_text.json_text([{"role": one.role, "parts": _parts(one)} for one in messages])


def _parts(message: Message) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"type": "text", "content": message.text}] if message.text else []
    parts += [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.as_object}
        for call in message.tool_calls
    ]
    for result in message.tool_results:
        response = wire_text.result_text(result.result)
        parts.append({"type": "tool_call_response", "id": result.tool_call_id, "response": response})
    return parts


def _known(attributes: Attributes) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}
