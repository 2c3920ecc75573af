"""Print how many functions, modules and switches between modules each operation passes.

    python tools/walk.py                       the table, and the shape of the source below it
    python tools/walk.py --walk append --list  each function that an append passes, in order of first entry
    python tools/walk.py --json                the same as JSON
    python tools/walk.py --write               the table into CONTRIBUTING.md

Every walk runs on a SQLite file in a temporary folder, with real threads and real files. What counts:

- A *function* is a code object with a name of its own: module and qualified name. Methods, properties,
  nested functions and generators count. Lambdas, comprehensions, generator expressions, class bodies and
  module bodies do not, nor does what is not Python code, such as the ``__init__`` of a struct.
- A *module* is a file of the package in which at least one of these functions was entered.
- A *switch* is a pair of consecutive entries that are in different modules. Entries of all threads form
  one sequence. A resumed coroutine or generator is entered again; returning is not an entry.

Only the package is counted: functions of libraries between two of ours do not make a switch. The size of
the conversation is fixed (`EXCHANGES`), since some walks have a switch or more for each message. A walk ends
once the threads are done with what it gave them.

What the store decides by the clock is fixed (`FIXED`), so two runs enter the same functions on a quick disk
and a slow one. Switches may still differ by a few, since threads take turns as they like.

The shape counts modules with ``__init__``. A module has one importer if exactly one other module of the
package imports it, wherever the import is, and it is not an ``__init__``.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import inspect
import json
import statistics
import sys
import tempfile
import threading
import tomllib
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TypeVar

ROOT = Path(__file__).resolve().parents[1]
NAME: str = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["name"]
SOURCE = ROOT / "src" / NAME

T = TypeVar("T")

EXCHANGES = 12
SETTLING = (
    0.05  # seconds: what a thread does after it has answered belongs to this operation, not to the next
)
PAGE, BEGIN, END = ROOT / "CONTRIBUTING.md", "<!-- walks: begin -->", "<!-- walks: end -->"

FIXED = {
    "writer": {"IDLE": 3_600, "QUICK_COMMITS": 0, "LOOK_AGAIN": 0},
    "readers": {"QUICK_READS": 0, "QUICK": 3_600, "DISK": 3_600, "LOOK_AGAIN": 0},
}
"""Settings of SQLite's modules that depend on the clock: the search index is not continued meanwhile, small
reads and appends are made in the event loop on any disk, and each looks whether the file was replaced."""

MEANINGS = {
    "window": "window, nothing to decide",
    "window-cut": "window with a cut",
    "turn.request": "`turn.request`",
    "tangent": "begin a tangent, leave it with its last exchange",
    "conversation": "`conversation()`",
    "restore": "checkpoint restore",
    "search": "search, what it indexes included",
}
"""What the table says of a walk, if not its name."""
ANSWER = " ".join(f"word{number}" for number in range(60))


class Entered(NamedTuple):
    """One entry into a function."""

    module: str
    function: str


class Walk(NamedTuple):
    """What one operation passed."""

    name: str
    entries: list[Entered]

    @property
    def functions(self) -> list[Entered]:
        """The functions in the order in which they were first entered."""
        return list(dict.fromkeys(self.entries))

    @property
    def modules(self) -> list[str]:
        """The modules in the order in which they were first entered."""
        return list(dict.fromkeys(entry.module for entry in self.entries))

    @property
    def switches(self) -> int:
        """How often the next entry was in another module."""
        return sum(one.module != other.module for one, other in pairwise(self.entries))


class Tracer:
    """Records the functions of the package that are entered in a traced operation, in any thread."""

    def __init__(self) -> None:
        self.walks = dict[str, Walk]()
        self._entries: list[Entered] | None = None
        self._names = dict[Any, Entered | None]()

    def start(self) -> None:
        """Watch this thread and all threads that begin from now on."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def stop(self) -> None:
        """Watch no longer."""
        sys.setprofile(None)
        threading.setprofile(None)

    async def walk(self, name: str, operation: Callable[[], Awaitable[T]]) -> T:
        """Run an operation, or the next part of one, and record it with what it leaves to threads."""
        await asyncio.sleep(SETTLING)
        self._entries = self.walks.setdefault(name, Walk(name, [])).entries
        try:
            return await operation()
        finally:
            await asyncio.sleep(SETTLING)
            self._entries = None

    def _profile(self, frame: FrameType, event: str, arg: object) -> None:
        entries = self._entries
        if entries is None or event != "call":
            return
        code = frame.f_code
        if code not in self._names:
            self._names[code] = _entered(code.co_filename, code.co_qualname, code.co_flags)
        if entry := self._names[code]:
            entries.append(entry)


def _entered(file: str, name: str, flags: int) -> Entered | None:
    """Return what an entry is counted as, None if it is not counted."""
    path = Path(file)
    if not flags & inspect.CO_OPTIMIZED or name.endswith(">") or not path.is_relative_to(SOURCE):
        return None
    return Entered(_module(path), name)


