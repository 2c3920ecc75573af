"""Jobs that check a server's JSON schemas, and arguments against them.

A schema may contain patterns that take exponential time and references that never end, so both are evaluated
here and nowhere else. Nothing is fetched: a reference has to lead to a place in the schema itself, or to one
of the published meta-schemas, which are installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from .worker import JobRefused

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_MOST_ERRORS = 100
"""Errors that are compared to report the first one by its place; hostile arguments may have millions."""


def check_schema(schema: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a schema, if it is not one; refuse one that cannot be evaluated here."""
    from jsonschema import SchemaError

    validator = _validator(schema)
    try:
        type(validator).check_schema(schema)
    except SchemaError as error:
        yield f"{error.message:.300}"
        return
    _check_references(schema)
    for _ in _errors(validator, {}):  # one that refers to itself fails with any arguments
        break


def check_arguments(schema: dict[str, Any], args: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with arguments: the first error by its place."""
    found = islice(_errors(_validator(schema), args), _MOST_ERRORS)
    first = min(found, key=lambda one: str(one.json_path), default=None)
    if first is not None:
        yield f"{first.message:.300} at {first.json_path:.300}"


def _validator(schema: dict[str, Any]) -> Any:
    """Return a validator for the draft that a schema names; the protocol's default is 2020-12."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from jsonschema_specifications import REGISTRY

    named = isinstance(schema.get("$schema"), str)
    kind = validator_for(schema, default=Draft202012Validator) if named else Draft202012Validator
    return kind(schema, registry=REGISTRY)  # a registry of its own would fetch what it does not have


def _errors(validator: Any, args: dict[str, Any]) -> Iterator[Any]:
    from referencing.exceptions import Unresolvable

    try:
        yield from validator.iter_errors(args)
    except RecursionError:
        raise JobRefused("it refers to itself without an end") from None
    except Unresolvable as error:
        raise JobRefused(_not_inside(str(error.ref))) from None


def _check_references(schema: dict[str, Any]) -> None:
    """Refuse a schema that refers to a place outside of it."""
    from jsonschema_specifications import REGISTRY
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    root = DRAFT202012.detect(schema).create_resource(schema)
    waiting = [(root, REGISTRY.resolver_with_root(root))]
    while waiting:
        resource, resolver = waiting.pop()
        contents = resource.contents if isinstance(resource.contents, dict) else {}
        for keyword in _REFERENCES:
            if isinstance(reference := contents.get(keyword), str):
                try:
                    resolver.lookup(reference)
                except Unresolvable:
                    raise JobRefused(_not_inside(reference)) from None
        waiting += [(one, resolver.in_subresource(one)) for one in resource.subresources()]


def _not_inside(reference: str) -> str:
    return f"it refers to {reference!r:.200}, which is not part of it; references are not fetched"
