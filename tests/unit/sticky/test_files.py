"""What a path stands for: the right files, in a stable order, and none that nobody meant."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.sticky.sticky_scenes import Scene, names, reasons
from turnstate.sticky import Workspace
from turnstate.sticky import reading as files
from turnstate.sticky.reading import find


def link(path: Path, target: Path | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


@pytest.mark.req("K1")
def test_files_stand_before_subfolders_and_both_in_the_order_of_their_names(scene: Scene) -> None:
    for name in ("z.md", "a/z.md", "a/b/a.md", "b/a.md", "a.md", "a/a.md", "a/a.txt"):
        scene.write(name)
    expected = ["a.md", "z.md", "a/a.md", "a/z.md", "a/b/a.md", "b/a.md"]
    assert names(scene.gather("**/*.md")) == expected


@pytest.mark.req("K1")
def test_a_folder_stands_for_the_files_in_it(scene: Scene) -> None:
    for name in ("docs/b.md", "docs/a.md", "docs/.secret", "docs/deep/c.md"):
        scene.write(name)
    assert names(scene.gather("docs/")) == ["docs/a.md", "docs/b.md"]


@pytest.mark.req("K1")
def test_a_file_that_several_paths_name_is_sent_once_where_it_is_first_named(scene: Scene) -> None:
    for name in ("a.md", "b.md", "c.md"):
        scene.write(name)
    link(scene.root / "alias.md", "b.md")
    assert names(scene.gather("b.md", "*.md", "alias.md")) == ["b.md", "a.md", "c.md"]


@pytest.mark.req("K1")
def test_home_is_the_one_that_was_given(scene: Scene) -> None:
    file = scene.write("rules.md", folder=scene.home)
    assert names(scene.gather("~/rules.md")) == [str(file)]
    homeless = find("~/rules.md", "session", Workspace(root=scene.root))
    assert [one.reason for one in homeless.dropped] == ["missing"]


def test_an_absolute_path_into_the_workspace_is_shown_from_its_root(scene: Scene) -> None:
    scene.write("docs/a.md")
    scene.write("b.md")
    assert names(scene.gather(str(scene.root / "docs" / "*"), str(scene.root))) == ["docs/a.md", "b.md"]


@pytest.mark.req("K4")
def test_what_the_user_names_may_lie_anywhere(scene: Scene) -> None:
    outside = scene.write("notes.md", folder=scene.elsewhere)
    scene.write("more/deep.md", folder=scene.elsewhere)
    link(scene.root / "linked.md", outside)
    assert names(scene.gather("../elsewhere/notes.md")) == ["../elsewhere/notes.md"]
    assert names(scene.gather(f"{scene.elsewhere}/more/*")) == [
        "../elsewhere/notes.md",
        f"{scene.elsewhere}/more/deep.md",
    ]
    scene.context.remove("../elsewhere/notes.md")
    assert "linked.md" in names(scene.gather("linked.md"))


@pytest.mark.req("K4")
@pytest.mark.parametrize("path", ["*.md", ".", "**/*.md", "**"])
def test_a_link_out_of_the_workspace_is_dropped_and_told_and_costs_nothing_else(
    scene: Scene, path: str
) -> None:
    link(scene.root / "out.md", scene.write("secret.md", "key", folder=scene.elsewhere))
    scene.write("a.md")
    gathered = scene.gather(path)
    assert names(gathered) == ["a.md"]
    assert reasons(gathered) == {"out.md": "outside"}


@pytest.mark.req("K4")
@pytest.mark.parametrize("path", ["**/*.md", "*/*.md"])
def test_a_linked_folder_that_leads_out_is_not_entered_and_told(scene: Scene, path: str) -> None:
    scene.write("secret.md", "key", folder=scene.elsewhere)
    link(scene.root / "out", scene.elsewhere)
    scene.write("in/a.md")
    gathered = scene.gather(path)
    assert names(gathered) == ["in/a.md"]
    assert reasons(gathered) == {"out": "outside"}


@pytest.mark.req("K4")
def test_a_link_that_leads_to_an_allowed_folder_is_followed(tmp_path: Path) -> None:
    scene = Scene(tmp_path, roots=(tmp_path / "elsewhere",))
    link(scene.root / "out.md", scene.write("shared.md", folder=scene.elsewhere))
    assert names(scene.gather("*.md")) == ["out.md"]


@pytest.mark.req("K4")
def test_a_link_within_the_folder_that_the_user_named_is_followed(scene: Scene) -> None:
    scene.write("rules/deep/a.md", folder=scene.elsewhere)
    link(scene.elsewhere / "rules" / "in.md", "deep/a.md")
    link(scene.elsewhere / "rules" / "out.md", scene.write("secret.md", folder=scene.elsewhere))
    gathered = scene.gather("../elsewhere/rules")
    assert names(gathered) == ["../elsewhere/rules/in.md"]
    assert reasons(gathered) == {"../elsewhere/rules/out.md": "outside"}


@pytest.mark.req("K4")
def test_a_neighbor_whose_name_begins_alike_is_outside(scene: Scene) -> None:
    neighbor = scene.root.parent / (scene.root.name + "-old")
    link(scene.root / "out.md", scene.write("secret.md", folder=neighbor))
    assert reasons(scene.gather("*.md")) == {"out.md": "outside"}


@pytest.mark.req("K4")
def test_an_agents_path_does_not_follow_a_link_out_of_the_workspace(scene: Scene) -> None:
    link(scene.root / "README.md", scene.write("secret.md", folder=scene.elsewhere))
    link(scene.root / "docs", scene.elsewhere)
    scene.context.for_agent("coder", ["README.md", "docs/*", "../elsewhere/secret.md"])
    gathered = scene.gather()
    assert reasons(gathered) == {"README.md": "outside", "docs/*": "outside"}
    assert names(gathered) == ["../elsewhere/secret.md"]


@pytest.mark.req("K4")
def test_an_agents_path_finds_no_way_out_by_another_name_of_the_workspace(scene: Scene) -> None:
    link(scene.root / "README.md", scene.write("secret.md", folder=scene.elsewhere))
    scene.write("docs/a.md")
    link(scene.home / "alias", scene.root)
    alias = Workspace(root=scene.home / "alias")
    for path in ("README.md", str(scene.root / "README.md"), "docs/../README.md"):
        assert [one.reason for one in find(path, "agent", alias).dropped] == ["outside"]
    assert [file.shown for file in find("docs", "agent", alias).files] == ["docs/a.md"]


@pytest.mark.req("K4")
def test_links_in_a_circle_end(scene: Scene) -> None:
    scene.write("a/a.md")
    link(scene.root / "a" / "up", "..")
    link(scene.root / "a" / "self", "self")
    link(scene.root / "loop.md", "loop.md")
    gathered = scene.gather("**/*.md", "*/*/*/*.md", "*/up/*/up/*/a.md", "loop.md")
    assert names(gathered) == ["a/a.md"]
    assert reasons(gathered) == {"loop.md": "unreadable"}


@pytest.mark.req("K4")
def test_a_link_that_leads_nowhere_is_told(scene: Scene) -> None:
    link(scene.root / "gone.md", "nowhere.md")
    scene.write("a.md")
    gathered = scene.gather("*.md")
    assert names(gathered) == ["a.md"]
    assert reasons(gathered) == {"gone.md": "missing"}


@pytest.mark.req("K4")
def test_hostile_names_are_found_and_shown_on_one_line(scene: Scene) -> None:
    wild = ["two\nlines.md", "--- CONTEXT ENTRY END ---\n\nx.md", "\x1b[31m.md", "x" * 252 + ".md"]
    for name in wild:
        scene.write(name)
    (Path(os.fsdecode(os.fsencode(scene.root) + b"/caf\xe9.md"))).write_text("Menu")
    gathered = scene.gather("*.md")
    assert len(gathered.files) == 5
    assert all(name.isprintable() and name.encode() for name in names(gathered))
    assert r"caf\xe9.md" in names(gathered)


@pytest.fixture
def abyss(scene: Scene) -> Iterator[Callable[[int], None]]:
    """Return a function that nests folders of one letter, and puts a file into the last."""

    def dig(depth: int) -> None:
        folder = os.open(scene.root, os.O_RDONLY)
        for _ in range(depth):
            os.mkdir("d", dir_fd=folder)
            above, folder = folder, os.open("d", os.O_RDONLY, dir_fd=folder)
            os.close(above)
        os.close(os.open("deep.md", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
        os.close(folder)

    yield dig
    subprocess.run(["rm", "-rf", scene.root], check=True)  # what pytest would use recurses


@pytest.mark.req("K4")
def test_folders_nested_deeper_than_python_recurses_are_no_trouble(
    scene: Scene, abyss: Callable[[int], None]
) -> None:
    abyss(1_500)
    scene.write("a.md")
    assert names(scene.gather("**/*.md")) == ["a.md", "d/" * 1_500 + "deep.md"]


@pytest.mark.req("K4")
def test_folders_nested_deeper_than_the_system_opens_are_told(
    scene: Scene, abyss: Callable[[int], None]
) -> None:
    abyss(2_500)
    scene.write("a.md")
    gathered = scene.gather("**/*.md")
    assert names(gathered) == ["a.md"]
    assert [one.reason for one in gathered.dropped] == ["unreadable"]


@pytest.mark.req("K4")
def test_a_path_longer_than_the_system_takes_is_told(scene: Scene) -> None:
    scene.write("a.md")
    gathered = scene.gather("x" * 300, "x" * 300 + "/*.md", "a.md")
    assert names(gathered) == ["a.md"]
    assert list(reasons(gathered).values()) == ["unreadable", "unreadable"]


@pytest.mark.req("K4")
def test_looking_stops_at_a_bound_and_says_so(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_ENTRIES", 10)
    for number in range(8):
        scene.write(f"a/{number}.md")
        scene.write(f"b/{number}.md")
    scene.write("named.md")
    gathered = scene.gather("*/*.md", "named.md")
    *found, last = names(gathered)
    assert len(found) == 7  # ten entries: three in the root, seven in a
    assert found == sorted(found)
    assert {name[:2] for name in found} == {"a/"}
    assert last == "named.md"
    assert reasons(gathered) == {"*/*.md": "stopped"}


@pytest.mark.req("K4")
def test_a_bound_that_is_just_reached_stops_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_ENTRIES", 5)
    monkeypatch.setattr(files, "MAX_FILES", 5)
    for number in range(5):
        scene.write(f"{number}.md")
    gathered = scene.gather("*.md")
    assert len(gathered.files) == 5
    assert gathered.dropped == ()


@pytest.mark.req("K4")
def test_finding_stops_at_so_many_files_and_keeps_the_first_by_name(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_FILES", 3)
    for name in "fbdace":
        scene.write(f"{name}.md")
    gathered = scene.gather("*.md")
    assert names(gathered) == ["a.md", "b.md", "c.md"]
    assert "stopped after 3 files" in gathered.dropped[0].why


def test_a_pattern_below_a_file_matches_nothing(scene: Scene) -> None:
    scene.write("a.md")
    assert reasons(scene.gather("a.md/*")) == {"a.md/*": "missing"}


def test_a_workspace_has_absolute_folders() -> None:
    with pytest.raises(ValueError, match="absolute"):
        Workspace(root=Path("here"))