def _module(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or NAME


def class_named(name: str) -> Any:
    """Import the class of this name from the module that defines it, wherever that is."""
    for path in sorted(SOURCE.rglob("*.py")):
        if any(isinstance(node, ast.ClassDef) and node.name == name for node in _tree(path).body):
            return getattr(import_module(f"{NAME}.{_module(path)}"), name)
    sys.exit(f"walk: no module of {NAME} defines {name}")


async def walked(tracer: Tracer, folder: Path) -> None:
    """Run all walks in an empty folder."""
    api: Any = import_module(NAME)
    wide = api.Budget(128_000, output=8_000)
    async with await api.SessionManager.open(f"sqlite:///{folder}/walk.db") as sessions:

        async def talked() -> Any:
            session = await sessions.create(system="You keep a lighthouse.")
            for night in range(EXCHANGES):
                await session.append(api.Message.user(f"Night {night}: how is the lamp?"))
                await session.append(api.Message.assistant(ANSWER))
            return session

        session = await talked()
        full = (await session.window(wide)).tokens
        question = api.Message.user("Is the anchor up?")
        await tracer.walk("append", lambda: session.append(question))
        await tracer.walk("window", lambda: session.window(wide))

        async with session.turn("Is it?", budget=wide) as turn:
            await turn.request("openai-chat", model="gpt-5")
            await turn.reply(api.Message.assistant(ANSWER))
        async with session.turn("And the ships?", budget=wide) as turn:
            await tracer.walk("turn.request", lambda: turn.request("openai-chat", model="gpt-5"))

        session = await talked()
        await session.window(wide)
        narrow = api.Budget(full // 2 + 100, output=100)
        await tracer.walk("window-cut", lambda: session.window(narrow))

        session = await talked()
        await session.window(wide)
        await tracer.walk("compact", lambda: session.compact(wide))

        await _tangent(tracer, api, await talked())

        session = await talked()
        await tracer.walk("conversation", session.conversation)

        session = await talked()
        await _restored(tracer, api, session, folder)

        async def found() -> list[Any]:
            return [one async for one in sessions.search("anchor")]

        if len(await tracer.walk("search", found)) != 1:
            sys.exit("walk: the search did not find exactly the one message that holds the word")


async def _tangent(tracer: Tracer, api: Any, session: Any) -> None:
    """Begin a tangent, talk, and leave it with its last exchange; the talk is not part of the walk."""
    said = [api.Message.user("Which whales are there?"), api.Message.assistant(ANSWER)]
    await tracer.walk("tangent", session.begin_tangent)
    await session.append(*said)
    await tracer.walk("tangent", lambda: session.leave_tangent(bring="tail"))
    if len(await session.messages()) != 2 * EXCHANGES + len(said):
        sys.exit("walk: the tangent's last exchange was not brought back")


async def _restored(tracer: Tracer, api: Any, session: Any, folder: Path) -> None:
    """Make two checkpoints and restore the first."""
    project = folder / "project"
    project.mkdir()
    files = [project / f"{name}.txt" for name in ("lamp", "log", "ships")]
    for file in files:
        file.write_text("as it was\n")
    checkpoints = await class_named("CheckpointManager").open(
        session, project, home=class_named("Home")(folder / "home")
    )
    for said in ("Light the lamp.", "Make it red."):
        call = await _turn(api, session, said)
        files[0].write_text(said)
        await checkpoints.tool_finished("fs_write", call=call)
        await checkpoints.turn_finished(said)
    await tracer.walk("restore", lambda: checkpoints.restore("1"))
    if files[0].read_text() != "Light the lamp.":
        sys.exit("walk: the restore did not bring the file back")


async def _turn(api: Any, session: Any, said: str) -> Any:
    """Append a turn with one tool, and return the id of the call."""
    call = api.ToolCallRequest(name="fs_write", args={"path": "lamp.txt"})
    await session.append(api.Message.user(said), api.Message.assistant("I will.", tool_calls=[call]))
    result = api.ToolCallResult(tool_call_id=call.id, result="written")
    await session.append(api.Message.tool([result]), api.Message.assistant("It is done."))
    return call.id


def walks() -> dict[str, Walk]:
    """Run all walks and return them by name."""
    sys.path.insert(0, str(SOURCE.parent))
    package = import_module(NAME)
    if Path(package.__file__ or "").parent != SOURCE:
        sys.exit(f"walk: {NAME} was imported from {package.__file__}, not from {SOURCE}")
    for name, settings in FIXED.items():
        module = import_module(f"{NAME}.stores.sqlite.{name}")
        for setting, value in settings.items():
            if not hasattr(module, setting):
                sys.exit(f"walk: {module.__name__} has no {setting}; update FIXED")
            setattr(module, setting, value)
    tracer = Tracer()
    with tempfile.TemporaryDirectory() as folder:
        tracer.start()
        try:
            asyncio.run(walked(tracer, Path(folder)))
        finally:
            tracer.stop()
    return tracer.walks


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def _imported(path: Path, modules: set[str]) -> Iterator[str]:
    """Yield the modules of the package that a file imports."""
    folder = path.relative_to(SOURCE.parent).parent.parts
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = ".".join(folder[: len(folder) - node.level + 1]) if node.level else ""
            home = ".".join(part for part in (above, node.module) if part)
            names = [f"{home}.{alias.name}" for alias in node.names]
            names = [name if name in modules else home for name in names]
        else:
            continue
        yield from (name for name in names if name in modules)


def shape() -> dict[str, Any]:
    """Measure the source: modules, their lines, lone importers, and class names with several meanings."""
    paths = {f"{NAME}.{_module(path)}".removesuffix(f".{NAME}"): path for path in SOURCE.rglob("*.py")}
    importers, classes = defaultdict[str, set[str]](set), Counter[str]()
    for name, path in paths.items():
        for imported in _imported(path, set(paths)):
            importers[imported].add(name)
        classes.update({node.name for node in ast.walk(_tree(path)) if isinstance(node, ast.ClassDef)})
    lines = {name: len(path.read_text("utf-8").splitlines()) for name, path in paths.items()}
    inner = {name for name, path in paths.items() if path.name != "__init__.py"}
    largest = max(lines, key=lambda name: lines[name])
    return {
        "modules": len(paths),
        "median_lines": statistics.median(lines.values()),
        "mean_lines": round(statistics.mean(lines.values()), 1),
        "largest_lines": lines[largest],
        "largest": largest,
        "one_importer": sorted(name for name in inner if len(importers[name] - {name}) == 1),
        "ambiguous_classes": {name: times for name, times in sorted(classes.items()) if times > 1},
    }


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--walk", metavar="NAME", help="only this walk, without the shape")
    parser.add_argument("--list", action="store_true", help="print functions by order of first entry")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--write", action="store_true", help="also write the table into CONTRIBUTING.md")
    options = parser.parse_args()
    chosen = walks()
    if options.write:
        _write(chosen)
    if options.walk:
        if options.walk not in chosen:
            parser.error(f"no walk is named {options.walk}; there are {', '.join(chosen)}")
        chosen = {options.walk: chosen[options.walk]}
    measured = None if options.walk else shape()
    if options.json:
        print(json.dumps(_document(chosen, measured, listed=options.list), indent=2))
        return
    print(f"{'walk':14}{'functions':>10}{'modules':>9}{'switches':>10}")
    for walk in chosen.values():
        print(f"{walk.name:14}{len(walk.functions):10}{len(walk.modules):9}{walk.switches:10}")
        if options.list:
            print("\n".join(f"    {entry.module:40} {entry.function}" for entry in walk.functions))
    if measured:
        _print_shape(measured, listed=options.list)


def _write(chosen: dict[str, Walk]) -> None:
    """Replace the table in CONTRIBUTING.md."""
    lines = ["| walk | functions | modules | switches |", "|---|---|---|---|"]
    for name, walk in chosen.items():
        meaning, counts = MEANINGS.get(name, name), (len(walk.functions), len(walk.modules), walk.switches)
        lines.append(" | ".join([f"| {meaning}", *map(str, counts)]) + " |")
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        sys.exit(f"walk: {PAGE.name} has no {BEGIN} … {END}")
    PAGE.write_text("\n".join([f"{before}{BEGIN}", *lines, END]) + after, "utf-8")


def _document(chosen: dict[str, Walk], measured: dict[str, Any] | None, *, listed: bool) -> dict[str, Any]:
    document: dict[str, Any] = {"walks": {}}
    for walk in chosen.values():
        counts = {
            "functions": len(walk.functions),
            "modules": len(walk.modules),
            "switches": walk.switches,
        }
        entered = {"entered": [f"{entry.module}:{entry.function}" for entry in walk.functions]}
        document["walks"][walk.name] = counts | (entered if listed else {})
    return document | ({"shape": measured} if measured else {})


def _print_shape(measured: dict[str, Any], *, listed: bool) -> None:
    lone, ambiguous = measured["one_importer"], measured["ambiguous_classes"]
    print(f"\n{measured['modules']} modules, lines: median {measured['median_lines']:g}", end=", ")
    print(f"mean {measured['mean_lines']:g}, largest {measured['largest_lines']} ({measured['largest']})")
    print(f"{len(lone)} modules with exactly one importer")
    print(f"{len(ambiguous)} class names that two or more modules define")
    if listed:
        print("one importer:", ", ".join(lone))
        print("ambiguous:", ", ".join(f"{name} ×{times}" for name, times in ambiguous.items()))


if __name__ == "__main__":
    main()
