"""The SQL of the PostgreSQL store names everything in full: nothing depends on a connection's search path.

Each statement is read as text. What the grammar itself gives (``coalesce``, ``bigint``) cannot be shadowed
by another role's objects; all else must have a schema before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from turnstate.stores.postgres.queries import functions, queries

pytestmark = pytest.mark.req("G3")

SCHEMA = "kept"
GRAMMAR_CALLS = {
    "all",
    "and",
    "any",
    "array",
    "as",
    "coalesce",
    "least",
    "select",
    "conflict",
    "exists",
    "from",
    "greatest",
    "in",
    "join",
    "over",
}
GRAMMAR_CALLS |= {"if", "in", "join", "lateral", "on", "or", "return", "values", "where"}
GRAMMAR_TYPES = {"bigint", "boolean", "int"}
HIDDEN_OPERATORS = re.compile(r"\b(between|like|ilike|similar|nullif|is (?:not )?distinct|using|case \w)\b")
_TEXT = re.compile(r"'[^']*'")
_QUALIFIED_OPERATOR = re.compile(r"operator\(pg_catalog\.[^)]+\)")
_ASSIGNED = re.compile(r'((?:\bset|,)\s+"?\w+"?) = ')
_CALL = re.compile(r'([\w."]+)\s?\(')
_TABLE = re.compile(r'\b(?:from|join|insert into|update)\s+("?\w+"?(?:\."?\w+"?)?)')
_CAST = re.compile(r'::([\w."]+)')
_CREATED = re.compile(r"CREATE OR REPLACE FUNCTION .*?\$\$.*?\$\$;", re.DOTALL)
_PINNED = re.compile(r"\sSET search_path = pg_catalog, pg_temp AS \$\$")


def faults(sql: str, *, pinned: bool = False) -> Iterator[str]:
    """Find what would be looked up along the search path; in a function that sets it, operators may be."""
    text = _TEXT.sub("''", sql.lower())
    named = set(re.findall(r"(?:with|,)\s+(\w+) as \(", text)) | set(re.findall(r"\bas (\w+) \(", text))
    text = re.sub(
        r"\bas \w+ \(", "as (", re.sub(r"(insert into [\w.\"]+(?: as \w+)?) \(", r"\1 columns(", text)
    )
    calls = [
        name for name in _CALL.findall(text.replace("columns(", "")) if name not in GRAMMAR_CALLS | named
    ]
    yield from (f"call {name}" for name in calls if not _has_schema(name) and not name.startswith("operator"))
    for name in _TABLE.findall(text):
        if not _has_schema(name) and name not in named | {"lateral", "rows", "set", "skip"}:
            yield f"table {name}"
    if pinned:
        return
    yield from (f"type {name}" for name in _CAST.findall(text) if not _is_type(name))
    yield from (f"operator of {found[1]}" for found in HIDDEN_OPERATORS.finditer(text))
    bare = _ASSIGNED.sub(r"\1 ", _ASSIGNED.sub(r"\1 ", _QUALIFIED_OPERATOR.sub("", text)))
    bare = re.sub(r"::|\*(?= |\)|$)|\(\*\)|-\d", "", bare)
    yield from (f"operator {found}" for found in re.findall(r"[-+*/<>=~!@#%^&|]+", bare))


def _has_schema(name: str) -> bool:
    return name.startswith(("pg_catalog.", f'"{SCHEMA}".'))


def _is_type(name: str) -> bool:
    return name in GRAMMAR_TYPES or name.startswith("pg_catalog.")


@pytest.mark.parametrize("name", sorted(queries(SCHEMA)))
def test_a_query_names_everything_in_full(name: str) -> None:
    sql = queries(SCHEMA)[name].sql
    if name in ("pin_names", "make_migration"):
        return
    assert list(faults(sql)) == []


def test_every_function_sets_its_path_and_names_what_it_calls() -> None:
    sql = re.sub(r"--.*", "", functions(SCHEMA))
    made = _CREATED.findall(sql)
    assert len(made) == sql.count("FUNCTION") >= 6
    assert "".join(_CREATED.sub("", sql).split()) == ""
    for one in made:
        assert _PINNED.search(one), one[:80]
        body = " ".join(one.split("$$")[1].split())
        assert list(faults(body, pinned=True)) == []


@pytest.mark.parametrize(
    ("sql", "fault"),
    [
        ('SELECT max(seq) FROM "kept".entry', "call max"),
        ("SELECT seq FROM entry", "table entry"),
        ('SELECT e.seq FROM "kept".session s JOIN entry e ON true', "table entry"),
        ('DELETE FROM "kept".entry WHERE seq = $1', "operator ="),
        ('SELECT seq FROM "kept".entry WHERE tags @> $1', "operator @>"),
        ('SELECT seq FROM "kept".entry WHERE seq BETWEEN 1 AND 2', "operator of between"),
        ("SELECT $1::text", "type text"),
        ('UPDATE "kept".session SET fence = fence + 1', "operator +"),
        ("SELECT public.max(1)", "call public.max"),
    ],
)
def test_a_name_without_its_schema_is_found(sql: str, fault: str) -> None:
    assert list(faults(sql)) == [fault]
