"""A rival role that shadows what our SQL calls, and a table that records what ran, and as which role.

PostgreSQL looks functions, operators, types and relations up along the search path of the connection. A
role that may create objects in a schema on that path can define ones that fit better than the built-in
ones, and they run with the rights of whoever calls them. `Rival` takes every name of a function or an
operator that our SQL files mention, and defines it in ``public`` for all types that it could be called
with; what it defines gives the right answer, so that nothing but its own note tells that it ran.
"""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import product
from typing import Any

from tests.harness.postgres_server import execute, local_server

DATABASE, KEEPER, RIVAL = "contested", "keeper", "rival"
PATHS = ('"$user", public', "public, pg_catalog")
"""The search path as servers have it, and one that puts the rival before the built-in names."""

TABLES = ("session", "branch", "entry", "word", "damaged", "key", "outbox")
TYPES = ("text", "int8", "int4", "bool", "bytea", "tsvector", "tsquery", "oid", "name")
"""What our columns and arguments are made of."""

MOST_ARGUMENTS = 3
_POLYMORPHIC = {
    "anyarray": ("text[]", "int8[]", "bytea[]"),
    "anycompatiblearray": ("text[]", "int8[]", "bytea[]"),
    "anyelement": TYPES,
    "anycompatible": TYPES,
    "anynonarray": TYPES,
    "any": TYPES,
}
_CALLED = re.compile(r"([a-z_]\w*)\s*\(")
_OPERATOR = re.compile(r"[-+*/<>=~!@#%^&|?]+")


class Rival:
    """Defines objects that shadow our SQL in a database of the local server, and returns what ran."""

    def __init__(self) -> None:
        self._server = local_server()
        execute(
            f"DROP DATABASE IF EXISTS {DATABASE}",
            f"DROP ROLE IF EXISTS {KEEPER}",
            f"DROP ROLE IF EXISTS {RIVAL}",
            f"CREATE ROLE {KEEPER} LOGIN",
            f"CREATE ROLE {RIVAL} LOGIN",
            f"CREATE DATABASE {DATABASE}",
            f"GRANT CREATE ON DATABASE {DATABASE} TO {KEEPER}",
            url=self._server.url(),
        )
        execute("GRANT CREATE ON SCHEMA public TO public", url=self._server.url(DATABASE))
        self.planted = self._plant()

    def url(self, **settings: str) -> str:
        """Return the URL of a store in the contested database, for the role that owns it."""
        return self._server.url(DATABASE, user=KEEPER, **settings)

    def heard(self) -> list[str]:
        """Return which objects of the rival ran as another role."""
        rows = execute(
            "SELECT DISTINCT what, who FROM public.heard ORDER BY 1", url=self._server.url(DATABASE)
        )
        return [f"{what} as {who}" for what, who in rows if who != RIVAL]

    def empty(self, schema: str) -> None:
        """Delete all rows of a store in the contested database."""
        names = ", ".join(f"{schema}.{name}" for name in TABLES)
        execute(
            f"TRUNCATE {names} RESTART IDENTITY",
            f"UPDATE {schema}.indexed SET through = 0",
            url=self._server.url(DATABASE),
        )

    def forget(self) -> None:
        """Delete the records."""
        execute("TRUNCATE public.heard", url=self._server.url(DATABASE))

    def remove(self) -> None:
        """Drop the database and the roles."""
        execute(
            f"DROP DATABASE {DATABASE} WITH (FORCE)",
            f"DROP ROLE {KEEPER}",
            f"DROP ROLE {RIVAL}",
            url=self._server.url(),
        )

    def _plant(self) -> int:
        url = self._server.url(DATABASE, user=RIVAL)
        statements = [*_TABLE, *_functions(url), *_operators(url), *_types()]
        execute(*statements, url=url)
        return len(statements)


_TABLE = (
    "CREATE TABLE public.heard (what pg_catalog.text, who pg_catalog.text)",
    "GRANT INSERT ON public.heard TO public",
    (
        "CREATE FUNCTION public.hear(what pg_catalog.text) RETURNS boolean LANGUAGE plpgsql "
        "SET search_path = pg_catalog AS $$ BEGIN "
        "INSERT INTO public.heard VALUES (what, current_user); RETURN true; END $$"
    ),
)


def our_sql() -> str:
    """Return all SQL of the store, without comments and string literals."""
    package = files("turnstate.stores.postgres")
    places = [*package.iterdir(), *package.joinpath("migrations").iterdir()]
    found = [place.read_text("utf-8") for place in places if place.name.endswith(".sql")]
    return re.sub(r"--.*|'[^']*'", "", "\n".join(found))


