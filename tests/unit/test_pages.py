"""The pages in `docs/` are complete: settings and names as in the code, pictures as their script draws."""

from __future__ import annotations

import inspect
import json
import re
import sys
from ast import literal_eval
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

from turnstate import Budget, Policy, SessionManager, Strategy
from turnstate.agent import AgentEvent, Limits
from turnstate.chat.commands import COMMANDS
from turnstate.checkpoints import CheckpointManager, SnapshotLimits
from turnstate.config import AgentProfile
from turnstate.config.table import SETTINGS as KEYS
from turnstate.config.table import TABLES
from turnstate.context import Reduction
from turnstate.entry import Entry
from turnstate.errors import InputError
from turnstate.files import FILE_MODE
from turnstate.memory import Worker
from turnstate.memory.builtin import BuiltinEngine
from turnstate.models import Retry
from turnstate.session import Recall
from turnstate.snapshots import Snapshots
from turnstate.stores import STORES
from turnstate.stores.postgres.server import SCHEMA, PostgresTarget, target
from turnstate.stores.redis.target import parsed
from turnstate.stores.sqlite.target import commits_in_loop

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def tool(name: str) -> ModuleType:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(ROOT / "tools"))


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    return tool("pictures")


def test_the_diagrams_are_what_their_script_draws(pictures: ModuleType) -> None:
    for name, draw in pictures.DIAGRAMS.items():
        drawn = (DOCS / "img" / f"{name}.svg").read_text("utf-8")
        assert drawn == draw().svg(), f"run: python tools/pictures.py ({name}.svg differs)"


