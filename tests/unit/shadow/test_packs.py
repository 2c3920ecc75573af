"""Packs that are damaged: what is sound in them is saved, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest

from turnstate.checkpoints import ShadowRepository
from turnstate.shadow import packs
from turnstate.shadow.contents import RepositoryState
from turnstate.shadow.git import Git

pytestmark = pytest.mark.req("O3")

Objects = dict[str, bytes]


def objects(repository: Path) -> Objects:
    """Read all objects that git can read, by name."""
    command = ["git", "--git-dir", str(repository), "cat-file", "--batch-all-objects", "--batch"]
    data = subprocess.run(command, capture_output=True, check=True).stdout
    found = Objects()
    while data:
        line, _, data = data.partition(b"\n")
        id, _, size = line.decode().split()
        found[id], data = data[: int(size)], data[int(size) + 1 :]
    return found


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shadow repository with one pack, in which some objects are differences to others."""
    folder = tmp_path_factory.mktemp("packs")
    (folder / "work").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("turnstate.shadow.packs.MAX_PACKS", 1)
        repository = ShadowRepository.open(folder / "shadow", folder / "work")
        lines = [f"line {Random(number).random()}\n" for number in range(300)]
        for number in range(6):
            lines[number * 40] = f"changed {number}\n"
            (folder / "work" / "a").write_text("".join(lines))
            repository.snapshot(f"{number}")
    command = ["git", "--git-dir", str(folder / "shadow" / "repository"), "repack", "-adfq", "--depth=50"]
    subprocess.run(command, check=True)
    return folder / "shadow"


@pytest.fixture
def shadow(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the template."""
    monkeypatch.setattr("turnstate.shadow.packs.MAX_PACKS", 1)
    return Path(shutil.copytree(template, tmp_path / "shadow"))


def only_pack(shadow: Path) -> Path:
    (pack,) = (shadow / "repository" / "objects" / "pack").glob("*.pack")
    return pack


def damaged(path: Path, data: bytes) -> None:
    path.chmod(0o600)
    path.write_bytes(data)


def test_the_scene_has_differences_of_differences(shadow: Path) -> None:
    said = subprocess.run(
        ["git", "verify-pack", "-v", only_pack(shadow).with_suffix(".idx")], capture_output=True, check=True
    )
    assert b"chain length = 2" in said.stdout


@pytest.mark.parametrize("seed", range(12))
def test_after_a_flip_every_object_that_is_left_is_sound_and_most_are_left(seed: int, shadow: Path) -> None:
    before, pack = objects(shadow / "repository"), only_pack(shadow)
    data = bytearray(pack.read_bytes())
    data[Random(seed).randrange(12, len(data))] ^= 1 + seed
    damaged(pack, bytes(data))
    checked = packs.check(Git(shadow / "repository"), shadow)
    assert checked.suspect
    assert any(f"{pack.name} is damaged" in text for text in checked.found)
    after = objects(shadow / "repository")
    assert after.items() <= before.items()
    assert packs.object_names(Git(shadow / "repository")) == set(after)
    assert list((shadow / "damaged").glob(f"{pack.name}.*"))


@pytest.mark.parametrize("how", ["trailer", "index", "no index", "index and trailer", "one byte short"])
def test_damage_that_leaves_all_objects_whole_loses_none(how: str, shadow: Path) -> None:
    before, pack = objects(shadow / "repository"), only_pack(shadow)
    index, data = pack.with_suffix(".idx"), pack.read_bytes()
    if "trailer" in how:
        damaged(pack, data[:-1] + bytes([data[-1] ^ 1]))
    if how == "one byte short":
        damaged(pack, data[:-1])
    if how == "no index":
        index.unlink()
    elif "index" in how:
        damaged(index, index.read_bytes()[:1100] + b"\xff" + index.read_bytes()[1101:])
    assert packs.check(Git(shadow / "repository"), shadow).found
    assert objects(shadow / "repository") == before
    assert packs.check(Git(shadow / "repository"), shadow).found == ()


def test_without_an_index_objects_after_a_damaged_one_are_saved_too(shadow: Path) -> None:
    before, pack = objects(shadow / "repository"), only_pack(shadow)
    index = pack.with_suffix(".idx").read_bytes()
    said = subprocess.run(["git", "show-index"], input=index, capture_output=True, check=True).stdout.decode()
    (_, first), (second, _), *_ = sorted(
        (int(line.split()[0]), line.split()[1]) for line in said.splitlines()
    )
    data = bytearray(pack.read_bytes())
    data[second - 1] ^= 1  # the checksum at the end of the first object
    damaged(pack, bytes(data))
    pack.with_suffix(".idx").unlink()
    assert packs.check(Git(shadow / "repository"), shadow).found
    del before[first]
    assert objects(shadow / "repository") == before


@pytest.mark.parametrize("place", [0, 5, -1])
def test_a_pack_that_can_be_saved_whole_takes_the_place_of_the_damaged_one(
    place: int, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a").write_text("1")
    ShadowRepository.open(tmp_path / "shadow", tmp_path / "work").snapshot("0")
    before, pack = objects(tmp_path / "shadow" / "repository"), only_pack(tmp_path / "shadow")
    sound = pack.read_bytes()
    data = bytearray(sound)
    data[place] ^= 0xFF
    damaged(pack, bytes(data))
    assert packs.check(Git(tmp_path / "shadow" / "repository"), tmp_path / "shadow").found
    assert objects(tmp_path / "shadow" / "repository") == before
    assert (only_pack(tmp_path / "shadow").name, pack.read_bytes()) == (pack.name, sound)
    (aside,) = (tmp_path / "shadow" / "damaged").glob("*.pack.*")
    assert aside.read_bytes() == bytes(data)


def test_sound_packs_are_read_once(shadow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git, gone = Git(shadow / "repository"), missing(shadow)
    assert set(packs.check(git, shadow).found) == {f"{name}.pack is missing" for name in gone}
    monkeypatch.setattr(packs, "_trailer", lambda _: pytest.fail("it was read again"))
    assert packs.check(git, shadow).found == ()


def missing(shadow: Path) -> set[str]:
    """Name the packs that somebody else, who has packed everything anew, has removed."""
    known = RepositoryState.load(shadow)
    assert known is not None
    return known.packs.keys() - {only_pack(shadow).stem}
