"""Configuration files of a hostile workspace: whatever they are, reading them is quick, bounded and typed."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from turnstate.config.source import MAX_BYTES, ConfigFile, checked, read, read_folder
from turnstate.errors import InputError

AGENTS = (".turnstate", "agents")


def in_agents(folder: Path) -> Path:
    place = folder.joinpath(*AGENTS)
    place.mkdir(parents=True, exist_ok=True)
    return place / "keeper.toml"


def of(text: str | bytes) -> ConfigFile:
    content = text if isinstance(text, bytes) else text.encode()
    return ConfigFile(path=Path("/x/a.toml"), name="a.toml", content=content, place="workspace")


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(os.path.relpath(path))


def make_huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 30)  # a hole: 1 GB that takes no space


def make_link(path: Path) -> None:
    target = path.parent / "elsewhere.txt"
    target.write_text('prompt = "from elsewhere"')
    path.symlink_to(target)


def make_loop(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.req("L4")
def test_what_is_not_a_small_regular_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, make in enumerate((make_pipe, make_socket, make_huge, make_link, make_loop, Path.mkdir)):
        folder = tmp_path / str(number)
        path = in_agents(folder)
        monkeypatch.chdir(folder)
        make(path)
        with pytest.raises(InputError, match=r"keeper\.toml: (cannot be read|has more than)"):
            read(folder, *AGENTS, "keeper.toml", place="workspace")
        with pytest.raises(InputError):
            read(folder / AGENTS[0] / AGENTS[1], "keeper.toml", place="workspace")


@pytest.mark.req("L4")
def test_a_link_on_the_way_is_refused_in_a_workspace_and_followed_at_home(tmp_path: Path) -> None:
    real = tmp_path / "real"
    in_agents(real).write_text("x = 1")
    for name, target in (("whole", real / ".turnstate"), ("part", real / ".turnstate" / "agents")):
        folder = tmp_path / name
        link = folder / ".turnstate" if name == "whole" else folder / ".turnstate" / "agents"
        link.parent.mkdir(parents=True)
        link.symlink_to(target)
        with pytest.raises(InputError, match="a link, or goes through one"):
            read(folder, *AGENTS, "keeper.toml", place="workspace")
        assert read_folder(folder, *AGENTS, place="workspace") == []
        assert read_folder(folder, *AGENTS, place="user") == ["keeper"]
        found = read(folder, *AGENTS, "keeper.toml", place="user")
        assert found
        assert found.document() == {"x": 1}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_marked(tmp_path: Path) -> None:
    path = in_agents(tmp_path)
    path.write_text("x = 1")
    os.chown(path, 12_345, 12_345)
    found = read(tmp_path, *AGENTS, "keeper.toml", place="workspace")
    assert found
    assert found.foreign
    os.chown(path, 0, 0)
    found = read(tmp_path, *AGENTS, "keeper.toml", place="workspace")
    assert found
    assert not found.foreign


def test_the_longest_file_is_read_and_one_byte_more_is_not(tmp_path: Path) -> None:
    path = tmp_path / "turnstate.toml"
    path.write_bytes(b"#" * MAX_BYTES)
    found = read(tmp_path, "turnstate.toml", place="workspace")
    assert found
    assert found.document() == {}
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(InputError, match="more than 262,144 bytes"):
        read(tmp_path, "turnstate.toml", place="workspace")


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    assert read(tmp_path, "turnstate.toml", place="workspace") is None
    assert read(tmp_path / "gone", *AGENTS, "x.toml", place="workspace") is None
    assert read_folder(tmp_path, *AGENTS, place="workspace") == []


@pytest.mark.req("L4")
def test_hostile_contents_are_refused_quickly() -> None:
    third = MAX_BYTES // 3
    cases = {
        b"\xff\xfe": "not TOML",
        b"a = 1\na = 2": "not TOML",  # a key twice
        b"[a]\n[a]": "not TOML",
        b'a = "\\u0000"': "NUL",
        b'"a\\u0000" = 1': "NUL",
        b'a = [["\\u0000"]]': "NUL",
        b"a = \x00": "not TOML",
        b"a = " + b"[" * third: "nested too deeply",
        b"a = " + b"{b=" * third: "nested too deeply",
        b"a." * third + b"a = 1": "more than 32 parts",
        b"x = 1\n[" + b'"a" . ' * 1_000 + b"a]": "line 2 has more than 32 parts",
        b"a = " + b"9" * MAX_BYTES: "not TOML",
    }
    for content, reason in cases.items():
        with pytest.raises(InputError, match=reason):
            of(content[:MAX_BYTES]).document()


def test_a_prompt_with_many_dots_is_no_deep_key() -> None:
    text = "Wait... Then go. " * 500 + "see 10.0.0.1, 10.0.0.2 and docs.example.com/a.b.c"
    assert of(f'prompt = "{text}"').document() == {"prompt": text}


class Inner(Struct):
    name: str = ""


class Outer(Struct):
    inner: Inner | None = None
    many: tuple[Inner, ...] = ()
    named: dict[str, Inner] = {}
    count: int = 0


def test_unknown_keys_are_found_at_any_depth_with_a_suggestion() -> None:
    cases: list[tuple[dict[str, object], str]] = [
        ({"cuont": 1}, "x.toml: there is no setting 'cuont'; did you mean count?"),
        ({"inner": {"nam": ""}}, "x.toml: there is no setting 'inner.nam'; did you mean name?"),
        ({"many": [{}, {"zzz": 1}]}, "x.toml: there is no setting 'many.zzz'; the keys are name"),
        ({"named": {"a": {"nme": 1}}}, "x.toml: there is no setting 'named.a.nme'; did you mean name?"),
        ({"count": "x"}, "x.toml: count: expected `int`, got `str`"),
    ]
    for document, text in cases:
        with pytest.raises(InputError) as caught:
            checked(document, Outer, where="x.toml")
        assert str(caught.value) == text
    assert checked({"inner": {"name": "a"}, "count": 2}, Outer, where="x") == Outer(inner=Inner("a"), count=2)


@settings(max_examples=150)
@given(st.binary(max_size=300) | st.text(alphabet="a.=\"[]{}\n\\u0,#'x1", max_size=80).map(str.encode))
def test_any_bytes_are_a_document_or_an_input_error(content: bytes) -> None:
    try:
        document = of(content).document()
        checked(document, Outer, where="x.toml")
    except InputError:
        pass
