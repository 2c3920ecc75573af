from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import apsw
import pytest

from tests.acceptance.cli_program import turnstate
from tests.acceptance.kept_sessions import make
from tests.harness.peer_tokenizer import published
from turnstate._version import __version__
from turnstate.cli.commands.doctor import SAMPLE, TIKTOKEN_FILES
from turnstate.tokens import cost

pytestmark = pytest.mark.req("P3")


def results(*arguments: str) -> dict[str, tuple[str, str]]:
    done = turnstate("doctor", *arguments, "--json")
    return {check["name"]: (check["result"], check["text"]) for check in done.objects}


def test_a_good_installation_is_told_line_by_line(url: str) -> None:
    make(url)
    code, out, err = turnstate("doctor")
    assert (code, err) == (0, "")
    assert all(line.startswith("ok       ") for line in out.splitlines())
    found = results()
    assert found["turnstate"] == ("ok", __version__)
    assert found["sqlite"] == ("ok", apsw.sqlite_lib_version())
    assert found["store"] == ("ok", url)
    assert found["durability"][1].startswith("fsync: ")
    assert found["store.journal_mode"] == ("ok", "wal")
    assert found["store.synchronous"] == ("ok", "FULL")
    assert {"store.schema", "store.bytes", "cl100k_base", "o200k_base", "git", "home"} <= found.keys()


def test_nothing_is_made_where_there_is_nothing(url: str, tmp_path: Path) -> None:
    assert results()["store"] == ("ok", f"{url}: does not exist yet; the first session creates it")
    assert results()["home"][0] == "ok"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("url")
def test_what_is_kept_only_while_the_process_lives_is_a_warning() -> None:
    done = turnstate("doctor", "--store", "memory:")
    assert done.code == 0
    assert "warning  durability           memory: everything is lost when the process ends" in done.out


@pytest.mark.usefixtures("url")
def test_a_linked_sqlite_that_can_damage_databases_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    code, out, _ = turnstate("doctor")
    assert code == 1
    assert "failed   sqlite               3.51.2 can damage databases in WAL mode; install an apsw" in out


@pytest.mark.usefixtures("url")
def test_a_tokenizer_that_cannot_be_loaded_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "loaded", {})
    monkeypatch.setitem(sys.modules, "toktok", None)
    result, text = results()["o200k_base"]
    assert result == "failed"
    assert "toktok" in text
    assert text.endswith("reinstall toktok-rs")


@pytest.mark.usefixtures("url")
def test_a_tokenizer_that_counts_otherwise_than_tiktoken_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cost.loaded, "o200k_base", len)
    assert results()["o200k_base"] == (
        "failed",
        f"counts {len(SAMPLE)} tokens where tiktoken counts 35: reinstall toktok-rs",
    )


@pytest.mark.usefixtures("url")
def test_the_counts_are_compared_with_those_of_an_installed_tiktoken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert results()["o200k_base"] == ("ok", "loads offline (exact)")
    name = hashlib.sha1(TIKTOKEN_FILES.format(name="o200k_base").encode()).hexdigest()
    (tmp_path / name).write_bytes(published("o200k_base"))
    assert results()["o200k_base"] == ("ok", "loads offline (exact); counts as tiktoken does")
    monkeypatch.setitem(cost.loaded, "o200k_base", len)
    assert results()["o200k_base"][1].startswith(f"counts {len(SAMPLE)} tokens where tiktoken counts 35")


@pytest.mark.parametrize("wrong", ["nowhere", "sqlite:///text.db"])
def test_a_store_that_cannot_be_opened_fails(url: str, tmp_path: Path, wrong: str) -> None:
    (tmp_path / "text.db").write_text("these are not the bytes of a database " * 100)
    code, out, err = turnstate("doctor", "--store", wrong)
    assert (code, err) == (1, "")
    assert f"failed   store                {wrong}: " in out
    assert url not in out


@pytest.mark.usefixtures("url")
def test_a_password_is_not_told() -> None:
    assert (
        "hunter2" not in turnstate("doctor", "--store", "postgresql://me:hunter2@host/db").out.split(": ")[0]
    )


@pytest.mark.usefixtures("url")
def test_a_missing_git_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = turnstate("doctor", "--json")
    assert done.code == 0
    assert {"name": "git", "result": "warning", "text": "not found; checkpoints need it"} in done.objects


@pytest.mark.usefixtures("url")
def test_a_home_that_is_a_file_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TURNSTATE_HOME", str(tmp_path / "file"))
    code, out, _ = turnstate("doctor")
    assert code == 1
    assert "failed   home" in out


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only to root")
@pytest.mark.usefixtures("url")
def test_a_home_that_cannot_be_written_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    monkeypatch.setenv("TURNSTATE_HOME", str(home))
    assert results()["home"][0] == "failed"
