from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Awaitable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.thoroughness import LONG
from tests.unit.memory.offload import TIME, evicted, said, session_record, take_part
from turnstate.errors import InputError, NewerFormat, StoreUnavailable
from turnstate.memory import Listed, MemoryEngine, Recollection, User
from turnstate.memory import jsonl as jsonl_module
from turnstate.memory.jsonl import MAX_OPEN_FILES, JsonlEngine, TenantFolder
from turnstate.message import Message
from turnstate.stores.values import Address

pytestmark = pytest.mark.req("F1")

U1 = User("default", "u1")
LATER = 1 << 50  # milliseconds: after anything that a test forgets now


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "memory"


def run(work: Awaitable[Any]) -> Any:
    async def inside() -> Any:
        return await work

    return asyncio.run(inside())


def file_of(folder: Path, user: str | None = "u1", tenant: str = "default") -> Path:
    return TenantFolder(folder, tenant).path(user)


def objects(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def kept(path: Path) -> list[str]:
    """Return the ids of the messages in a file, in order."""
    return [line["id"] for line in objects(path) if line["kind"] == "message"]


def test_it_is_an_engine(folder: Path) -> None:
    engine: MemoryEngine = JsonlEngine(folder)
    run(engine.close())


def test_a_session_is_lines_of_json_with_its_end_last(folder: Path) -> None:
    messages = said("one", "two")
    run(JsonlEngine(folder).ingest(session_record(messages, summary="Counting.")))
    header, *lines, last = objects(file_of(folder))
    assert (header["kind"], header["version"], header["tenant"], header["user"]) == (
        "user",
        1,
        "default",
        "u1",
    )
    assert [(line["session"], line["epoch"], line["id"]) for line in lines] == [
        ("s1", 1, "m1"),
        ("s1", 1, "m2"),
    ]
    assert lines[0]["message"] == {"id": "m1", "timestamp": TIME, "role": "user", "content": "one"}
    assert last == {
        "kind": "session",
        "session": "s1",
        "epoch": 1,
        "key": "key1",
        "reason": "reset",
        "started": 1_000,
        "ended": 2_000,
        "summary": "Counting.",
    }


@pytest.mark.req("F3")
def test_a_record_that_comes_twice_is_written_once(folder: Path) -> None:
    async def test() -> None:
        engine = JsonlEngine(folder)
        await engine.ingest(session_record(said("one", "two")))
        before = file_of(folder).read_bytes()
        await engine.ingest(session_record(said("one", "two")))
        await JsonlEngine(folder).ingest(session_record(said("one", "two")))
        assert file_of(folder).read_bytes() == before

    asyncio.run(test())


@pytest.mark.req("F3")
def test_a_record_that_is_known_is_not_even_read(folder: Path) -> None:
    class Untouchable(Listed):
        def __aiter__(self) -> Any:
            raise AssertionError("nobody needs them")

    async def test() -> None:
        engine = JsonlEngine(folder)
        await engine.ingest(session_record(said("one")))
        record = session_record([])
        await engine.ingest(type(record)(**{**_fields(record), "messages": Untouchable()}))

    asyncio.run(test())


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


@pytest.mark.req("F3")
def test_messages_that_came_with_a_cut_are_not_written_again_with_the_session(folder: Path) -> None:
    async def test() -> None:
        engine, messages = JsonlEngine(folder), said("one", "two", "three")
        await engine.archive(evicted(messages[:2]), "One, two.")
        await engine.archive(evicted(messages[:2]), "One, two.")
        await engine.ingest(session_record(messages))
        assert kept(file_of(folder)) == ["m1", "m2", "m3"]
        kinds = [line["kind"] for line in objects(file_of(folder))]
        assert kinds == ["user", "message", "message", "summary", "message", "session"]

    asyncio.run(test())


def test_one_id_in_two_sessions_is_two_messages(folder: Path) -> None:
    async def test() -> None:
        engine = JsonlEngine(folder)
        await engine.ingest(session_record(said("one")))
        await engine.ingest(session_record(said("one"), session="s2", key="key2"))
        assert kept(file_of(folder)) == ["m1", "m1"]

    asyncio.run(test())


def test_a_long_session_is_written_in_batches(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl_module, "BATCH", 10)
    messages = said(*(f"text {number}" for number in range(95)))
    run(JsonlEngine(folder).ingest(session_record(messages)))
    assert kept(file_of(folder)) == [message.id for message in messages]


def test_large_messages_are_written_in_smaller_batches(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl_module, "BATCH_BYTES", 1)
    run(JsonlEngine(folder).ingest(session_record(said("one", "two", "three"))))
    assert kept(file_of(folder)) == ["m1", "m2", "m3"]


def test_what_was_half_written_when_a_delivery_broke_off_is_completed(folder: Path) -> None:
    class Broken(Listed):
        async def __aiter__(self) -> Any:
            for number in range(jsonl_module.BATCH):
                yield Message.user("text", id=f"m{number}", timestamp=TIME)
            raise ConnectionError("the log is gone")

    async def test() -> None:
        engine, record = JsonlEngine(folder), session_record([])
        with pytest.raises(ConnectionError):
            await engine.ingest(type(record)(**{**_fields(record), "messages": Broken()}))
        assert await engine.profile(U1) == "", "it has not ended"
        whole = [Message.user("text", id=f"m{n}", timestamp=TIME) for n in range(jsonl_module.BATCH + 5)]
        await JsonlEngine(folder).ingest(session_record(whole))
        assert kept(file_of(folder)) == [message.id for message in whole]

    asyncio.run(test())


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_torn_last_line_is_set_aside_and_its_delivery_taken_again(
    folder: Path, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    run(JsonlEngine(folder).ingest(session_record(said("one", "two"))))
    path = file_of(folder)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    run(JsonlEngine(folder).ingest(session_record(said("one", "two"))))
    assert path.read_bytes() == whole
    torn = path.with_suffix(".torn")
    assert torn.read_bytes() == whole.splitlines(keepends=True)[-1][:-cut] + b"\n"
    assert "ends in an incomplete line" in caplog.text


@pytest.mark.req("F3")
def test_a_file_that_was_cut_off_anywhere_becomes_whole_again(folder: Path) -> None:
    record = session_record(said("one", "two"))
    run(JsonlEngine(folder).ingest(record))
    path = file_of(folder)
    whole = path.read_bytes()
    for size in range(0, len(whole), 1 if LONG else 3):
        path.write_bytes(whole[:size])
        run(JsonlEngine(folder).ingest(session_record(said("one", "two"))))
        assert path.read_bytes().splitlines()[1:] == whole.splitlines()[1:], size


@pytest.mark.parametrize(
    "junk",
    [
        b"\0" * 200,
        b"not json",
        b"[]",
        b'{"kind":"parrot"}',
        b"\xff\xfe",
        b'{"kind":"message","session":"s1","epoch":1,"id":"m1","message":{"role":"parrot"}}',
    ],
)
def test_a_damaged_line_costs_no_other(folder: Path, junk: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> list[Recollection]:
        await JsonlEngine(folder).ingest(session_record(said("tea please")))
        header, rest = file_of(folder).read_bytes().split(b"\n", 1)
        file_of(folder).write_bytes(header + b"\n" + junk + b"\n" + rest)
        engine = JsonlEngine(folder)
        await engine.ingest(session_record(said("more tea", prefix="n"), key="key2", session="s2"))
        return await engine.search(U1, "tea", 10)

    found = asyncio.run(test())
    assert [one.message for one in found] == ["n1", "m1"]
    assert caplog.records == [] or "1 damaged lines were skipped" in caplog.text


def test_a_file_that_a_newer_version_wrote_is_left_untouched(folder: Path) -> None:
    run(JsonlEngine(folder).ingest(session_record(said("one"))))
    path = file_of(folder)
    path.write_bytes(path.read_bytes().replace(b'"version":1', b'"version":2'))
    before, engine = path.read_bytes(), JsonlEngine(folder)
    for _ in range(2):
        with pytest.raises(NewerFormat, match="newer Turnstate"):
            run(engine.ingest(session_record(said("two"), key="key2")))
    assert path.read_bytes() == before


def test_a_full_disk_leaves_no_half_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        engine = JsonlEngine(folder)
        await engine.ingest(session_record(said("one")))
        before = file_of(folder).read_bytes()
        with monkeypatch.context() as disk:
            real = os.write
            disk.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            disk.setattr(os, "write", lambda file, data: real(file, bytes(data)[:10]))
            with pytest.raises(OSError, match="No space"):
                await engine.ingest(session_record(said("two", prefix="n"), key="key2", session="s2"))
        assert file_of(folder).read_bytes() == before
        await engine.ingest(session_record(said("two", prefix="n"), key="key2", session="s2"))
        assert kept(file_of(folder)) == ["m1", "n1"]

    asyncio.run(test())


def test_files_are_private(folder: Path) -> None:
    run(JsonlEngine(folder).ingest(session_record(said("one"))))
    assert stat.S_IMODE(file_of(folder).stat().st_mode) == 0o600
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder, file_of(folder).parent)} == {0o700}


names = st.text(max_size=30) | st.sampled_from(
    ["", ".", "..", "../x", "a/b", "A", "a", "no-user", "x" * 5_000, "\0"]
)


@given(names, names, names, names)
def test_any_two_names_are_two_files_inside_the_folder(
    first: str, second: str, tenant: str, other: str
) -> None:
    folder = Path("/memory")
    one, two = TenantFolder(folder, tenant).path(first), TenantFolder(folder, other).path(second)
    assert (str(one).lower() == str(two).lower()) == ((first, tenant) == (second, other))
    assert one != TenantFolder(folder, tenant).path(None)
    for path in (one, two):
        assert path.parent.parent == folder
        assert os.path.normpath(path) == str(path)
        assert all(len(part.encode()) < 100 and part.isascii() and part.isprintable() for part in path.parts)


def test_those_without_a_name_have_a_file_of_their_own_that_nobody_searches(folder: Path) -> None:
    async def test() -> None:
        engine = JsonlEngine(folder)
        await engine.ingest(session_record(said("tea"), user=None))
        assert kept(file_of(folder, None)) == ["m1"]
        assert objects(file_of(folder, None))[0]["user"] is None
        for name in ("no-user", "None", ""):
            assert await engine.search(User("default", name), "tea", 5) == []

    asyncio.run(test())


def test_more_users_than_are_remembered_are_read_again(folder: Path) -> None:
    async def test() -> None:
        engine = JsonlEngine(folder)
        for _ in range(2):
            for number in range(MAX_OPEN_FILES + 2):
                await engine.ingest(session_record(said("one"), user=f"user {number}"))
        assert all(kept(file_of(folder, f"user {n}")) == ["m1"] for n in range(MAX_OPEN_FILES + 2))

    asyncio.run(test())


# -- search and profile


def searched(folder: Path, query: str, k: int = 10, user: User = U1) -> list[str]:
    return [one.message for one in run(JsonlEngine(folder).search(user, query, k))]


def test_a_search_finds_the_newest_messages_with_all_the_words(folder: Path) -> None:
    texts = ("Green tea, please", "Here is green tea.", "And coffee?", "GREEN coffee and tea")
    run(JsonlEngine(folder).ingest(session_record(said(*texts))))
    assert searched(folder, "tea green") == ["m4", "m2", "m1"]
    assert searched(folder, "tea green", k=2) == ["m4", "m2"]
    assert searched(folder, "tea juice") == []
    assert searched(folder, "tea", k=0) == []


@pytest.mark.parametrize(("text", "query"), [("東京タワーに行きたい", "東京"), ("我喜欢绿茶", "绿茶")])
def test_words_are_found_in_scripts_without_spaces(folder: Path, text: str, query: str) -> None:
    run(JsonlEngine(folder).ingest(session_record(said(text, "Hello."))))
    assert searched(folder, query) == ["m1"]


def test_what_is_found_says_where_it_came_from(folder: Path) -> None:
    run(JsonlEngine(folder).ingest(session_record(said("Green tea"))))
    (found,) = run(JsonlEngine(folder).search(U1, "tea", 3))
    assert found == Recollection(text="Green tea", session="s1", message="m1", timestamp=TIME)


def test_a_search_for_no_word_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="search for"):
        searched(folder, "…")


