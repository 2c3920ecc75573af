"""The commands on a store that cannot be used: one line, soon, and nothing is made there."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.acceptance import server_troubles as troubles
from tests.acceptance.cli_program import Outcome, command_line, environment, turnstate
from tests.acceptance.server_troubles import ARCHIVE, SECRET, Trouble

pytestmark = pytest.mark.req("P3", "G3")

PATIENCE = 120  # seconds; a busy machine is slow, not broken
STORE_CANNOT_BE_USED = 3
Scene = Callable[[Path], AbstractContextManager[Trouble]]

SCENES: dict[str, Scene] = {
    f"{what.__name__}-{scheme}": partial(what, scheme)
    for what in (troubles.connection_refused, troubles.server_is_silent, troubles.the_driver_is_missing)
    for scheme in ("postgresql", "redis", "redis+cluster")
} | {
    what.__name__: what
    for what in (
        troubles.postgres_refuses_the_password,
        troubles.postgres_has_no_such_database,
        troubles.postgres_is_set_read_only,
        troubles.postgres_is_a_replica,
        troubles.postgres_has_a_newer_schema,
        troubles.valkey_refuses_the_password,
        troubles.valkey_has_no_such_database,
        troubles.valkey_is_a_replica,
        troubles.valkey_has_a_newer_layout,
        troubles.valkey_is_no_cluster,
        troubles.a_cluster_is_no_single_server,
        troubles.a_file_has_a_newer_schema,
    )
}


def at_once(folder: Path, trouble: Trouble, *commands: list[object]) -> list[Outcome]:
    """Run real programs beside each other, and wait for all of them."""
    variables = environment(TURNSTATE_HOME=str(folder / "home"), **dict(trouble.variables))
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    running = [
        subprocess.Popen(
            command_line(*command, "--store", trouble.url), env=variables, cwd=folder, text=True, **pipes
        )
        for command in commands
    ]
    said = [process.communicate(timeout=PATIENCE) for process in running]
    return [Outcome(process.returncode, *texts) for process, texts in zip(running, said, strict=True)]


@pytest.mark.parametrize("name", SCENES)
def test_a_store_that_cannot_be_used_is_told_in_one_line_and_left_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNSTATE_HOME", str(tmp_path / "home"))
    (archive := tmp_path / "archive.jsonl").write_text(ARCHIVE)
    with SCENES[name](tmp_path) as trouble:
        before = trouble.kept()
        if trouble.variables:  # those of a new process
            ((code, out, err),) = at_once(tmp_path, trouble, ["import", archive])
        else:
            code, out, err = turnstate("import", archive, "--store", trouble.url)
        assert trouble.kept() == before
    assert (code, out) == (STORE_CANNOT_BE_USED, "")
    assert err.startswith("turnstate: ")
    assert err.count("\n") == 1
    assert trouble.said in err
    assert SECRET not in err


@pytest.mark.parametrize("name", ["connection_refused-redis", "postgres_refuses_the_password"])
def test_doctor_tells_it_among_its_other_checks(name: str, tmp_path: Path) -> None:
    with SCENES[name](tmp_path) as trouble:
        before = trouble.kept()
        ((code, out, err),) = at_once(tmp_path, trouble, ["doctor"])
        assert trouble.kept() == before
    (failed,) = (line for line in out.splitlines() if line.startswith("failed"))
    assert (code, err) == (1, "")
    assert trouble.said in failed
    assert SECRET not in out


def test_every_command_on_sessions_says_the_same_of_a_server_that_is_not_there(tmp_path: Path) -> None:
    (archive := tmp_path / "archive.jsonl").write_text(ARCHIVE)
    exported = tmp_path / "exported.jsonl"
    with troubles.connection_refused("postgresql", tmp_path) as trouble:
        outcomes = at_once(
            tmp_path,
            trouble,
            ["sessions", "list"],
            ["import", archive],
            ["export", "--all", "-o", exported],
            ["show", "a"],
            ["search", "word"],
            ["verify"],
            ["worker", "--once"],
            ["sessions", "rename", "a", "b"],
            ["sessions", "erase", "--user", "anna", "--yes"],
        )
    assert {(code, out) for code, out, _ in outcomes} == {(STORE_CANNOT_BE_USED, "")}
    assert len({err for _, _, err in outcomes}) == 1
    assert not exported.exists()
