"""The face of sticky context: add, remove, show, gather, and come back after a restore."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.unit.sticky.sticky_scenes import COUNTER, Scene, entries_of, names
from turnstate.errors import DuplicatePath, InputError, NothingMatches, UnknownName
from turnstate.sticky import ContextManager, Shown, Workspace


@pytest.mark.req("K1")
def test_files_folders_and_patterns_are_shown_with_their_owner_and_files(scene: Scene) -> None:
    for name in ("README.md", "docs/a.md", "docs/b.md", "src/x/y.py"):
        scene.write(name)
    scene.context.for_agent("coder", ["README.md"])
    scene.context.add("docs")
    scene.context.add("src/**/*.py", owner="agent")
    assert scene.context.show() == (
        Shown("README.md", "agent", ("README.md",)),
        Shown("docs", "session", ("docs/a.md", "docs/b.md")),
        Shown("src/**/*.py", "agent", ("src/x/y.py",)),
    )


@pytest.mark.req("K1")
def test_adding_says_which_files_it_brings(scene: Scene) -> None:
    scene.write("docs/a.md")
    assert scene.context.add(Path("docs")).files == ("docs/a.md",)


@pytest.mark.req("K1")
@pytest.mark.parametrize("path", ["gone.md", "*.rst", "empty", "~/gone.md", "x" * 300])
def test_a_path_that_matches_nothing_is_refused_unless_forced(scene: Scene, path: str) -> None:
    (scene.root / "empty").mkdir()
    with pytest.raises(NothingMatches, match="force it"):
        scene.context.add(path)
    assert scene.context.paths == ()
    shown = scene.context.add(path, force=True)
    assert shown.files == ()
    assert [one.path for one in scene.context.paths] == [path]


@pytest.mark.req("K1")
def test_a_path_that_was_forced_is_sent_once_its_file_exists(scene: Scene) -> None:
    assert scene.gather("later.md").text is None
    scene.write("later.md", "here")
    assert entries_of(scene.gather().text) == [("later.md", "here")]


@pytest.mark.req("K1")
def test_a_duplicate_is_refused_even_by_force_and_changes_nothing(scene: Scene) -> None:
    scene.write("a.md")
    scene.context.add("a.md", owner="agent")
    with pytest.raises(DuplicatePath):
        scene.context.add("./a.md", force=True)
    assert [one.owner for one in scene.context.paths] == ["agent"]


@pytest.mark.req("K1")
def test_a_removed_path_is_sent_no_more(scene: Scene) -> None:
    scene.write("a.md")
    scene.write("b.md")
    assert names(scene.gather("a.md", "b.md")) == ["a.md", "b.md"]
    scene.context.remove("a.md")
    assert names(scene.gather()) == ["b.md"]
    with pytest.raises(UnknownName):
        scene.context.remove("a.md")


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_what_no_file_can_be_called_is_refused_even_by_force(scene: Scene, path: str) -> None:
    with pytest.raises(InputError, match="is not a path"):
        scene.context.add(path, force=True)


def test_a_restored_path_that_no_file_can_be_called_costs_nothing(scene: Scene) -> None:
    scene.write("a.md")
    context = ContextManager.from_json({"paths": ["", "a\0b", "a.md"]}, scene.workspace)
    gathered = context.gather(COUNTER)
    assert names(gathered) == ["a.md"]
    assert [one.why for one in gathered.dropped] == ["this is not a valid file name"] * 2


@pytest.mark.req("K4")
def test_a_name_that_is_not_utf_8_is_added_by_a_pattern(scene: Scene) -> None:
    name = os.fsdecode(b"caf\xe9.md")
    scene.write(name)
    with pytest.raises(InputError, match=r"caf\\xe9\.md.*pattern"):
        scene.context.add(name)
    assert scene.context.add("caf?.md").files == (r"caf\xe9.md",)
    assert json.dumps(scene.context.to_json(), ensure_ascii=False).encode()


@pytest.mark.req("K1")
def test_the_limit_follows_the_model(scene: Scene) -> None:
    assert scene.context.max_context_files_size == 150_000
    scene.write("a.md", "word " * 100)
    assert names(scene.gather("a.md")) == ["a.md"]
    scene.context.for_window(100)
    assert scene.context.max_context_files_size == 75
    assert names(scene.gather()) == []
    scene.context.for_window(1_000)
    assert names(scene.gather()) == ["a.md"]


@pytest.mark.req("K2")
def test_the_length_is_known_until_something_changes(scene: Scene) -> None:
    context = scene.context
    assert context.context_message_length is None
    scene.write("a.md", "灯台")
    gathered = scene.gather("a.md")
    assert context.context_message_length == gathered.length == len(str(gathered.text))
    changes = [
        lambda: context.add("b.md", force=True),
        lambda: context.remove("b.md"),
        lambda: context.for_window(1_000),
        lambda: context.for_agent("other"),
        lambda: context.attach(scene.workspace),
    ]
    for change in changes:
        context.gather(COUNTER)
        assert context.context_message_length is not None
        change()
        assert context.context_message_length is None


@pytest.mark.req("K2")
def test_the_length_follows_a_file_that_changed(scene: Scene) -> None:
    path = scene.write("a.md", "one")
    length = scene.gather("a.md").length
    path.write_text("three")
    assert scene.gather().length == length + 2
    assert scene.context.context_message_length == length + 2


@pytest.mark.req("K1")
def test_what_was_restored_is_attached_again_and_gives_the_same_bytes(scene: Scene) -> None:
    scene.write("a.md", "text")
    scene.write("b.md", "more")
    scene.context.for_agent("coder", ["b.md"])
    before = scene.gather("a.md")
    restored = ContextManager.from_json(json.loads(json.dumps(scene.context.to_json())))
    assert restored.show() == (Shown("b.md", "agent"), Shown("a.md", "session"))
    with pytest.raises(InputError, match="attach"):
        restored.gather(COUNTER)
    with pytest.raises(NothingMatches, match="attach"):
        restored.add("c.md")
    restored.attach(scene.workspace)
    assert restored.gather(COUNTER) == before


def test_an_earlier_state_can_be_set_again(scene: Scene) -> None:
    scene.write("a.md")
    before = scene.context.state
    scene.context.add("a.md")
    scene.context.state = before
    assert scene.context.show() == ()


@pytest.mark.req("K2")
def test_the_same_files_give_the_same_bytes_wherever_they_lie(tmp_path: Path) -> None:
    texts = []
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        scene = Scene(tmp_path / place)
        for name in ("b.md", "a.md") if place == "one" else ("a.md", "b.md"):
            scene.write(name, f"text of {name}")
        texts.append(scene.gather("*.md").text)
    assert texts[0] == texts[1]


def test_nothing_is_read_from_the_process(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.write("a.md", folder=scene.home)
    scene.write("b.md")
    expected = scene.gather("~/a.md", "b.md")
    monkeypatch.chdir("/")
    monkeypatch.setenv("HOME", "/nowhere")
    other = ContextManager(Workspace(root=scene.root, home=scene.home), state=scene.context.state)
    assert other.gather(COUNTER) == expected
