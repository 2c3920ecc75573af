"""Objects have the names that git gives them, and a pack of ours is a pack to git."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstate.errors import CheckpointsDamaged
from turnstate.shadow import git as git_module
from turnstate.shadow.git import BLOB, COMMIT, EXECUTABLE, FILE, FOLDER, TREE, Git, Leaf, Pack


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet", "--bare", str(tmp_path / "r"))
    return tmp_path / "r"


def git(folder: Path, *arguments: str, **options: object) -> bytes:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, **options).stdout


def stored(repository: Path, pack: Pack) -> None:
    git(repository, "index-pack", "--stdin", "--strict", stdin=pack.finished())


@given(data=st.binary())
def test_a_blob_has_the_name_that_git_gives_it(data: bytes) -> None:
    said = subprocess.run(["git", "hash-object", "--stdin"], input=data, capture_output=True, check=True)
    assert said.stdout.decode().strip() == git_module.object_id(BLOB, data)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 2047, 2048, 100_000])
def test_bytes_of_any_length_come_back_from_a_pack(size: int, repository: Path, tmp_path: Path) -> None:
    data = bytes(number % 251 for number in range(size))
    with Pack(tmp_path) as pack:
        name = pack.add(BLOB, data)
        stored(repository, pack)
    assert git(repository, "cat-file", "blob", name) == data


def test_a_tree_is_sorted_as_git_sorts_it(repository: Path, tmp_path: Path) -> None:
    with Pack(tmp_path) as pack:
        blob = pack.add(BLOB, b"x")
        inner = pack.add(TREE, git_module.tree([Leaf(b"x", EXECUTABLE, blob)]))
        lines = [Leaf(b"a", FOLDER, inner), Leaf(b"a.b", FILE, blob), Leaf(b"a-b", FILE, blob)]
        root = pack.add(TREE, git_module.tree(lines))
        made = pack.add(COMMIT, git_module.commit(root, parents=[], seconds=7, message="a\0b \udcff"))
        stored(repository, pack)
    git(repository, "update-ref", "refs/heads/x", made)
    assert git(repository, "fsck", "--strict") == b""
    assert git(repository, "ls-tree", "--name-only", made).split() == [b"a-b", b"a.b", b"a"]
    assert git(repository, "log", "-1", "--format=%at %s", made) == b"7 a b ?\n"


def test_an_object_goes_into_a_pack_once(tmp_path: Path) -> None:
    with Pack(tmp_path) as pack:
        assert pack.add(BLOB, b"x") == pack.add(BLOB, b"x")
        assert len(pack) == 1


def written(repository: Path, data: bytes) -> str:
    return git(repository, "hash-object", "-w", "--stdin", input=data).decode().strip()


def test_one_process_reads_all_objects_also_newer_ones(repository: Path, tmp_path: Path) -> None:
    first = written(repository, b"first")
    with Git(repository) as shadow:
        assert shadow.objects.read(first) == b"first"
        process = shadow.objects._process
        with Pack(tmp_path) as pack:
            second = pack.add(BLOB, b"")
            assert not shadow.objects.has(second)
            stored(repository, pack)
        assert shadow.objects.has(second)
        assert shadow.objects.read(second) == b""
        assert shadow.objects._process is process
    assert process is not None
    assert process.returncode is not None


def test_other_objects_are_read_after_one_that_git_cannot_read(repository: Path) -> None:
    damaged, sound = written(repository, b"damaged" * 1000), written(repository, b"sound")
    path = repository / "objects" / damaged[:2] / damaged[2:]
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:20])
    with Git(repository) as shadow:
        for _ in range(2):
            with pytest.raises(CheckpointsDamaged):
                shadow.objects.read(damaged)
            assert shadow.objects.read(sound) == b"sound"
        with pytest.raises(CheckpointsDamaged, match="missing"):
            shadow.objects.read("0" * 40)
        with pytest.raises(CheckpointsDamaged, match="missing"):
            shadow.objects.read("")
        assert shadow.objects.read(sound) == b"sound"