def _functions(url: str) -> list[str]:
    """Define every built-in function that our SQL names, for all types that it could get."""
    names = sorted(set(_CALLED.findall(our_sql().lower())))
    found = execute(
        "SELECT proname::text, proretset, prorettype::regtype::text, "
        "proargtypes::oid[]::regtype[]::text[] FROM pg_proc "
        "WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = ANY ("
        f"ARRAY[{', '.join(repr(name) for name in names)}]) ORDER BY 1, 4",
        url=url,
    )
    made = dict[str, str]()
    for name, is_set, result, arguments in found:
        for given in _concrete(arguments):
            signature = f'public."{name}"({", ".join(given)})'
            made.setdefault(signature, _function(signature, name, _result(result, given), len(given), is_set))
    return list(made.values())


def _function(signature: str, name: str, result: str, count: int, is_set: bool) -> str:
    call = f'pg_catalog."{name}"({", ".join(f"${place}" for place in range(1, count + 1))})'
    if result == "void":
        answer = f"PERFORM {call}"
    else:
        answer = f"RETURN QUERY SELECT {call}" if is_set else f"RETURN {call}"
    returns = f"SETOF {result}" if is_set else result
    return _spy(signature, returns, answer)


def _operators(url: str) -> list[str]:
    """Define every operator that our SQL uses, for all types of its operands."""
    names = sorted({name for name in _OPERATOR.findall(our_sql()) if name != ":="})
    found = execute(
        "SELECT oprname::text, oprleft::regtype::text, oprright::regtype::text, oprresult::regtype::text "
        "FROM pg_operator WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprkind = 'b' "
        f"AND oprname = ANY (ARRAY[{', '.join(repr(name) for name in names)}]) ORDER BY 1, 2, 3",
        url=url,
    )
    made = dict[str, list[str]]()
    for name, left, right, result in found:
        for given in _concrete([left, right]):
            function = f'public."op {name}"({", ".join(given)})'
            made.setdefault(
                function,
                [
                    _spy(function, _result(result, given), f"RETURN $1 OPERATOR(pg_catalog.{name}) $2"),
                    (
                        f'CREATE OPERATOR public.{name} (FUNCTION = public."op {name}", '
                        f"LEFTARG = {given[0]}, RIGHTARG = {given[1]})"
                    ),
                ],
            )
    return [statement for pair in made.values() for statement in pair]


def _types() -> list[str]:
    """Define types and a collation under names that our SQL uses, and casts to built-in types."""
    domains = [
        f"CREATE DOMAIN public.{name} AS pg_catalog.{name} CHECK (public.hear('domain {name}'))"
        for name in ("text", "bytea", "tsvector", "tsquery")
    ]
    return [
        *domains,
        "CREATE TYPE public.parcel AS (what pg_catalog.text)",
        (
            "CREATE FUNCTION public.opened(public.parcel) RETURNS pg_catalog.int8 LANGUAGE sql "
            "AS $$ SELECT public.hear('cast')::pg_catalog.int4::pg_catalog.int8 $$"
        ),
        "CREATE CAST (public.parcel AS pg_catalog.int8) WITH FUNCTION public.opened AS IMPLICIT",
        "CREATE TABLE public.pg_class AS SELECT * FROM pg_catalog.pg_class",
        "CREATE TABLE public.pg_namespace AS SELECT * FROM pg_catalog.pg_namespace",
        "GRANT SELECT ON public.pg_class, public.pg_namespace TO public",
    ]


def _spy(signature: str, returns: str, answer: str) -> str:
    what = signature.replace("'", "").replace('"', "")
    return (
        f"CREATE FUNCTION {signature} RETURNS {returns} LANGUAGE plpgsql SET search_path = pg_catalog "
        f"AS $$ BEGIN PERFORM public.hear('{what}'); {answer}; END $$"
    )


def _concrete(arguments: list[str]) -> list[tuple[str, ...]]:
    """Return the concrete types for polymorphic ones; types that we do not use are left out."""
    if not len(arguments) <= MOST_ARGUMENTS:
        return []
    names = [_POLYMORPHIC.get(one.strip('"'), (one,)) for one in arguments]
    return [given for given in product(*names) if all(_known(one) for one in given)]


def _known(type_name: str) -> bool:
    return type_name in {*TYPES, "text[]", "int8[]", "bytea[]", *_LONG_NAMES}


_LONG_NAMES = {"bigint": "int8", "integer": "int4", "boolean": "bool"}


def _result(result: str, given: tuple[str, ...]) -> str:
    """Return the type of a result, which may depend on the arguments."""
    if result in ("anyelement", "anycompatible"):
        return given[0].removesuffix("[]")
    return given[0] if result in ("anyarray", "anycompatiblearray") else result


async def leave_temporaries(connection: Any) -> None:
    """Leave temporary tables and types with our names on a connection, as a pooler's other client may."""
    for name in ("pg_class", "pg_namespace", "session", "entry", "branch", "key", "outbox", "migration"):
        await connection.execute(f"CREATE TEMP TABLE {name} (number int)")
    await connection.execute("CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (VALUE IS NULL)")