def test_nobody_finds_what_another_said(folder: Path) -> None:
    run(JsonlEngine(folder).ingest(session_record(said("Green tea"))))
    assert searched(folder, "tea", user=User("default", "u2")) == []
    assert searched(folder, "tea", user=User("other", "u1")) == []


def test_a_profile_says_when_and_what_it_was_about_lately(folder: Path) -> None:
    async def test() -> str:
        engine, day = JsonlEngine(folder), 24 * 3600 * 1000
        await engine.ingest(session_record(said("one"), summary="Tea.", started=0, ended=day))
        await engine.ingest(
            session_record(said("two"), key="key2", session="s2", summary="", started=3 * day, ended=4 * day)
        )
        return await engine.profile(U1)

    assert asyncio.run(test()) == "Spoke 2 times between 1970-01-01 and 1970-01-05. Lately: Tea."


def test_a_profile_is_short(folder: Path) -> None:
    run(JsonlEngine(folder).ingest(session_record(said("one"), summary="tea " * 10_000)))
    assert len(run(JsonlEngine(folder).profile(U1))) < 700


def test_a_stranger_has_no_profile(folder: Path) -> None:
    assert run(JsonlEngine(folder).profile(U1)) == ""


# -- forgetting


async def two_users(engine: JsonlEngine) -> None:
    await engine.ingest(session_record(said("one", "two")))
    await engine.ingest(session_record(said("three"), key="key2", session="s2"))
    await engine.ingest(session_record(said("four"), key="key3", session="s3", user="u2"))


