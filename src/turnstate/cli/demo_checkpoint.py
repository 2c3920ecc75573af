"""A checkpoint of the demo: a file that the agent overwrote comes back together with the conversation.

The work tree is a small folder, and the snapshots are beside it: nothing of the user's is touched.
"""

from __future__ import annotations

from pathlib import Path

from ..checkpoints.git import OLDEST
from ..checkpoints.manager import CheckpointManager
from ..checkpoints.numbering import START
from ..errors import GitMissing
from ..home import Home
from ..message import Message, ToolCallRequest, ToolCallResult
from ..session import SessionManager
from . import demo_picture, demo_screen, demo_script
from .demo_claims import Claims
from .demo_script import SESSION

__all__ = ["tell"]

FILE = "jobs/export.py"
RUIN = "raise NotImplementedError  # shorter\n"


async def tell(sessions: SessionManager, claims: Claims, folder: Path) -> list[Message]:
    """Let the agent ruin a file, and go back; give what was said."""
    tree = folder / "work"
    file = tree / FILE
    file.parent.mkdir(parents=True)
    file.write_text(demo_script.source(FILE))
    (tree / "README.md").write_text("Jobs that run every night.\n")
    session = await sessions.open(SESSION)
    state = await session.conversation()
    try:
        checkpoints = await CheckpointManager.open(state, tree, session=session, home=Home(folder / "home"))
    except GitMissing:
        demo_screen.line(f"  Left out: it needs git {OLDEST[0]}.{OLDEST[1]} or newer, which is not here.")
        return []
    before, files = await demo_picture.taken(sessions), _contents(tree)
    said = await _overwrite(checkpoints, file)
    claims.make(
        f"The agent overwrote {FILE}: {len(files[FILE])} bytes are {len(RUIN)} now.",
        holds=_contents(tree) == files | {FILE: RUIN.encode()},
    )
    await checkpoints.restore(START)
    after = await demo_picture.taken(sessions)
    claims.make(
        f"Restored: {FILE} has its {len(files[FILE])} bytes again; nothing else changed.",
        holds=_contents(tree) == files,
    )
    claims.make(
        f"The conversation went back with it: its {len(before.messages)} messages, byte for byte.",
        holds=after == before,
    )
    return said


async def _overwrite(checkpoints: CheckpointManager, file: Path) -> list[Message]:
    """Have one turn in which a file is overwritten, with the checkpoints that an agent keeps."""
    state, question = checkpoints.state, f"Make {FILE} shorter."
    start = len(state.messages)
    call = ToolCallRequest(name="write_file", args={"path": FILE, "text": RUIN})
    state.set_next_user_message(question)
    state.push_assistant_message(Message.assistant("I rewrite it.", tool_calls=[call]))
    file.write_text(RUIN)
    state.add_tool_results([ToolCallResult(tool_call_id=call.id, result=f"{len(RUIN)} bytes written")])
    await checkpoints.tool_finished(call.name, call=call.id)
    state.push_assistant_message(Message.assistant("It has one line now."))
    await checkpoints.turn_finished(question)
    return state.messages[start:]


def _contents(tree: Path) -> dict[str, bytes]:
    """Read every file of a folder."""
    return {str(one.relative_to(tree)): one.read_bytes() for one in tree.rglob("*") if one.is_file()}
