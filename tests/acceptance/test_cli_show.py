from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.acceptance.cli_program import into_a_closing_pipe, into_a_pipe, on_a_terminal, turnstate
from tests.acceptance.kept_sessions import LONG, make, opened, work
from turnstate import Budget, Message, ToolCallRequest, ToolCallResult, blocking
from turnstate.codec import from_builtins

pytestmark = pytest.mark.req("P3")


def test_a_session_is_shown_with_what_is_known_of_it_and_what_was_said(url: str) -> None:
    id = make(url, "Good morning!", "Still there?", user="anna", title="Greetings", system="You help.")
    code, out, err = turnstate("show", id)
    assert (code, err) == (0, "")
    heading, known, *said = out.splitlines()
    assert heading == f"session {id} “Greetings”"
    assert known.startswith("user anna · live · 3 entries · ")
    assert "— prompt: You help." in said
    assert said.index("Good morning!") < said.index("Still there?")


@pytest.mark.req("G2")
def test_the_beginning_of_an_id_will_do(url: str) -> None:
    make(url, "hello", id="0197a1c2")
    make(url, id="0298")
    assert "hello" in turnstate("show", "0197").out
    code, out, err = turnstate("show", "0")
    assert (code, out) == (1, "")
    assert "0 is the beginning of 2 sessions: 0298, 0197a1c2; 2 characters of an id are enough" in err


def test_the_last_messages_alone(url: str) -> None:
    id = make(url, *map(str, range(10)))
    said = turnstate("show", id, "--last", 2).out.splitlines()
    assert [line for line in said if line.isdigit()] == ["8", "9"]
    (found,) = turnstate("show", id, "--last", 3, "--json").objects
    assert [message["content"] for message in found["messages"]] == ["7", "8", "9"]
    assert turnstate("show", id, "--last", 1, "--markdown").out.endswith("\n\n9\n")


def test_json_is_one_object_with_the_messages_as_they_are_kept(url: str) -> None:
    id = make(url, "hello", user="anna")
    (found,) = turnstate("show", id, "--json").objects
    assert (found["id"], found["user"]) == (id, "anna")
    with opened(url) as sessions:
        assert [from_builtins(one) for one in found["messages"]] == sessions.open(id).messages()


def test_markdown_is_whole(url: str) -> None:
    id, _ = work(url, LONG, system="You help.")
    _, out, _ = turnstate("show", id, "--markdown")
    assert out.startswith("## system (prompt)\n\nYou help.\n\n## user")
    assert LONG in out


def test_a_long_output_is_cut_and_says_how_to_see_it_whole(url: str) -> None:
    id, message = work(url, LONG)
    _, out, _ = turnstate("show", id)
    assert "← line 1 of the log\n" in out
    assert "line 13 of the log" not in out
    (rest,) = re.findall(r"… of 8,100 lines: turnstate (show \S+)", out)
    assert rest == f"show {message.id}"
    assert turnstate(*rest.split()).out == LONG


@pytest.mark.req("E4")
def test_the_frame_of_a_window_leads_to_the_whole_output(url: str) -> None:
    id, _ = work(url, LONG, "short")
    with opened(url) as sessions:
        window = sessions.open(id).window(Budget(window=128_000))
    frame = window.messages[-1].tool_results[0].result
    (handle,) = re.findall(r"^\[Full output: (.+)\]$", frame, re.MULTILINE)
    assert "/" in handle
    assert turnstate("show", handle).out == LONG
    (start, end), (skipped,) = re.findall(r"Line (\d+)-", frame), re.findall(r"\((\d+) lines omitted", frame)
    asked = f"{int(end) - int(skipped)}-{int(end) - 1}"
    shown = turnstate("show", handle, "--lines", asked).out
    assert (start, shown.splitlines()[0]) == ("1", "line 51 of the log")
    assert len(shown.splitlines()) == int(skipped)


@pytest.mark.req("E4")
@pytest.mark.parametrize(
    ("lines", "first", "last"),
    [
        ("100-200", 100, 200),
        ("8100", 8100, 8100),
        ("8099-", 8099, 8100),
        ("1-1", 1, 1),
        ("8000-9999", 8000, 8100),
    ],
)
def test_lines_of_an_output_are_counted_from_1(url: str, lines: str, first: int, last: int) -> None:
    _, message = work(url, LONG)
    shown = turnstate("show", message.id, "--lines", lines).out.splitlines()
    assert shown == [f"line {number} of the log" for number in range(first, last + 1)]