@pytest.mark.req("G9")
def test_a_user_is_forgotten_with_all_files(folder: Path) -> None:
    async def test() -> None:
        engine = JsonlEngine(folder)
        await two_users(engine)
        file_of(folder).with_suffix(".torn").write_text("half a line")
        assert await engine.forget(U1) == 3
        assert sorted(path.name for path in file_of(folder).parent.iterdir()) == sorted(
            ["lock", "forgotten", file_of(folder, "u2").name]
        )
        assert await engine.forget(U1) == 0
        await engine.ingest(session_record(said("anew"), key="key9", session="s9", since=LATER))
        assert await engine.profile(U1) == "Spoke once, on 1970-01-01."

    asyncio.run(test())


@pytest.mark.req("G9")
def test_a_session_is_forgotten_and_the_rest_stays(folder: Path) -> None:
    async def test() -> None:
        engine = JsonlEngine(folder)
        await two_users(engine)
        assert await engine.forget(Address("default", "s1")) == 2
        assert b"s1" not in file_of(folder).read_bytes()
        assert (kept(file_of(folder)), kept(file_of(folder, "u2"))) == (["m1"], ["m1"])
        assert await engine.forget(Address("default", "s1")) == 0
        assert await engine.forget(Address("other", "s2")) == 0

    asyncio.run(test())


