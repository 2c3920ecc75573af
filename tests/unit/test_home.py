"""The installation's folder and key: found where they belong, made once, private, and never guessed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstate.errors import HomeUnusable
from turnstate.home import Home, HomeDocument, SigningKey


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TURNSTATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))


def test_the_usual_place_is_under_the_users_home(tmp_path: Path) -> None:
    assert Home.from_environment().path == tmp_path / "user" / ".local" / "share" / "turnstate"


def test_the_data_folder_of_the_desktop_counts_if_it_is_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert Home.from_environment().path == tmp_path / "data" / "turnstate"
    monkeypatch.setenv("XDG_DATA_HOME", "data")
    assert Home.from_environment().path == tmp_path / "user" / ".local" / "share" / "turnstate"


def test_its_own_variable_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("TURNSTATE_HOME", "~/own")
    assert Home.from_environment().path == tmp_path / "user" / "own"
    monkeypatch.setenv("TURNSTATE_HOME", "")
    assert Home.from_environment().path == tmp_path / "data" / "turnstate"
    monkeypatch.setenv("TURNSTATE_HOME", "here")
    assert Home.from_environment().path == Path.cwd() / "here"


@pytest.mark.req("H4")
def test_the_key_is_made_once_and_private(tmp_path: Path) -> None:
    home = Home(tmp_path / "a" / "home")
    before = os.umask(0)
    try:
        signature = home.key().sign("test", b"x")
    finally:
        os.umask(before)
    assert Home(tmp_path / "a" / "home").key().sign("test", b"x") == signature
    assert (home.path.stat().st_mode & 0o777, (home.path / "key").stat().st_mode & 0o777) == (0o700, 0o600)
    assert (home.path / "key").stat().st_size == 32
    assert os.listdir(home.path) == ["key"]


@pytest.mark.req("H4")
def test_two_homes_have_two_keys(tmp_path: Path) -> None:
    assert Home(tmp_path / "a").key().sign("test") != Home(tmp_path / "b").key().sign("test")


def test_asking_for_a_known_key_makes_nothing(tmp_path: Path) -> None:
    assert Home(tmp_path / "home").known_key() is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("secret", [b"", b"short", b"x" * 33])
def test_a_key_of_the_wrong_size_is_refused_and_left(tmp_path: Path, secret: bytes) -> None:
    (tmp_path / "key").write_bytes(secret)
    with pytest.raises(HomeUnusable, match="32 bytes"):
        Home(tmp_path).key()
    assert (tmp_path / "key").read_bytes() == secret


def test_a_key_that_others_could_read_is_made_private(tmp_path: Path) -> None:
    Home(tmp_path).key()
    (tmp_path / "key").chmod(0o644)
    Home(tmp_path).key()
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_home_that_cannot_be_a_folder_is_told(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("in the way")
    for act in (Home(tmp_path / place).make, Home(tmp_path / place).key):
        with pytest.raises(HomeUnusable, match="TURNSTATE_HOME"):
            act()


def test_no_home_at_all_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.raises(HomeUnusable, match="TURNSTATE_HOME"):
        Home.from_environment()


def test_a_key_is_never_shown() -> None:
    assert "secret" not in repr(SigningKey(b"secret" * 6)) + str(SigningKey(b"secret" * 6))


@given(st.lists(st.binary(max_size=4), max_size=4), st.lists(st.binary(max_size=4), max_size=4))
def test_a_signature_tells_pieces_and_purposes_apart(one: list[bytes], other: list[bytes]) -> None:
    key = SigningKey(b"k" * 32)
    assert (key.sign("a", *one) == key.sign("a", *other)) == (one == other)
    assert key.sign("a", *one) != key.sign("b", *one)
    assert key.signed(key.sign("a", *one), "a", *one)
    assert not key.signed("é", "a", *one)


@pytest.mark.parametrize("mode", [0o602, 0o620, 0o666, 0o622, 0o660])
def test_a_key_that_others_can_write_is_refused_with_advice(tmp_path: Path, mode: int) -> None:
    home = Home(tmp_path / "home")
    home.key()
    key = home.path / "key"
    key.chmod(mode)
    for use in (home.key, home.known_key):
        with pytest.raises(HomeUnusable, match=f"can be written by other users .* chmod 600 {key}"):
            use()
    assert key.stat().st_mode & 0o777 == mode  # a silent chmod would make a planted key one's own
    key.chmod(0o600)
    assert home.known_key() is not None


def test_a_key_in_a_folder_of_everyone_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.key()
    home.path.chmod(0o777)
    with pytest.raises(HomeUnusable, match=r"the folder .* can be written by everyone"):
        home.known_key()
    for mode in (0o1777, 0o770, 0o700):  # with the sticky bit, nobody else can replace the key
        home.path.chmod(mode)
        assert home.known_key() is not None


def test_a_document_that_others_can_write_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    kept = HomeDocument(home, "trusted.json", dict[str, int])
    kept.change(lambda _: {"a": 1})
    (home.path / "trusted.json").chmod(0o666)
    with pytest.raises(HomeUnusable, match="can be written by other users"):
        kept.read()