def test_lines_as_json_say_which_of_how_many(url: str) -> None:
    id, message = work(url, LONG)
    (found,) = turnstate("show", message.id, "--lines", "8099-9000", "--json").objects
    assert found == {
        "id": message.id,
        "session": id,
        "call": message.tool_results[0].tool_call_id,
        "is_error": False,
        "text": "line 8099 of the log\nline 8100 of the log\n",
        "lines": [8099, 8100],
        "of": 8100,
    }


def test_no_range_is_bad_usage(url: str) -> None:
    _, message = work(url, LONG)
    for lines in ("0", "5-3", "x", "-5", "1-2-3"):
        code, out, err = turnstate("show", message.id, f"--lines={lines}")
        assert (code, out, err.count("\n")) == (2, "", 1), lines


def test_raw_prints_an_output_as_the_tool_returned_it(url: str) -> None:
    for result in ("no end of line", "with one\n", "", "\x1b[31mred\x00\r\nmixed\rends\n"):
        _, message = work(url, result)
        _, out, _ = into_a_pipe("show", message.id, "--raw")
        assert out == (result if result.endswith("\n") else f"{result}\n")


def test_a_terminal_is_given_nothing_to_act_on(url: str) -> None:
    _, message = work(url, "\x1b[31mred\x07\ttab")
    code, _, seen = on_a_terminal("show", message.id)
    assert code == 0
    assert seen == "\\x1b[31mred\\x07\ttab\r\n"


def test_a_structured_output_is_shown_as_its_frame_numbers_it(url: str) -> None:
    id, message = work(url, {"files": ["a", "b"]})
    assert turnstate("show", message.id).out == '{\n  "files": [\n    "a",\n    "b"\n  ]\n}\n'
    assert turnstate("show", message.id, "--lines", "3-4").out == '    "a",\n    "b"\n'
    (found,) = turnstate("show", message.id, "--json").objects
    assert (found["session"], found["result"]) == (id, {"files": ["a", "b"]})


def test_one_of_several_outputs_is_named_by_its_call(url: str) -> None:
    _, message = work(url, "first", "second")
    second = message.tool_results[1].tool_call_id
    assert turnstate("show", f"{message.id}/{second}").out == "second\n"
    both = turnstate("show", message.id).out
    assert both.index("first") < both.index("second")
    code, out, err = turnstate("show", f"{message.id}/call_nope")
    assert (code, out, err) == (1, "", f"turnstate: message {message.id} has no result for call call_nope\n")


def test_a_message_is_found_in_whatever_session_it_is(url: str) -> None:
    for number in range(5):
        make(url, f"noise {number}")
    id, _ = work(url, "out")
    with opened(url) as sessions:
        asked = sessions.open(id).messages()[1]
    code, out, _ = turnstate("show", asked.id)
    assert code == 0
    assert out.startswith(f"assistant · {asked.timestamp} · {asked.id}\n→ read ")
    (found,) = turnstate("show", asked.id, "--json").objects
    assert found.pop("session") == id
    assert from_builtins(found) == asked
    assert turnstate("show", asked.id, "--session", id).out == out
    other = make(url)
    assert turnstate("show", asked.id, "--session", other).err == (
        f"turnstate: session {other} has no entry {asked.id}; `turnstate show {other}` shows what it has\n"
    )


def test_an_id_with_a_slash_is_searched_for_as_given(url: str) -> None:
    with opened(url) as sessions:
        session = sessions.create(id="team/room")
        call = ToolCallRequest(id="call/1", name="ls", args={})  # type: ignore[arg-type]
        session.append(Message.assistant(None, tool_calls=[call], id="odd/id"))
        session.append(Message.tool([ToolCallResult(tool_call_id=call.id, result="yes")], id="odd/er"))
    assert turnstate("show", "team/room").code == 0
    assert turnstate("show", "odd/er/call/1").out == "yes\n"
    assert turnstate("show", "odd/er").out == "yes\n"


@pytest.mark.req("G4")
def test_what_is_not_there_is_one_line_and_exit_code_1(url: str) -> None:
    make(url, "hello")
    assert turnstate("show", "nobody") == (
        1,
        "",
        "turnstate: there is no session, message or output nobody; `turnstate sessions` lists them\n",
    )


