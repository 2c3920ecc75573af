"""Sessions move from any store to any other by `turnstate export` and `import`, and stay the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from tests.acceptance.cli_program import turnstate
from tests.acceptance.moved_sessions import everything_in, make_pasts
from tests.harness.postgres_server import fresh_url
from tests.harness.thoroughness import LONG
from tests.harness.valkey_server import Cluster, Valkey, fresh_cluster, fresh_server

pytestmark = pytest.mark.req("P3", "G3", "G6")

CARRIED = {"message", "prompt", "cut", "mask", "summary", "answer"}
KINDS = ("sqlite", "postgres", "valkey", "cluster")
PAIRS = list(product(KINDS, KINDS)) if LONG else list(zip(KINDS, (*KINDS[1:], KINDS[0]), strict=True))
"""All pairs, or a ring in which each store is once the source and once the destination."""


@contextmanager
def source(kind: str, folder: Path) -> Iterator[str]:
    match kind:
        case "sqlite":
            yield f"sqlite:///{folder}/here.db"
        case "postgres":
            with fresh_url() as url:
                yield url
        case "valkey":
            yield fresh_server()
        case "cluster":
            yield fresh_cluster()


@contextmanager
def destination(kind: str, folder: Path) -> Iterator[str]:
    """Yield an empty store that is not the source of its kind."""
    match kind:
        case "sqlite":
            yield f"sqlite:///{folder}/there.db"
        case "postgres":
            with fresh_url() as url:
                yield url
        case "valkey":
            (server := _second_server()).ask("FLUSHALL")
            yield server.url
        case "cluster":
            (cluster := _second_cluster()).empty()
            yield cluster.url


@cache
def _second_server() -> Valkey:
    return Valkey()


@cache
def _second_cluster() -> Cluster:
    return Cluster()


@pytest.mark.parametrize(("of", "to"), PAIRS)
def test_sessions_move_between_any_two_stores_as_they_are(of: str, to: str, tmp_path: Path) -> None:
    archive = tmp_path / "moved.jsonl"
    with source(of, tmp_path) as here, destination(to, tmp_path) as there:
        make_pasts(here)
        assert turnstate("export", "--all", "--store", here, "-o", archive) == (0, "", "")
        lines = archive.read_bytes().splitlines()
        assert {json.loads(line).get("kind") for line in lines} >= CARRIED
        code, out, err = turnstate("import", archive, "--store", there)
        assert (code, out) == (0, "")
        assert err.startswith("turnstate: 4 sessions imported (")
        assert turnstate("export", "--all", "--store", there).out == archive.read_text()
        assert turnstate("verify", "--store", there).code == 0
        assert everything_in(there) == everything_in(here)
