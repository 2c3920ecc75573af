"""A damaged Redis store: what can be read is exported, and imported into an empty database."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli_program import turnstate
from tests.acceptance.kept_sessions import opened
from tests.harness.valkey_server import Valkey, empty_server
from turnstate import Message
from turnstate.stores.redis.layout import bucket_of, index_key, session_key
from turnstate.stores.values import Address

pytestmark = pytest.mark.req("P3", "G6")

SOUND = ("sound", "also sound")
Damage = Callable[[Valkey, Address], object]


def key(at: Address, kind: bytes) -> bytes:
    return session_key(at, kind)


def cut_a_body(server: Valkey, at: Address) -> None:
    body = server.ask("HGET", key(at, b"body"), "1:2")
    server.ask("HSET", key(at, b"body"), "1:2", body[:-3])


def lose_an_entry(server: Valkey, at: Address) -> None:
    for kind in (b"entry", b"body"):
        server.ask("HDEL", key(at, kind), "1:3")


def leave_all_lists(server: Valkey, at: Address) -> None:
    index = index_key(bucket_of(at))
    own = [one for one in server.ask("ZRANGE", index, 0, -1) if one.endswith(at.session.encode())]
    assert len(own) > 4
    server.ask("ZREM", index, *own)


MENDED: dict[str, Damage] = {
    "not listed": leave_all_lists,
    "not found by kind": lambda server, at: server.ask("DEL", key(at, b"own")),
    "not found by id": lambda server, at: server.ask("DEL", key(at, b"id")),
    "wrong words": lambda server, at: server.ask("HSET", key(at, b"word"), "1:2", "?"),
    "wrong count": lambda server, at: server.ask("HSET", key(at, b"row"), "total", "1"),
}
"""Damage that the archive does not contain, since the import builds all of this anew."""

IN_PART: dict[str, Damage] = {"a cut body": cut_a_body, "a lost entry": lose_an_entry}
LEFT_OUT: dict[str, Damage] = {
    "an unreadable row": lambda server, at: server.ask("HSET", key(at, b"row"), "epoch", "?"),
    "a lost branch": lambda server, at: server.ask("HDEL", key(at, b"branch"), "2"),
    "an absurd head": lambda server, at: server.ask("HSET", key(at, b"row"), "seq", 2**40),
}
DAMAGE = MENDED | IN_PART | LEFT_OUT


def fill(url: str) -> None:
    """Write sessions with two branches each, and a value of the tenant."""
    with opened(url) as sessions:
        for id in (*SOUND, *DAMAGE):
            session = sessions.create(id=id, user="anna", system="You are kept.", tags=["x"])
            for n in range(3):
                session.append(Message.user(f"question {n}"), Message.assistant(f"answer {n}"))
            session.fork(name="aside")
            session.append(Message.user("another question"))
        sessions.tenant_state.set("settings", "color", "blue")
        assert [one.session for one in sessions.search("another", limit=1)]


def archived(url: str) -> dict[str, list[Any]]:
    """Export everything, and return the lines of each session."""
    found = dict[str, list[Any]]()
    for line in turnstate("export", "--all", "--store", url).objects[1:-1]:
        if line["type"] == "session":
            found[line["id"]] = lines = list[Any]()
        lines.append(line)
    return found


def test_what_can_be_read_of_a_damaged_server_moves_to_an_empty_database(tmp_path: Path) -> None:
    server, file = empty_server(), tmp_path / "all.jsonl"
    url, empty = f"redis+unix://{server.socket}", f"redis+unix://{server.socket}?db=1"
    fill(url)
    whole = archived(url)
    assert turnstate("verify", "--store", url).code == 0
    for id, damage in DAMAGE.items():
        damage(server, Address("default", id))

    checked = turnstate("verify", "--store", url, "--json")
    assert checked.code == 1
    assert {one["session"] for one in checked.objects[:-1]} == set(DAMAGE)

    code, out, err = turnstate("verify", "--store", url, "--repair")
    assert (code, out) == (3, "")
    assert "run `turnstate export --all` for each tenant, which says what it leaves out" in err
    assert "then `turnstate import` into an empty database" in err
    again = turnstate("verify", "--store", url, "--json")
    assert sorted(again.out.splitlines()) == sorted(checked.out.splitlines())

    code, _, err = turnstate("export", "--all", "--store", url, "-o", file)
    told = err.splitlines()
    assert code == 1
    for id in LEFT_OUT:
        assert [line for line in told if line.startswith(f"turnstate: session {id} is left out: ")], err
    for id in IN_PART:
        assert [line for line in told if f"of session {id} is damaged" in line], err
    assert len(told) == len(LEFT_OUT) + len(IN_PART)

    assert turnstate("import", file, "--store", empty).code == 0
    code, out, err = turnstate("verify", "--store", empty)
    assert (code, out) == (0, "")
    assert "no damage found" in err
    moved = archived(empty)
    assert moved.keys() == whole.keys() - LEFT_OUT.keys()
    for id, lines in moved.items():
        wrong = [place for place, line in enumerate(lines) if line != whole[id][place]]
        assert len(wrong) == (id in IN_PART), id
        assert all(json.dumps(lines[place]).count("was damaged when it was exported") for place in wrong)
    with opened(empty) as sessions:
        color = sessions.tenant_state.get("settings", "color")
        assert color is not None
        assert color.value == "blue"
        assert len({hit.session for hit in sessions.search("another", limit=100)}) == len(moved) - 1
