from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import unquote

import click
import pytest
from click.testing import CliRunner

from turnstate.cli.store import opened, store_option
from turnstate.config import NotTrusted, Trust
from turnstate.config.effects import shown_url
from turnstate.config.table import default_store
from turnstate.errors import InputError
from turnstate.home import Home
from turnstate.stores.values import SessionFilter

pytestmark = pytest.mark.req("P3")


@click.command()
@store_option
def told(store: str) -> None:
    click.echo(store)


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start in an empty folder, with a home of one's own and nothing set."""
    monkeypatch.delenv("TURNSTATE_STORE", raising=False)
    monkeypatch.setenv("TURNSTATE_HOME", str(tmp_path / "my home?"))
    monkeypatch.chdir(tmp_path)


def approved(text: str) -> None:
    file = Path("turnstate.toml")
    file.write_text(text)
    Trust(Home.from_environment()).approve(file, file.read_bytes())


def resolved(*arguments: str) -> tuple[str, str]:
    done = CliRunner().invoke(told, arguments)
    if done.exception:
        raise done.exception
    return done.stdout.strip(), done.stderr


def test_the_flag_wins_over_the_environment_and_that_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolved()[0] == default_store()
    approved('store = "sqlite:///file.db"')
    assert resolved()[0] == "sqlite:///file.db"
    monkeypatch.setenv("TURNSTATE_STORE", "sqlite:///environment.db")
    assert resolved()[0] == "sqlite:///environment.db"
    assert resolved("--store", "sqlite:///flag.db")[0] == "sqlite:///flag.db"


def test_nothing_is_not_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNSTATE_STORE", "")
    Path("turnstate.toml").write_text('store = ""\nmodel = "x"')
    assert resolved()[0] == default_store()


@pytest.mark.parametrize("text", ["store = 5", "store =", "\udcff"])
def test_a_file_that_cannot_be_used_is_told(text: str) -> None:
    Path("turnstate.toml").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=r"turnstate\.toml"):
        resolved()


def test_a_folder_of_that_name_is_told() -> None:
    Path("turnstate.toml").mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        resolved()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:pass@db.example/x?sslpassword=y", "postgresql://db.example/x"),
        ("postgresql://me:pass/word@db.example/x?sslpassword=y", "postgresql://…"),
        ("sqlite:///file.db", "sqlite:///file.db"),
        ("memory:", "memory:"),
    ],
)
def test_a_store_that_a_file_names_has_to_be_approved(url: str, shown: str, tmp_path: Path) -> None:
    file = tmp_path / "turnstate.toml"
    file.write_text(f'store = "{url}"')
    with pytest.raises(NotTrusted, match=f"says store = '{shown}'") as caught:
        resolved()
    assert "pass" not in str(caught.value).replace(str(file), "")
    approved(file.read_text())
    assert resolved() == (url, "")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///a@b.db", "sqlite:///a@b.db"),  # nothing of a path is hidden
        ("sqlite:////home/me/key@harmless.db", "sqlite:////home/me/key@harmless.db"),
        ("memory:", "memory:"),
        ("builtin:/folder", "builtin:/folder"),
        ("postgresql://u:p@h/x?a=b@c", "postgresql://h/x"),
        ("postgresql://evil/x@harmless/x", "postgresql://…"),  # the host is evil
        ("x@http://u:p@h/v1", "x@http://h/v1"),
    ],
)
def test_a_url_is_shown_without_secrets_and_as_what_it_is(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_ones_own_store_is_made_with_its_folder_and_closed(tmp_path: Path) -> None:
    async def test() -> None:
        async with opened(default_store()) as store:
            assert await store.page("default", SessionFilter()) == []

    asyncio.run(test())
    assert (tmp_path / "my home?" / "turnstate.db").is_file()
    assert unquote(default_store()).endswith("/my home?/turnstate.db")


def test_a_folder_that_is_not_ones_own_is_not_made(tmp_path: Path) -> None:
    async def test() -> None:
        async with opened(f"sqlite:///{tmp_path}/missing/x.db"):
            raise AssertionError("it opened")

    with pytest.raises(InputError, match="missing"):
        asyncio.run(test())
