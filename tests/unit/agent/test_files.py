"""An agent that works on files: conflicts before a write, checkpoints, and restores of files and words."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from turnstate import Budget, Message, Session, SessionManager, ToolCallRequest, ToolCallResult, formats
from turnstate.agent import Agent, AgentEvent, CheckpointFailed, CheckpointSaved, Ended, ToolFinished
from turnstate.agent.tracked_files import FEW
from turnstate.checkpoints import CheckpointManager
from turnstate.entry import Checkpoint, FileLines
from turnstate.errors import InputError
from turnstate.home import Home
from turnstate.testing import ScriptedModel
from turnstate.tools import FILE_TOOLS, Approvals, Rule, ToolManager, run_command

BUDGET = Budget(50_000, output=1_000)


def write(path: str, content: str) -> ToolCallRequest:
    return ToolCallRequest(name="write_file", args={"path": path, "content": content})


def read(path: str) -> ToolCallRequest:
    return ToolCallRequest(name="read_file", args={"path": path})


def asks(*calls: ToolCallRequest) -> Message:
    return Message.assistant(tool_calls=list(calls))


class Desk:
    """A session, a folder, and agents that work in it, each as a process of its own would."""

    def __init__(self, tmp_path: Path, *, checkpoints: bool = True) -> None:
        self.root, self._home, self._keeps = tmp_path / "work", Home(tmp_path / "home"), checkpoints
        self.root.mkdir()
        self._url = f"sqlite:///{tmp_path}/agent.db"
        self.session: Session
        self.checkpoints: CheckpointManager | None = None

    def run(self, test: Callable[[], Awaitable[None]]) -> None:
        async def opened() -> None:
            async with SessionManager.open(self._url) as sessions:
                self.session = await sessions.open_or_create("desk")
                if self._keeps:
                    self.checkpoints = await CheckpointManager.open(self.session, self.root, home=self._home)
                await test()

        asyncio.run(opened())

    def agent(self, *script: Message | str) -> Agent:
        tools = ToolManager(
            [*FILE_TOOLS, run_command], workspace=self.root, approvals=Approvals([Rule("*", "allow")])
        )
        return Agent(
            model=ScriptedModel(*script),
            session=self.session,
            tools=tools,
            budget=BUDGET,
            checkpoints=self.checkpoints,
        )

    async def events(self, words: str | None, *script: Message | str) -> list[AgentEvent]:
        agent = self.agent(*script)
        found = [event async for event in (agent.run(words) if words else agent.resume())]
        window = await self.session.window(BUDGET)
        for name in formats.names():
            provider = formats.get(name)
            assert provider.validate(provider.render(window.messages)) == [], name
        return found


def labels(events: list[AgentEvent]) -> list[str]:
    return [event.label for event in events if isinstance(event, CheckpointSaved)]


def results(events: list[AgentEvent]) -> list[str]:
    return [str(event.result.result) for event in events if isinstance(event, ToolFinished)]


@pytest.mark.req("O2", "P1")
def test_tools_that_change_files_and_their_turns_get_checkpoints_that_restore_both(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    async def test() -> None:
        first = await desk.events("Begin.", asks(write("a", "1\n")), asks(read("a")), "Done.")
        assert labels(first) == ["1.1", "1"]
        assert labels(await desk.events("What is it?", "A file.")) == []
        command = ToolCallRequest(name="run_command", args={"command": "echo 3 > b; echo 2 > a"})
        assert labels(await desk.events("Go on.", asks(command), "Done.")) == ["2.1", "2"]
        assert desk.checkpoints is not None
        await desk.checkpoints.restore("1.1", hard=True)
        assert (desk.root / "a").read_text() == "1\n"
        assert not (desk.root / "b").exists()
        assert [one.role for one in await desk.session.messages()] == ["user", "assistant", "tool"]
        again = await desk.events(None, asks(write("a", "other\n")), "Done.")
        assert labels(again) == ["1.2", "1"]
        assert "Wrote a" in results(again)[0]

    desk.run(test)


@pytest.mark.req("N2", "L3")
def test_a_file_that_the_user_changed_is_not_overwritten_also_in_a_new_process(tmp_path: Path) -> None:
    for keeps in (True, False):
        folder = tmp_path / str(keeps)
        folder.mkdir()
        desk = Desk(folder, checkpoints=keeps)

        async def begins(desk: Desk = desk) -> None:
            await desk.events("Begin.", asks(write("a", "mine\n"), write("b", "b\n")), "Done.")

        async def goes_on(desk: Desk = desk) -> None:
            (desk.root / "a").write_text("yours\n")
            found = await desk.events("Go on.", asks(write("a", "mine again\n")), asks(read("a")), "I see.")
            assert "a was changed since you last saw it" in results(found)[0]
            assert (desk.root / "a").read_text() == "yours\n"
            found = await desk.events("Now.", asks(write("a", "ours\n"), write("b", "b2\n")), "Done.")
            assert all("Wrote" in result for result in results(found))
            lines = await desk.session.entries(kinds=["lines"])
            assert all(isinstance(one.entry, FileLines) for one in lines)

        desk.run(begins)
        desk.run(goes_on)


def test_edits_of_one_file_side_by_side_are_all_made(tmp_path: Path) -> None:
    desk = Desk(tmp_path, checkpoints=False)

    async def test() -> None:
        (desk.root / "a").write_text("".join(f"<{number}>\n" for number in range(20)))
        edits = [
            ToolCallRequest(name="edit_file", args={"path": "a", "old": f"<{n}>", "new": f"({n})"})
            for n in range(20)
        ]
        found = await desk.events("Edit.", asks(read("a")), asks(*edits), "Done.")
        assert [one for one in results(found) if "Replaced 1" in one] == ["Replaced 1 occurrence in a."] * 20
        assert (desk.root / "a").read_text() == "".join(f"({number})\n" for number in range(20))

    desk.run(test)


def test_a_checkpoint_that_an_interrupted_run_missed_is_taken_when_it_resumes(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    async def stopped() -> None:
        agent = desk.agent(asks(write("a", "1\n")), "Done.")
        async for event in agent.run("Begin."):
            if isinstance(event, ToolFinished):
                break  # the result is saved, its checkpoint is not

    async def resumed() -> None:
        found = await desk.events(None, "Done.")
        assert labels(found) == ["1.1", "1"]
        taken = [one.entry for one in await desk.session.entries(kinds=["checkpoint"])]
        assert [one.label for one in taken if isinstance(one, Checkpoint)] == ["0", "1.1", "1"]
        assert labels(await desk.events(None)) == []

    desk.run(stopped)
    desk.run(resumed)


def test_a_checkpoint_is_taken_however_many_calls_an_interrupted_run_had_made(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    async def resumed() -> None:
        calls = [write("a", "1\n"), *(read("a") for _ in range(3 * FEW))]
        (desk.root / "a").write_text("1\n")
        await desk.session.append(Message.user("Begin."), asks(*calls))
        for call in calls:
            done = ToolCallResult(tool_call_id=call.id, result="done")
            await desk.session.append(Message.tool([done]))
        assert labels(await desk.events(None, "Done.")) == ["1.1", "1"]
        taken = [one.entry for one in await desk.session.entries(kinds=["checkpoint"])]
        assert [one.description for one in taken if isinstance(one, Checkpoint)][-1] == "Begin."

    desk.run(resumed)


def test_a_checkpoint_that_fails_is_reported_and_the_run_goes_on(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    async def test() -> None:
        assert desk.checkpoints is not None
        shutil.rmtree(desk.checkpoints.repository.folder)
        desk.checkpoints.repository.folder.write_text("in the way")
        found = await desk.events("Begin.", asks(write("a", "1\n")), "Done.")
        (failed,) = (event for event in found if isinstance(event, CheckpointFailed))
        assert failed.text
        assert isinstance(found[-1], Ended)
        assert found[-1].reason == "done"

    desk.run(test)


def test_checkpoints_of_another_session_or_folder_are_refused(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    async def test() -> None:
        tools = ToolManager(FILE_TOOLS, workspace=tmp_path)
        model = ScriptedModel()
        with pytest.raises(InputError, match="the tools work in"):
            Agent(model=model, session=desk.session, tools=tools, checkpoints=desk.checkpoints)
        async with SessionManager.open("memory:") as sessions:
            with pytest.raises(InputError, match="not of"):
                Agent(model=model, session=await sessions.create(), checkpoints=desk.checkpoints)

    desk.run(test)
