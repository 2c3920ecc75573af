from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import apsw
import pytest

from tests.acceptance.cli_program import turnstate
from tests.acceptance.kept_sessions import make
from turnstate.stores.sqlite.rows import checksum, entry_row

pytestmark = pytest.mark.req("P3")


def damage(path: Path, seq: int) -> str:
    db = apsw.Connection(str(path))
    ((id,),) = db.execute("UPDATE entry SET body = x'7b7d' WHERE seq = ? RETURNING id", (seq,)).fetchall()
    db.close()
    return str(UUID(bytes=id))


def test_a_sound_store_is_said_to_be_sound(url: str) -> None:
    make(url, "hello")
    assert turnstate("verify") == (0, "", f"turnstate: {url}: no damage found\n")
    code, out, err = turnstate("verify", "--repair", "--json")
    assert (code, err) == (0, f"turnstate: {url}: no damage found\n")
    assert json.loads(out) == {"store": url, "sound": True, "findings": 0, "unrepaired": 0}


def test_a_damaged_entry_is_found_and_left_alone(url: str, tmp_path: Path) -> None:
    session = make(url, "one", "two", "three")
    id = damage(tmp_path / "agent.db", 2)
    for _ in range(2):
        code, out, err = turnstate("verify")
        assert code == 1
        assert session in out
        assert id in out
        assert "--repair" in err
    *findings, result = turnstate("verify", "--json").objects
    (found,) = [one for one in findings if one["id"] == id]
    assert (result["sound"], result["findings"], result["unrepaired"]) == (
        False,
        len(findings),
        len(findings),
    )
    assert (found["session"], found["seq"], found["done"]) == (session, 2, "")
    assert found["fault"]


def test_what_is_repaired_is_told_and_not_found_again(url: str, tmp_path: Path) -> None:
    session = make(url, "one", "two", "three")
    id = damage(tmp_path / "agent.db", 2)
    done = turnstate("verify", "--repair", "--json")
    assert done.code == 1
    assert [one["id"] for one in done.objects[:-1] if one["done"]] == [id]
    assert turnstate("verify").code == 0
    assert "three" in turnstate("show", session).out


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize(
    ("wrong", "code"), [("sqlite:///missing.db", 3), ("sqlite:///text.db", 3), ("nowhere", 2)]
)
def test_a_store_that_cannot_be_opened_is_one_line(tmp_path: Path, wrong: str, code: int) -> None:
    (tmp_path / "text.db").write_text("these are not the bytes of a database " * 100)
    done = turnstate("verify", "--store", wrong)
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["text.db"]


def test_what_can_be_read_of_a_file_that_cannot_be_opened_is_saved_beside_it(
    url: str, tmp_path: Path
) -> None:
    session = make(url, "one", "two", "three")
    path = tmp_path / "agent.db"
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE branch (", b"CREATE TABLE branch )", 1))
    assert turnstate("verify").code == 3
    code, out, _ = turnstate("verify", "--repair")
    assert (code, "agent.db.salvaged" in out) == (1, True)
    assert "three" in turnstate("show", session, "--store", f"sqlite:///{path}.salvaged").out


@pytest.mark.req("B1")
def test_token_counts_that_no_text_has_are_found_and_all_others_by_deep(url: str, tmp_path: Path) -> None:
    """The counts are written with checksums that match, as a lying import would have done."""
    session = make(url, *(f"message {number}" for number in range(12)))
    db = apsw.Connection(str(tmp_path / "agent.db"))
    rows = db.execute(
        "SELECT key, session, branch, seq, id, kind, body, tokens, total, checksum FROM entry"
    ).fetchall()
    total = 0
    for key, number, *columns in rows:
        row = entry_row((number, *columns))
        tokens = 0 if row.seq == 3 else 9
        total += tokens
        sum = checksum(number, row.branch, row.seq, row.id, row.kind, tokens, row.body)
        db.execute("UPDATE entry SET tokens=?, total=?, checksum=? WHERE key=?", (tokens, total, sum, key))
    db.execute("UPDATE session SET total = ?", (total,))
    db.close()
    sampled = [one["seq"] for one in turnstate("verify", "--json").objects[:-1]]
    assert 3 in sampled
    assert len(sampled) < 12
    deep = turnstate("verify", "--deep", "--json")
    assert [one["seq"] for one in deep.objects[:-1] if "token count" in one["fault"]] == list(range(1, 13))
    assert turnstate("verify", "--deep", "--repair").code == 1
    assert turnstate("verify", "--deep").code == 0
    assert "message 11" in turnstate("show", session).out
