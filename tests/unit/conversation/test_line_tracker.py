"""Whose lines they are: the agent's, the user's, and nobody's after a restore; conflicts before they hurt."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.conversation.conversation_fixtures import Desk, talk
from turnstate.conversation import ConversationState, FileLineTracker, fields, from_json, to_json
from turnstate.conversation.amazon_q import read, write
from turnstate.conversation.edits import ABSENT, LARGEST, EditConflict, LineTracking, look
from turnstate.conversation.line_tracker import LONGEST_HISTORY, churn, line_count
from turnstate.errors import InputError


class Agent:
    """An agent that writes files and says so, and a user who does not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        desk = Desk(folder)
        self.state = ConversationState("c", os=desk)
        self.lines = LineTracking(
            self.folder, home=folder / "home", now=desk.now, entries=lambda: self.state.log.head.seq
        )

    def create(self, name: str, text: str) -> EditConflict | None:
        conflict = self.lines.before_write(name, creates=True)
        (self.folder / name).write_text(text)
        self.lines.created(name, text)
        self.lines.reported(name)
        return conflict

    def append(self, name: str, text: str) -> EditConflict | None:
        conflict = self.lines.before_write(name, creates=False)
        path = self.folder / name
        path.write_text(path.read_text() + text)
        self.lines.inserted(name, text)
        self.lines.reported(name)
        return conflict

    def replace(self, name: str, old: str, new: str) -> EditConflict | None:
        conflict = self.lines.before_write(name, creates=False)
        path = self.folder / name
        path.write_text(path.read_text().replace(old, new, 1))
        self.lines.replaced(name, old, new)
        self.lines.reported(name)
        return conflict

    def user(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def record(self) -> None:
        """Let the conversation have what the tracker knows."""
        new = self.lines.unrecorded
        self.state.file_line_tracker = {**self.state.file_line_tracker, **new}
        self.lines.recorded(new)

    def enter_tangent(self) -> None:
        self.record()
        self.state.enter_tangent_mode()

    def leave_tangent(self) -> None:
        self.record()
        self.state.exit_tangent_mode()
        self.lines.follow(self.state.file_line_tracker)

    def known(self, name: str = "a") -> FileLineTracker:
        return self.lines.records[str(self.folder / name)]

    def history(self, name: str = "a") -> list[tuple[str, int, int]]:
        return [(one.by, one.added, one.removed) for one in self.known(name).history]


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path.resolve())


def counts(known: FileLineTracker) -> tuple[int, int]:
    return known.before_fswrite_lines, known.after_fswrite_lines


# Counting.


@pytest.mark.req("N1")
def test_the_sequence_of_writes_is_counted_as_the_original_counts_it(agent: Agent) -> None:
    agent.create("a", "1\n2\n3\n")
    assert counts(agent.known()) == (0, 3)
    agent.append("a", "4\n5\n")
    assert counts(agent.known()) == (3, 5)
    agent.append("a", "0\n")
    assert counts(agent.known()) == (5, 6)
    agent.replace("a", "2\n", "2\n2.5\n")
    assert counts(agent.known()) == (6, 7)
    assert (agent.known().lines_added_by_agent, agent.known().lines_removed_by_agent) == (1, 0)
    assert agent.known().lines_by_user == 0  # reported: what comes next is counted from 7
    assert agent.history() == [("agent", 3, 0), ("agent", 2, 0), ("agent", 1, 0), ("agent", 1, 0)]


@pytest.mark.req("N1")
def test_the_users_lines_between_two_writes_are_the_users(agent: Agent) -> None:
    agent.create("a", "1\n2\n3\n")
    agent.user("a", "1\n2\n3\nmine\nmine too\n")
    agent.lines.before_write("a", creates=False)
    assert agent.known().lines_by_user == 2
    agent.user("a", "1\n")
    agent.lines.before_write("a", creates=False)
    assert agent.known().lines_by_user == -2


@pytest.mark.req("N1")
def test_no_line_is_the_users_where_only_the_agent_wrote(agent: Agent) -> None:
    agent.create("a", "1\n2\n3\n4\n5\n")
    for text in ("1\n2\n3\n", "1\n2\n3\n4\n", "1\n2\n"):
        for reports in (False, True):  # the user may not have been told of the write before
            assert agent.known().lines_by_user == 0
            agent.lines.before_write("a", creates=True)
            assert agent.known().lines_by_user == 0
            agent.user("a", text)
            agent.lines.created("a", text)
            assert agent.known().lines_by_user == 0
            if reports:
                agent.lines.reported("a")
                assert agent.known().lines_by_user == 0
    assert [by for by, *_ in agent.history()] == ["agent"] * 7