@pytest.mark.req("G4")
def test_another_users_and_another_tenants_are_not_there(url: str) -> None:
    id, message = work(url, "secret", user="anna")
    for whose in (["--user", "bob"], ["--tenant", "acme"]):
        for one in (id, message.id):
            code, out, err = turnstate("show", one, *whose)
            assert (code, out) == (1, "")
            assert err.startswith(f"turnstate: there is no session, message or output {one}; ")
    assert turnstate("show", message.id, "--user", "anna").out == "secret\n"


@pytest.mark.parametrize(
    "arguments", [["--json", "--markdown"], ["--lines", "1"]], ids=["both", "lines of a session"]
)
def test_options_that_do_not_go_together_are_bad_usage(url: str, arguments: list[str]) -> None:
    code, out, err = turnstate("show", make(url), *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_the_last_messages_of_a_message_are_bad_usage(url: str) -> None:
    _, message = work(url, "x")
    assert turnstate("show", message.id, "--last", 3).code == 2


def test_decisions_are_shown_where_they_were_made(url: str) -> None:
    with opened(url) as sessions:
        session = sessions.create()
        for number in range(40):
            session.append(Message.user(f"question {number} " + "word " * 50))
            session.append(Message.assistant(f"answer {number}"))
        session.window(Budget(window=1_500))
    _, out, _ = turnstate("show", session.id)
    assert "— cut: the window starts at " in out
    assert "question 0 " in out


def test_looking_at_an_idle_session_does_not_end_it(url: str) -> None:
    with blocking.SessionManager.open(url, clock=lambda: 1_000) as sessions:
        session = sessions.create(idle=1)
        session.append(Message.user("hello"))
    assert "\nidle · 1 entry · " in turnstate("show", session.id).out
    assert json.loads(turnstate("sessions", "--json").out)["state"] == "idle"


def test_a_reader_that_closes_the_pipe_early_is_no_error(url: str) -> None:
    id = make(url, *["word " * 2_000] * 40)
    assert into_a_closing_pipe("show", id) == (141, "")


HOSTILE = "\x1b[2Jred \x9b31m \x85 \x7f \u202eback\u200f \u2066x \U000e0041 kept: \u3000❤\u200d🔥\t"


@pytest.mark.parametrize("option", [(), ("--last", "1")], ids=str)
def test_what_people_read_is_harmless_in_a_pipe_too(url: str, option: tuple[str, ...]) -> None:
    session, message = work(url, HOSTILE, title=HOSTILE)
    shown = [session, *option], *([[message.id], [f"{message.id}", "--lines", "1"]] if not option else [])
    for arguments in shown:
        done = into_a_pipe("show", *arguments)
        assert (done.code, [one for one in HOSTILE[:-5] if not one.isprintable() and one in done.out]) == (
            0,
            [],
        )
        assert "\\x1b[2Jred" in done.out
        assert "kept: \u3000❤\u200d🔥" in done.out


def test_documents_on_a_terminal_spell_controls_out_as_json_does(url: str, tmp_path: Path) -> None:
    session, message = work(url, HOSTILE, title=HOSTILE)
    document = tmp_path / "document.json"
    document.write_text(json.dumps([{"role": "user", "content": HOSTILE}], ensure_ascii=False))
    for arguments in (
        ["show", session, "--json"],
        ["show", message.id, "--json"],
        ["show", message.id, "--raw"],
        ["show", session, "--markdown"],
        ["sessions", "--json"],
        ["search", "kept", "--json"],
        ["export", session],
        ["export", session, "--format", "openai-chat"],
        ["export", session, "--format", "markdown"],
        ["fit", document, "--budget", "1000", "--format", "openai-chat"],
        ["convert", document, "--from", "openai-chat", "--to", "gemini"],
        ["convert", document, "--from", "openai-chat", "--to", "jsonl"],
    ):
        seen = on_a_terminal(*arguments, NO_COLOR="1", TERM="dumb").err.replace("\r\n", "\n")
        harmful = {one for one in seen if not one.isprintable()} - set("\n\t\u3000\u200d")
        assert harmful == set(), arguments
        assert "red" in seen, arguments
        if "--json" in arguments:
            plain = into_a_pipe(*arguments)
            assert json.loads(seen.split("\n")[0]) == json.loads(plain.out.split("\n")[0]), arguments
            assert ("\x9b" in plain.out) == (arguments[0] != "search"), "a pipe gets a document as it is"
