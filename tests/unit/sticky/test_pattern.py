"""A pattern means what it means in a shell, and a folder needs to be looked at once."""

from __future__ import annotations

import pytest

from turnstate.sticky.pattern import Glob, comparable, split


def meant(pattern: str, path: str) -> bool:
    """Follow a path through a pattern, as a walk does."""
    glob = Glob(split(pattern).parts)
    *folders, name = path.split("/")
    positions = glob.start
    for folder in folders:
        positions = glob.into(positions, folder) | glob.below(positions, folder)
    return glob.takes(positions, name)


@pytest.mark.req("K1")
@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.md", "a.md", True),
        ("*.md", "docs/a.md", False),
        ("*/*.md", "docs/a.md", True),
        ("*/*.md", "docs/deep/a.md", False),
        ("**/*.md", "a.md", True),
        ("**/*.md", "docs/deep/er/a.md", True),
        ("**", "docs/deep/a", True),
        ("**/**/*.md", "docs/a.md", True),
        ("**/docs/*.md", "x/docs/a.md", True),
        ("**/docs/*.md", "docs/docs/docs/a.md", True),
        ("**/docs/**/a.md", "docs/x/docs/y/a.md", True),
        ("**/docs/*.md", "x/a.md", False),
        ("?.md", "a.md", True),
        ("?.md", "ab.md", False),
        ("[ab].md", "b.md", True),
        ("[!ab].md", "b.md", False),
        ("[id].tsx", "[id].tsx", True),
        ("[id].tsx", "i.tsx", True),
        ("[", "[", True),
        ("[z-a]*", "[z-a]*", True),
        ("*.md", "A.MD", False),
        ("*.md", "two\nlines.md", True),
    ],
)
def test_a_pattern_means_these_files(pattern: str, path: str, expected: bool) -> None:
    assert meant(pattern, path) is expected


@pytest.mark.req("K4")
@pytest.mark.parametrize("pattern", ["*", "**", "**/*", "*env", "?env"])
def test_hidden_files_are_found_only_by_a_part_that_begins_with_a_dot(pattern: str) -> None:
    assert not meant(pattern, ".env")
    assert meant(".*", ".env")


@pytest.mark.req("K4")
def test_any_depth_does_not_lead_into_hidden_folders() -> None:
    assert not meant("**/*.md", ".git/a.md")
    assert meant("**/.github/*.md", "x/.github/a.md")


@pytest.mark.req("K4")
def test_no_pattern_goes_up_behind_a_wildcard() -> None:
    glob = Glob(split("*/../*").parts)
    assert not glob.below(glob.into(glob.start, "docs"), "x")
    assert not meant("*/../*", "docs/passwd")


def test_what_stands_before_the_first_wildcard_is_the_base() -> None:
    assert split("docs/./style//*/x.md") == split("docs/style/*/x.md")
    assert split("docs/style/*/x.md").base == ("docs", "style")
    assert split("docs/style/*/x.md").parts == ("*", "x.md")
    assert split("/etc/hosts").absolute
    assert split("/etc/hosts").parts == ()


def test_paths_that_differ_in_nothing_but_spelling_are_one() -> None:
    assert comparable("./docs//a.md/") == comparable("docs/a.md")
    assert comparable("/docs") != comparable("docs")
    assert comparable("../a") != comparable("a")