@pytest.mark.req("N1")
@pytest.mark.parametrize(("creates", "prev"), [(True, 0), (False, 10)])
def test_the_first_write_to_a_file_of_the_users(agent: Agent, creates: bool, prev: int) -> None:
    agent.user("a", "x\n" * 10)
    assert agent.lines.before_write("a", creates=creates) is None
    known = agent.known()
    assert (known.prev_fswrite_lines, known.before_fswrite_lines, known.is_first_write) == (prev, 10, True)


@pytest.mark.req("N1")
def test_a_write_that_failed_leaves_all_but_the_count_before_it(agent: Agent) -> None:
    agent.create("a", "1\n2\n3\n")
    before = agent.known()
    agent.user("a", "1\n")
    agent.lines.before_write("a", creates=False)  # and the write fails: nothing is said after it
    assert agent.known() == msgspec.structs.replace(before, before_fswrite_lines=1, is_reported=False)
    agent.append("a", "2\n")
    assert agent.history() == [("agent", 3, 0), ("user", 0, 2), ("agent", 1, 0)]


@pytest.mark.req("N1")
@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", 0),
        (b"a", 1),
        (b"a\n", 1),
        (b"a\n\n", 2),
        (b"a\r\nb\r\n", 2),
        (b"a\rb", 1),
        ("a\u2028b\x0bc\x0cd\n".encode(), 1),
        (b"\xff\xfe\n\0", 2),
    ],
)
def test_only_newlines_end_lines(data: bytes, lines: int) -> None:
    assert line_count(data) == lines


@pytest.mark.req("N1")
@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("a\n", "a\n", (0, 0)),
        ("a\n", "a", (1, 1)),
        ("", "a\nb\n", (2, 0)),
        ("a\nb\n", "", (0, 2)),
        ("a\nb\nc\n", "a\nx\nc\n", (1, 1)),
        ("a\n" * 2_000, "a\n" * 2_001, (1, 0)),
        ("".join(f"{n}\n" for n in range(2_000)), "".join(f"{n}\n" for n in range(5, 2_010)), (10, 5)),
    ],
)
def test_the_lines_of_a_replacement_are_those_that_differ(
    old: str, new: str, changed: tuple[int, int]
) -> None:
    assert churn(old, new) == changed


@pytest.mark.req("N1")
def test_a_change_says_when_and_at_which_entry(agent: Agent) -> None:
    agent.create("a", "1\n")
    talk(agent.state, "hello", "again")
    agent.append("a", "2\n")
    first, second = agent.known().history
    assert (first.entry, second.entry) == (0, agent.state.log.head.seq)
    assert second.entry >= 4
    assert second.at == agent.state.os.now()


@pytest.mark.req("N1")
def test_the_history_of_a_file_is_bounded(agent: Agent) -> None:
    for number in range(LONGEST_HISTORY + 30):
        agent.create("a", "x\n" * number)
    assert len(agent.known().history) == LONGEST_HISTORY
    assert agent.history()[-1] == ("agent", LONGEST_HISTORY + 29, 0)


