"""How a session is named on the command line, and how options are spelled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.acceptance.cli_program import conversation, real_turnstate, turnstate
from tests.acceptance.kept_sessions import answering, make, opened, row, there
from turnstate import Message
from turnstate.cli import program

pytestmark = pytest.mark.req("P3")


def heading(*arguments: object) -> str:
    code, out, err = turnstate("show", *arguments)
    assert code == 0, err
    return out.split()[1]


@pytest.mark.req("G2")
def test_a_session_is_named_by_id_last_title_or_a_unique_beginning(url: str) -> None:
    make(url, "one", id="0197a1c2", title="The nightly export")
    make(url, "two", id="0198ffff", title="Umbrella")
    assert heading("0197a1c2") == heading("0197") == "0197a1c2"
    assert heading("the nightly EXPORT") == heading("the night") == "0197a1c2"
    assert heading("last") == "0198ffff"
    with opened(url) as sessions:
        sessions.open("0197a1c2").append(Message.user("again"))
    assert heading("last") == "0197a1c2"
    assert turnstate("export", "Umbrella").out.count('"0198ffff"') > 0
    assert (
        turnstate("sessions", "rename", "umbr", "Rain").err
        == "turnstate: session 0198ffff renamed to 'Rain'\n"
    )


@pytest.mark.req("G2")
def test_an_exact_id_wins_over_last_and_over_titles(url: str) -> None:
    make(url, id="last", title="older")
    make(url, id="another", title="last")
    make(url, id="older")
    assert heading("last") == "last"
    assert heading("older") == "older"


@pytest.mark.req("G2")
def test_an_ambiguous_name_lists_the_candidates_and_how_many_characters_are_enough(url: str) -> None:
    for id, title in (("0197a1", "Talk"), ("0197a2", "talk"), ("0197b3", "Talk again")):
        make(url, id=id, title=title)
    code, out, err = turnstate("show", "0197")
    assert (code, out) == (1, "")
    shown = "0197b3 “Talk again”, 0197a2 “talk”, 0197a1 “Talk”"
    assert (
        err == f"turnstate: 0197 is the beginning of 3 sessions: {shown}; 6 characters of an id are enough\n"
    )
    assert turnstate("show", "TALK").err == (
        "turnstate: TALK is the title of 2 sessions: 0197a2 “talk”, 0197a1 “Talk”; "
        "6 characters of an id are enough\n"
    )
    assert heading("talk a") == heading("0197b") == "0197b3"


@pytest.mark.req("G9")
def test_what_destroys_takes_a_short_form_only_from_a_person_who_saw_what_it_means(url: str) -> None:
    make(url, "hello", id="0197a1c2", title="Dear diary")
    lines = (["destroy", "last"], ["erase", "--session", "0197"], ["reset", "Dear diary"])
    for line in lines:
        for yes in ([], ["--yes"]) if line[0] != "reset" else ([],):
            code, out, err = turnstate("sessions", *line, *yes)
            assert (code, out) == (1, "")
            assert "takes only a whole id" in err
    for line in lines:
        code, _, seen = answering("n", "sessions", *line)
        assert code == 1
        assert "session 0197a1c2 “Dear diary”, 1 entry, last used just now" in seen
        assert ("This cannot be undone" in seen) == (line[0] != "reset")
    code, _, seen = answering("n", "checkpoint", "restore", "0197", "1")
    assert (code, "Restore checkpoint 1 of session 0197a1c2 “Dear diary”" in seen) == (1, True)
    assert (there(url), row(url, "0197a1c2").epoch) == (["0197a1c2"], 1)
    assert answering("y", "sessions", "reset", "last").code == 0
    assert row(url, "0197a1c2").epoch == 2


def test_without_an_id_a_terminal_offers_a_list_that_words_filter(url: str) -> None:
    for number in range(20):
        make(url, f"said {number}", id=f"s{number:02}", title=f"Talk {number}")
    make(url, "here it is", id="wanted", title="The needle", user="anna")
    make(url, "newest", id="newest")
    code, _, seen = answering("anna needle", "show")
    assert (code, "here it is" in seen, "and 7 more" in seen) == (0, True, True)
    assert "newest" in answering("", "show", "--last", 1).err
    assert "said 19" in answering("3", "export", "--format", "markdown").err
    assert answering("q", "show").code == 130


def test_without_a_terminal_a_session_has_to_be_named(url: str) -> None:
    make(url)
    for command in ("show", "export"):
        code, out, err = turnstate(command)
        assert (code, out, err.count("\n")) == (2, "", 1)
    assert "name a session: an id, the beginning of one, a title, or last" in turnstate("show").err


def commands(group: click.Group, ctx: click.Context, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, ctx, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


DOCUMENTS = {"convert", "fit", "export", "amazon-q export", "memory export"}
"""Commands whose result is a document already: they have -o instead of --json."""

WITHOUT_RESULT = {"completion"}


def test_options_have_one_spelling_everywhere() -> None:
    with program.make_context("turnstate", [], resilient_parsing=True) as ctx:
        found = dict(commands(program, ctx))
    assert len(found) > 25
    for name, command in found.items():
        flags = [
            set(option.opts + option.secondary_opts)
            for option in command.params
            if option.param_type_name == "option"
        ]
        assert ({"--json"} in flags) == (name not in DOCUMENTS | WITHOUT_RESULT), name
        assert ({"-o", "--output"} in flags) == (name in DOCUMENTS), name
        assert not any("--out" in names for names in flags), name
        with program.make_context("turnstate", [], resilient_parsing=True) as ctx:
            inner = click.Context(command, parent=ctx, info_name=name)
            assert inner.help_option_names == ["-h", "--help"], name


def test_h_is_help_and_a_misspelled_command_names_the_likely_one() -> None:
    for line in ([], ["count"], ["sessions"], ["sessions", "rename"], ["checkpoint", "restore"]):
        assert turnstate(*line, "-h") == turnstate(*line, "--help")
    assert "Did you mean 'show'?" in turnstate("shw").err
    assert "Did you mean 'rename'?" in turnstate("sessions", "renam").err


def test_python_m_turnstate_is_the_program() -> None:
    assert real_turnstate("--version").out == turnstate("--version").out


def test_shells_complete_commands_options_and_sessions(url: str) -> None:
    make(url, id="0197a1", title="The nightly export")
    make(url, id="0298b2")
    for shell in ("bash", "zsh", "fish"):
        code, out, _ = turnstate("completion", shell)
        assert (code, "_TURNSTATE_COMPLETE" in out) == (0, True)
    assert turnstate("completion", "tcsh").code == 2
    for words, expected in (
        ("turnstate sess", "plain,sessions"),
        ("turnstate count --js", "plain,--json"),
        ("turnstate show 01", "plain,0197a1"),
        (f"turnstate show --store {url} 02", "plain,0298b2"),
        ("turnstate show --store sqlite:///none.db 0", ""),
    ):
        asked = {
            "_TURNSTATE_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }
        with pytest.MonkeyPatch.context() as patch:
            for name, value in asked.items():
                patch.setenv(name, value)
            assert turnstate().out.strip() == expected, words


def test_a_store_that_is_misspelled_is_told_what_to_write() -> None:
    for store, advice in (
        ("agent.db", "for an SQLite file, write sqlite:///agent.db"),
        ("/var/lib/agent.db", "write sqlite:////var/lib/agent.db"),
        ("sqlite:///:memory:", "for a store in memory, write memory:"),
        ("sqlit:///agent.db", "did you mean sqlite:?"),
        ("valkey://localhost:1", "localhost:1"),
    ):
        code, out, err = turnstate("sessions", "--store", store)
        assert (code in (2, 3), out, advice in err) == (True, "", True), (store, err)
    assert "secret" not in turnstate("sessions", "--store", "sqlit://me:secret@host/x").err


def test_the_settings_file_sets_store_and_model_and_knows_its_keys(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TURNSTATE_STORE")
    monkeypatch.delenv("TURNSTATE_MODEL", raising=False)
    id = make(url, "hello")
    file = tmp_path / "turnstate.toml"
    file.write_text(f'store = "{url}"\nmodel = "claude-sonnet-4-5"\n')
    assert turnstate("config", "trust", "--yes").code == 0
    assert heading("last") == id

    def counter(*arguments: str) -> str:
        (found,) = turnstate("count", "--json", *arguments, stdin=conversation()).objects
        return str(found["counter"])

    claude = counter()
    assert claude != "o200k_base"
    assert counter("--counter", "cl100k_base") == "cl100k_base"
    monkeypatch.setenv("TURNSTATE_MODEL", "gpt-4o")
    assert counter() == "o200k_base"
    assert counter("--model", "claude-sonnet-4-5") == claude
    file.write_text(f'stor = "{url}"\n')
    code, _, err = turnstate("sessions")
    assert (code, err) == (2, "turnstate: turnstate.toml: there is no setting 'stor'; did you mean store?\n")
    file.write_text("color = 1\n")
    assert "the keys are store, model" in turnstate("sessions").err
