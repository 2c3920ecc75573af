"""Draw the pictures of the chat in `docs/img`, from real runs in a pseudo terminal.

    python tools/chat_pictures.py

The chat, its store, its files and its checkpoints are real. The first answer comes from the small local
model; the others from the scripted model of the tests, so that the pictures show the same every time.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from terminal_picture import COLORS, Cell, drawing

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.harness.chat_model import ChatModel  # noqa: E402
from tests.harness.terminal import Terminal  # noqa: E402

PICTURES = ROOT / "docs" / "img"
PROGRAM = str(Path(sys.executable).with_name("turnstate"))
NAMES = {"red": "31", "green": "32", "brown": "33", "blue": "34", "magenta": "35", "cyan": "36"}
"""What pyte calls the colors of a terminal."""


def cells(terminal: Terminal) -> list[list[Cell]]:
    """Return the screen of a terminal, without the empty rows at its end."""
    screen, lines = terminal.screen, list[list[Cell]]()
    for row in range(screen.lines):
        line = [
            Cell(char.data or " ", _style(char.fg, bold=char.bold))
            for char in (screen.buffer[row][column] for column in range(screen.columns))
            if char.data
        ]
        while line and line[-1].character == " ":
            line.pop()
        lines.append(line)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _style(color: str, *, bold: bool) -> str:
    style = "font-weight:600;" if bold else ""
    if color in NAMES:
        return f"{style}fill:{COLORS[NAMES[color]]};"
    if len(color) == 6 and color != "default":
        return f"{style}fill:#{color};"
    return style + ("fill:#f0f6fc;" if bold else "")


class Studio:
    """A folder with a project, in which chats are photographed."""

    def __init__(self, folder: Path) -> None:
        self._home, self.project = folder / "home", folder / "lighthouse"
        self.project.mkdir()
        (self.project / "lamp.py").write_text("LIT = False\n")
        subprocess.run(["git", "init", "-q"], cwd=self.project, check=True)

    def start(self, *arguments: str, rows: int = 22) -> Terminal:
        """Start a chat."""
        env = {"TURNSTATE_HOME": str(self._home), "PS1": "$ "}
        env |= dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "TURNSTATE_STORE"), "")
        return Terminal([PROGRAM, "chat", *arguments], folder=self.project, env=env, columns=80, rows=rows)


def keep(name: str, title: str, terminal: Terminal) -> None:
    """Write a picture of what a terminal shows."""
    terminal.read(0.6)
    (PICTURES / f"chat-{name}.svg").write_text(drawing(cells(terminal), title))
    print(f"docs/img/chat-{name}.svg", flush=True)


def draw(studio: Studio, address: str) -> None:
    """Go through the chat as a newcomer does."""
    with studio.start(rows=8) as terminal:
        terminal.wait("--model local")
        keep("no-model", "turnstate chat", terminal)
    with studio.start("--model", "local") as terminal:
        terminal.wait("/help")
        terminal.enter("What does a lighthouse do?")
        terminal.wait("cached")
        keep("local", "turnstate chat --model local", terminal)
    model = ("--model", address)
    with studio.start(*model) as terminal:
        terminal.wait("/help")
        terminal.enter("write lamp.py so that the lamp is lit")
        terminal.wait("Run write_file?")
        keep("approval", "turnstate chat", terminal)
        terminal.type("y")
        terminal.wait("checkpoint 1.1", "The tool says")
        terminal.enter("/checkpoint restore 0")
        terminal.wait("Restore checkpoint 0?")
        keep("restore", "turnstate chat", terminal)
        terminal.type("y")
        terminal.wait("/checkpoint undo returns")
        terminal.enter("/checkpoint undo")
        terminal.wait("back to before")
        for words in ("Is the lamp lit?", "And the lens?", "Who keeps it?"):
            terminal.enter(words)
            terminal.wait(f"You said: {words}")
        terminal.enter("/compact")
        terminal.wait("Compact the conversation?")
        keep("compact", "turnstate chat", terminal)
        terminal.type("y")
        terminal.wait("/compact undo takes it back")
        terminal.enter("/tangent")
        terminal.wait("in a tangent")
        terminal.enter("What is a Fresnel lens?")
        terminal.wait("You said: What is a Fresnel")
        terminal.enter("/tangent tail")
        terminal.wait("came along")
        keep("tangent", "turnstate chat", terminal)
        terminal.enter("/quit")
        terminal.wait_for_end()
    with studio.start(*model, "--continue", rows=34) as terminal:
        terminal.wait("session")
        terminal.enter("/context")
        terminal.wait("prompt cache")
        keep("context", "turnstate chat --continue", terminal)


def main() -> None:
    """Draw all pictures."""
    with tempfile.TemporaryDirectory() as folder, ChatModel() as model:
        draw(Studio(Path(folder)), model.address)


if __name__ == "__main__":
    main()