@pytest.mark.req("N1")
def test_all_spellings_of_a_path_are_one_record(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    home = agent.folder.parent / "home"
    home.mkdir()
    (agent.folder / "sub").mkdir()
    (home / "a").symlink_to(agent.folder / "a")
    os.symlink(agent.folder, agent.folder.parent / "link")
    agent.create("a", "1\n")
    for spelling in ["a", "./a", "sub/../a", agent.folder / "a", f"{agent.folder}//a", "~/a", "../link/a"]:
        monkeypatch.chdir("/")
        assert agent.lines.canonical(spelling) == str(agent.folder / "a")
        agent.lines.read(spelling)
    assert list(agent.lines.records) == [str(agent.folder / "a")]


@pytest.mark.req("N1")
def test_a_name_that_is_no_text_is_tracked_and_can_be_written(agent: Agent) -> None:
    name = os.fsdecode(b"caf\xe9 %41")
    agent.create(name, "1\n")
    agent.user(name, "1\n2\n")
    assert agent.lines.before_write(name, creates=False) is not None
    agent.record()
    (key,) = agent.state.file_line_tracker
    assert key.endswith("caf%E9%20%2541")
    assert fields(from_json(msgspec.json.decode(msgspec.json.encode(to_json(agent.state))))) == fields(
        agent.state
    )
    with pytest.raises(InputError, match="NUL"):
        agent.lines.read("a\0b")


# Conflicts.


@pytest.mark.req("N2")
@pytest.mark.parametrize("first", ["written", "read"])
def test_a_conflict_is_reported_before_the_overwrite(agent: Agent, first: str) -> None:
    if first == "written":
        agent.create("a", "1\n")
    else:
        agent.user("a", "1\n")
        agent.lines.read("a")
    agent.user("a", "1\n2\n3\n")
    conflict = agent.lines.before_write("a", creates=True)
    assert conflict == EditConflict(path=str(agent.folder / "a"), lines=2)
    assert (agent.folder / "a").read_text() == "1\n2\n3\n"


@pytest.mark.req("N2")
def test_it_is_reported_until_the_agent_reads_or_writes(agent: Agent) -> None:
    agent.create("a", "1\n")
    agent.user("a", "2\n")
    assert agent.lines.before_write("a", creates=False)
    assert agent.lines.before_write("a", creates=False)
    agent.lines.read("a")
    assert agent.lines.before_write("a", creates=False) is None
    assert agent.history() == [("agent", 1, 0), ("user", 0, 0)]
    agent.user("a", "3\n4\n")
    assert agent.append("a", "5\n") == EditConflict(path=str(agent.folder / "a"), lines=1)
    assert agent.append("a", "6\n") is None
    assert agent.history()[2:] == [("user", 1, 0), ("agent", 1, 0), ("agent", 1, 0)]


@pytest.mark.req("N2")
def test_what_was_deleted_is_a_conflict(agent: Agent) -> None:
    agent.create("a", "1\n2\n")
    (agent.folder / "a").unlink()
    conflict = agent.lines.before_write("a", creates=False)
    assert conflict == EditConflict(path=str(agent.folder / "a"), lines=-2, gone=True)


@pytest.mark.req("N2")
def test_what_became_a_folder_is_a_conflict(agent: Agent) -> None:
    agent.create("a", "1\n")
    (agent.folder / "a").unlink()
    (agent.folder / "a").mkdir()
    conflict = agent.lines.before_write("a", creates=False)
    assert conflict == EditConflict(path=str(agent.folder / "a"), lines=-1)


@pytest.mark.req("N2")
@pytest.mark.parametrize("how", ["deleted by the agent", "not there when it was read"])
def test_what_the_user_made_where_the_agent_knows_of_nothing_is_a_conflict(agent: Agent, how: str) -> None:
    if how == "deleted by the agent":
        agent.create("a", "1\n")
        agent.lines.before_write("a", creates=False)
        (agent.folder / "a").unlink()
        agent.lines.after_write("a", added=0, removed=1)
    else:
        agent.lines.read("a")
    assert agent.lines.before_write("a", creates=True) is None
    agent.user("a", "mine\n")
    assert agent.lines.before_write("a", creates=True) == EditConflict(path=str(agent.folder / "a"), lines=1)


@pytest.mark.req("N2")
def test_a_file_that_was_only_touched_is_no_conflict(agent: Agent) -> None:
    agent.create("a", "1\n")
    os.utime(agent.folder / "a", (0, 0))
    (agent.folder / "a").chmod(0o600)
    agent.user("a", "1\n")
    assert agent.lines.before_write("a", creates=False) is None


@pytest.mark.req("N2")
def test_a_file_that_the_agent_never_saw_is_no_conflict(agent: Agent) -> None:
    agent.user("a", "1\n")
    assert agent.lines.before_write("a", creates=True) is None


# Where the conversation goes elsewhere.


@pytest.mark.req("N3")
def test_leaving_a_tangent_makes_no_lines_the_users(agent: Agent) -> None:
    agent.create("a", "1\n")
    agent.enter_tangent()
    talk(agent.state, "aside")
    agent.append("a", "2\n3\n")
    agent.leave_tangent()
    assert agent.lines.before_write("a", creates=False) is None
    assert agent.known().lines_by_user == 0
    assert agent.history() == [("agent", 1, 0), ("restore", 2, 0)]


@pytest.mark.req("N3", "N2")
@pytest.mark.parametrize("when", ["before it", "in it", "after it"])
def test_what_the_user_changes_around_a_tangent_is_still_told(agent: Agent, when: str) -> None:
    agent.create("a", "1\n")
    agent.create("b", "1\n")
    if when == "before it":
        agent.user("a", "mine\n")
    agent.enter_tangent()
    agent.append("b", "2\n")
    if when == "in it":
        agent.user("a", "mine\n")
    agent.leave_tangent()
    if when == "after it":
        agent.user("a", "mine\n")
    assert agent.lines.before_write("b", creates=False) is None
    assert agent.lines.before_write("a", creates=False) is not None


@pytest.mark.req("N3")
def test_files_that_were_put_back_are_nobodys_edit(agent: Agent) -> None:
    agent.create("a", "1\n")
    agent.create("b", "1\n")
    agent.append("a", "2\n")
    agent.user("a", "1\n")  # by a restore
    agent.user("b", "mine\n")
    known = agent.lines.records
    assert agent.lines.follow(known, [agent.folder / "a"]) == (str(agent.folder / "a"),)
    assert agent.lines.before_write("a", creates=False) is None
    assert agent.known().lines_by_user == 0
    assert agent.history()[-1] == ("restore", 0, 1)
    assert agent.lines.before_write("b", creates=False) is not None


@pytest.mark.req("N3")
def test_records_of_a_tangent_go_with_it(agent: Agent) -> None:
    agent.enter_tangent()
    agent.create("a", "1\n")
    agent.leave_tangent()
    assert agent.state.file_line_tracker == {}
    assert agent.lines.records == {}


# Kept.


@pytest.mark.req("N1")
def test_records_survive_json(agent: Agent) -> None:
    agent.create("a", "1\n")
    agent.user("a", "2\n")
    agent.append("a", "3\n")
    records = agent.lines.records
    agent.record()
    again = from_json(msgspec.json.decode(msgspec.json.encode(to_json(agent.state))))
    assert again.file_line_tracker == records
    lines = LineTracking(agent.folder, again.file_line_tracker)
    assert lines.before_write("a", creates=False) is None


@pytest.mark.req("N1")
def test_what_the_log_does_not_have_yet_is_told_until_it_is_recorded(agent: Agent) -> None:
    agent.create("a", "1\n")
    agent.create("b", "1\n")
    new = agent.lines.unrecorded
    assert sorted(new) == [str(agent.folder / name) for name in "ab"]
    agent.append("b", "2\n")  # while the records are written
    agent.lines.recorded(new)
    assert agent.lines.unrecorded == {str(agent.folder / "b"): agent.known("b")}
    agent.lines.recorded(agent.lines.unrecorded)
    assert agent.lines.unrecorded == {}
    assert sorted(agent.lines.records) == sorted(new)


@pytest.mark.req("N1")
def test_the_original_gets_its_six_keys_and_no_other(agent: Agent) -> None:
    agent.create("a", "1\n")
    agent.record()
    written: Any = write(agent.state)
    (tracker,) = written["file_line_tracker"].values()
    assert tracker == {
        "prev_fswrite_lines": 1,
        "before_fswrite_lines": 0,
        "after_fswrite_lines": 1,
        "lines_added_by_agent": 1,
        "lines_removed_by_agent": 0,
        "is_first_write": False,
    }
    again = read(written)
    assert again.file_line_tracker == {
        str(agent.folder / "a"): FileLineTracker(
            prev_fswrite_lines=1, after_fswrite_lines=1, lines_added_by_agent=1, is_first_write=False
        )
    }


# What is no file.


@pytest.mark.req("N2")
def test_nothing_hangs_on_a_pipe_or_a_device(agent: Agent) -> None:
    os.mkfifo(agent.folder / "pipe")
    os.symlink("/dev/zero", agent.folder / "device")
    os.symlink("loop", agent.folder / "loop")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(agent.folder / "socket"))
    for name in ("pipe", "device", "loop", "socket", "."):
        agent.lines.read(name)
        assert agent.lines.before_write(name, creates=False) is None
        agent.lines.after_write(name, added=1)
    (agent.folder / "pipe").unlink()
    assert agent.lines.before_write("pipe", creates=False) == EditConflict(
        path=str(agent.folder / "pipe"), lines=0, gone=True
    )


@pytest.mark.req("N2")
def test_a_huge_file_is_known_by_its_size_and_not_read(agent: Agent) -> None:
    huge = agent.folder / "huge"
    with huge.open("wb") as file:
        file.truncate(10 * 1024**3)
    agent.lines.read("huge")
    assert agent.lines.before_write("huge", creates=False) is None
    with huge.open("ab") as file:
        file.write(b"x")
    assert agent.lines.before_write("huge", creates=False) is not None


@pytest.mark.parametrize(
    ("path", "digest"),
    [
        (b"/nowhere/at/all", ABSENT),
        (b"/dev/null/x", ABSENT),
        (b"/dev/null", "other"),
        (b"/proc/self/mem", "unreadable"),
        (b"/" + b"x" * 5_000, "unreadable"),
    ],
)
def test_a_look_never_fails(path: bytes, digest: str) -> None:
    assert look(path) == (digest, 0)


def test_a_file_at_the_limit_is_looked_into(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(LARGEST)
    assert len(look(bytes(path)).digest) == 64
    with path.open("ab") as file:
        file.write(b"\n")
    assert look(bytes(path)) == (f"large:{LARGEST + 1}", 0)