@pytest.mark.req("G9")
def test_a_session_that_is_forgotten_can_be_told_again(folder: Path) -> None:
    async def test() -> None:
        engine, another = JsonlEngine(folder), JsonlEngine(folder)
        await two_users(engine)
        await another.forget(Address("default", "s1"))
        await engine.ingest(session_record(said("one", "two"), since=LATER))
        assert [line["session"] for line in objects(file_of(folder))[1:]] == ["s2", "s2", "s1", "s1", "s1"]

    asyncio.run(test())


@pytest.mark.req("G9")
def test_forgetting_a_session_takes_torn_and_damaged_lines_that_name_it(folder: Path) -> None:
    async def test() -> None:
        engine = JsonlEngine(folder)
        await two_users(engine)
        with file_of(folder).open("ab") as file:
            file.write(b'{"session":"s1", damaged\n{"kind":"message","session":"s1","ep')
        await JsonlEngine(folder).forget(Address("default", "s1"))
        everything = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
        assert b"s1" not in everything

    asyncio.run(test())


def test_a_rewrite_that_breaks_off_leaves_the_file_as_it_was(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        engine = JsonlEngine(folder)
        await two_users(engine)
        before = file_of(folder).read_bytes()
        with monkeypatch.context() as disk:
            disk.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(5, "I/O error")))
            with pytest.raises(OSError, match="I/O"):
                await engine.forget(Address("default", "s1"))
        assert file_of(folder).read_bytes() == before
        assert await engine.forget(Address("default", "s1")) == 2
        assert not file_of(folder).with_suffix(".new").exists()

    asyncio.run(test())


# -- several at once


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreUnavailable, match="choose another folder"):
        JsonlEngine(tmp_path / "file" / "memory")


def test_a_lock_that_is_never_released_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnstate.memory.jsonl.LOCK_SECONDS", 0.02)
    engine = JsonlEngine(folder)
    with TenantFolder(folder, "default").locked(), pytest.raises(StoreUnavailable, match="held the lock"):
        run(engine.ingest(session_record(said("one"))))


def test_many_at_once_write_every_message_once(folder: Path) -> None:
    messages = said(*(f"text {number}" for number in range(60)))

    async def test() -> None:
        engines = [JsonlEngine(folder) for _ in range(4)]
        work = [
            engine.archive(evicted(messages[n : n + 30], key=f"k{n}"), "") for n, engine in enumerate(engines)
        ]
        await asyncio.gather(*work, *(engine.ingest(session_record(messages)) for engine in engines))

    asyncio.run(test())
    assert sorted(kept(file_of(folder))) == sorted(message.id for message in messages)
    assert [line["kind"] for line in objects(file_of(folder))].count("session") == 1


def test_processes_that_share_a_folder_write_every_message_once(folder: Path) -> None:
    fresh = get_context("spawn")
    processes = [fresh.Process(target=take_part, args=(str(folder), number)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert sorted(kept(file_of(folder))) == sorted(f"m{n + 1}" for n in range(40))
    kinds = [line["kind"] for line in objects(file_of(folder))]
    assert (kinds.count("user"), kinds.count("session"), kinds.count("summary")) == (1, 1, 15)


def test_the_tests_of_several_at_once_would_see_a_missing_lock(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two engines that write without catching up with one another write messages twice."""
    monkeypatch.setattr("turnstate.memory.jsonl_file.MemoryFile._catch_up", lambda *_: None)
    with pytest.raises(AssertionError):
        test_many_at_once_write_every_message_once(folder)