def test_a_text_that_reaches_over_the_edge_or_another_text_is_refused(pictures: ModuleType) -> None:
    canvas = pictures.Canvas(100, 50, "a small picture")
    canvas.text(10, 20, "short")
    with pytest.raises(pictures.Overlap, match="reaches from"):
        canvas.text(60, 40, "much too long")
    with pytest.raises(pictures.Overlap, match="drawn over 'short'"):
        canvas.text(30, 22, "over")


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the tables under a heading of the settings page, without code marks."""
    section = (
        (DOCS / "settings.md").read_text("utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    )
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in lines]


def options(call: Callable[..., object], *, without: Sequence[str] = ()) -> dict[str, object]:
    given = inspect.signature(call).parameters
    return {name: one.default for name, one in given.items() if name not in ("self", "extra", *without)}


SETTINGS: dict[str, dict[str, object]] = {
    "Budget": options(Budget),
    "Policy": options(Policy),
    "Reduction": options(Reduction),
    "Strategy": options(Strategy),
    "SessionManager.open": options(SessionManager, without=["store"]),
    "SessionManager.create": options(SessionManager.create),
    "Snapshots": options(Snapshots),
    "CheckpointManager.open": options(CheckpointManager.open, without=["session", "work_tree"]),
    "SnapshotLimits": options(SnapshotLimits),
    "Recall": options(Recall),
    "BuiltinEngine": options(BuiltinEngine, without=["database"]),
    "Worker": options(Worker, without=["store", "engine"]),
    "Limits": options(Limits),
    "Retry": options(Retry),
}


def test_the_settings_page_has_every_option_with_its_default() -> None:
    for heading, known in SETTINGS.items():
        shown = {name: default for name, default, _ in rows(heading)}
        assert list(shown) == list(known), (
            f"docs/settings.md: the options of {heading} are {', '.join(known)}"
        )
        for name, default in known.items():
            if default is None or isinstance(default, bool | int | float | str | tuple):
                assert literal_eval(shown[name]) == default, (
                    f"docs/settings.md: {heading}.{name} is {default!r}"
                )


def test_the_settings_page_has_every_option_of_a_url() -> None:
    shown = {(scheme.rstrip(":"), option): default for scheme, option, default, _ in rows("URLs of stores")}
    assert {scheme for scheme, _ in shown} == {
        STORES[scheme].replace("postgres", "postgresql") for scheme in STORES
    }

    redis = {option: default for (scheme, option), default in shown.items() if scheme == "redis"}
    query = "&".join(
        f"{option}={'fsync' if default == '–' else default}" for option, default in redis.items()
    )
    assert parsed(f"redis://host?{query}").durability == "fsync"
    assert parsed("redis://host").timeout == float(redis["timeout"])
    with pytest.raises(InputError, match=f"the options are {', '.join(redis)}$"):
        parsed("redis://host?other=1")

    server = target(
        f"postgresql://host/db?schema={shown['postgresql', 'schema']}&durability=fsync&sslmode=require"
    )
    assert (server.schema, server.durability) == (SCHEMA, "fsync")
    assert server.dsn.endswith("?sslmode=require")

    assert {option for scheme, option in shown if scheme == "postgresql"} == {
        *PostgresTarget._fields,
        "others",
    } - {"dsn", "shown"}

    sqlite = {option: default for (scheme, option), default in shown.items() if scheme == "sqlite"}
    with pytest.raises(InputError) as refused:
        commits_in_loop("sqlite:///agent.db?other=1")
    assert {*sqlite} == {*re.findall(r"\?(\w+)=", str(refused.value))} - {"other"}
    assert int(sqlite["mode"], 8) == FILE_MODE


def test_the_log_page_has_every_kind_of_entry() -> None:
    section = (DOCS / "log.md").read_text("utf-8").partition("\n## Entries\n")[2]
    lines = section.strip().partition("\n\n")[0].splitlines()[2:]
    shown = [name for line in lines for name in re.findall(r"`(\w+)`", line.split(" | ")[0])]
    kinds = {kind.__struct_config__.tag or "message" for kind in get_args(Entry)}
    assert sorted(shown) == sorted(kinds | {"compaction"})  # a cut that the user asked for


def test_the_settings_page_has_every_environment_variable_and_key() -> None:
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    ours = {*re.findall(r"\bTURNSTATE_[A-Z]+\b", source)}
    assert sorted(name for name, *_ in rows("Environment variables")) == sorted(ours | {"NO_COLOR", "PAGER"})
    assert [name for name, _ in rows("turnstate.toml")] == [*KEYS, *TABLES]


def test_the_configuration_page_has_every_key_of_a_settings_file_and_of_an_agent() -> None:
    page = (DOCS / "configuration.md").read_text("utf-8")
    lines = [line for line in page.splitlines() if line.startswith("| `")]
    for key, one in KEYS.items():
        assert f"| `{key}` | `{one.flag}` | `{one.variable}` | {one.meaning} |" in lines
    for key, meaning in TABLES.items():
        assert f"| `{key}` | – | – | {meaning} |" in lines
    agents = page.partition("\n## Agents\n")[2].partition("\n## ")[0]
    described = re.findall(r"^\| `(\w+)` \|", agents, flags=re.MULTILINE)
    assert described == [name for name in AgentProfile.__struct_fields__ if name != "name"]


def test_the_chat_page_has_every_command_as_its_help_explains_it() -> None:
    page = (DOCS / "chat.md").read_text("utf-8")
    described = page.partition("<!-- commands: begin -->")[2].partition("<!-- commands: end -->")[0]
    found = re.findall(r"^\*\*`([^`]+)`\*\*\n\n(.+)$", described, flags=re.MULTILINE)
    assert sorted(found) == sorted((one.usage, " ".join(one.help.split())) for one in COMMANDS.values())
    events = page.partition("| `event` |")[2].partition("\n\n")[0]
    told = {
        name
        for cell in re.findall(r"^\| ([^|]+) \|", events, flags=re.MULTILINE)
        for name in cell.split(", ")
    }
    kinds = [f"`{kind.__struct_config__.tag}`" for kind in get_args(AgentEvent)]
    assert told == {*kinds, "`output`", "`notice`", "`error`"}


def links(page: Path) -> set[Path]:
    found = re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", page.read_text("utf-8"))
    return {(page.parent / target).resolve() for target in found}


def test_the_index_and_the_site_have_every_page() -> None:
    pages = {path.resolve() for path in DOCS.glob("*.md")} - {DOCS / "index.md"}
    assert links(DOCS / "index.md") == pages | {DOCS / "reference" / "index.md"}
    reference = {*(DOCS / "reference").glob("*.md")} - {DOCS / "reference" / "index.md"}
    assert links(DOCS / "reference" / "index.md") == reference | {DOCS / "stability.md"}
    site = (ROOT / "zensical.toml").read_text("utf-8")
    listed = re.findall(r'"([a-z/-]+\.md)"', site)
    assert sorted(listed) == sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))


def test_the_reference_has_every_module_that_its_index_names() -> None:
    index = re.findall(r"`(turnstate[a-z.]*)`", (DOCS / "reference" / "index.md").read_text("utf-8"))
    pages = "\n".join(path.read_text("utf-8") for path in (DOCS / "reference").glob("*.md"))
    rendered = re.findall(r"^::: ([a-z.]+)$", pages, flags=re.MULTILINE)
    assert set(index) <= set(rendered)
    for name in rendered:
        assert import_module(name).__all__


def test_a_broken_link_of_the_site_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.html").write_text('<h2 id="there">There</h2>')
    (tmp_path / "index.html").write_text(
        '<a href="other.html#there">good</a> <a href="https://example.org">not followed</a>'
        '<a href="gone.html">gone</a> <a href="other.html#here">no id</a> <img src="gone.svg">'
        '<script src="https://example.org/code.js"></script>'
    )
    assert list(tool("site_links").faults(tmp_path)) == [
        "index.html links to gone.html, which does not exist",
        "index.html links to other.html#here, which has no such id",
        "index.html links to gone.svg, which does not exist",
        "index.html loads https://example.org/code.js",
    ]


def test_the_page_of_benchmarks_shows_the_figures_that_were_measured() -> None:
    benchmarks = tool("benchmarks")
    found = json.loads(benchmarks.FIGURES.read_text("utf-8"))
    page = benchmarks.PAGE.read_text("utf-8")
    assert page == benchmarks.page(page, found), "run: python tools/benchmarks.py --draw"
    drawn = {path.stem: path.read_text("utf-8") for path in (DOCS / "img").glob("bench-*.svg")}
    assert drawn == {name: picture.svg() for name, picture in benchmarks.plots(found).items()}
    assert set(re.findall(r"img/(bench-[a-z-]+)\.svg", page)) == set(drawn)
    assert set(found) == set(benchmarks.BENCHES)


def test_where_a_peer_is_ahead_is_told_whichever_way_a_table_is_laid_out() -> None:
    benchmarks = tool("benchmarks")
    rates = [["talk", "900", "1,200"], ["agent", "900", "100"]]
    printed = [
        {"line": "Throughput: durable appends a second."},
        {"head": ["", "Turnstate", "openai-agents"], "rows": rates},
        {"goal": "quick", "measured": "1 ×", "met": True},
        {"line": "Open and first window (ms)."},
        {
            "head": ["", "durability", "100", "/ ours at 100"],
            "rows": [["Turnstate", "WAL FULL", "2.0", "1.00 ×"], ["LangGraph", "WAL FULL", "1.0", "0.50 ×"]],
        },
    ]
    found = {"sessions": {"printed": printed}}
    assert benchmarks.ahead(found)[3:-1] == [
        "| Throughput | talk | openai-agents | 1.33 × the rate |",
        "| Open and first window (ms) | 100 | LangGraph | 0.50 × |",
    ]
    assert "| sessions | quick | 1 × | met |" in benchmarks.goals(found)
