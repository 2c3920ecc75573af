"""A session of the chat goes to the endpoint it was begun with, in the folder it was begun in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.cli_program import Outcome, turnstate
from tests.harness.chat_model import ChatModel
from turnstate import Message, SessionManager, ToolCallRequest
from turnstate.config.binding import META
from turnstate.config.table import default_store

pytestmark = pytest.mark.req("P2", "L4")

USER = ("--user", "ann")


@pytest.fixture
def private() -> Iterator[ChatModel]:
    with ChatModel() as serving:
        yield serving


@pytest.fixture
def public() -> Iterator[ChatModel]:
    """The endpoint that the environment leads to; it must get nothing."""
    with ChatModel() as serving:
        yield serving


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("TURNSTATE_STORE", "TURNSTATE_MODEL", "TURNSTATE_AGENT", "TURNSTATE_MEMORY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TURNSTATE_HOME", str(tmp_path / "home"))
    place = tmp_path / "work"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def url(model: ChatModel) -> str:
    return model.address.partition("@")[2]


def chat(*flags: str, said: str = "and now?") -> Outcome:
    return turnstate("chat", *USER, *flags, stdin=said)


def heard(model: ChatModel) -> list[str]:
    """Return what the user said, as the newest request has it."""
    return [one["content"] for one in model.requests[-1]["messages"] if one["role"] == "user"]


@pytest.mark.usefixtures("folder")
def test_a_key_or_a_setting_does_not_send_a_private_session_elsewhere(
    private: ChatModel, public: ChatModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert chat("--model", private.address, said="a secret").code == 0
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.setenv("OPENAI_BASE_URL", url(public))

    def a_variable() -> None:
        monkeypatch.setenv("TURNSTATE_MODEL", public.address)

    def the_users_file() -> None:
        (tmp_path / "home" / "turnstate.toml").write_text(f'model = "{public.address}"\n')

    def an_agent() -> None:
        (tmp_path / "home" / "agents").mkdir()
        (tmp_path / "home" / "agents" / "other.toml").write_text(f'model = "{public.address}"\n')
        monkeypatch.setenv("TURNSTATE_AGENT", "other")

    for change in (lambda: None, a_variable, the_users_file, an_agent):
        change()
        done = chat("--continue")
        assert (done.code, done.out) == (0, "You said: and now?\n"), done.err
        assert heard(private)[0] == "a secret"
        assert f"scripted at {url(private)} answers in this session" in done.err
        assert public.requests == []
    assert chat(said="another").code == 0  # a new session takes the settings
    assert heard(public) == ["another"]


@pytest.mark.usefixtures("folder")
def test_the_base_url_of_a_provider_belongs_to_the_session_too(
    private: ChatModel, public: ChatModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.setenv("OPENAI_BASE_URL", url(private))
    assert chat("--model", "gpt-5", said="a secret").code == 0
    monkeypatch.setenv("OPENAI_BASE_URL", url(public))
    assert chat("--continue").code == 0
    monkeypatch.delenv("OPENAI_API_KEY")  # without any key the session still knows its model
    assert chat("--continue").code == 0
    assert heard(private) == ["a secret", "and now?", "and now?"]
    assert {one["model"] for one in private.requests} == {"gpt-5"}
    assert public.requests == []


@pytest.mark.usefixtures("folder")
def test_the_user_sends_a_session_elsewhere_by_saying_so(private: ChatModel, public: ChatModel) -> None:
    assert chat("--model", private.address, said="first").code == 0
    assert chat("--continue", "--model", public.address, said="second").code == 0
    assert heard(public) == ["first", "second"]
    assert chat("--continue", said="third").code == 0  # it was recorded
    assert heard(public)[-1] == "third"
    done = chat("--continue", "--lines", said=f"/model {private.address}\n/model\n")
    assert f"scripted at {url(private)} answers from now on" in done.err
    assert url(private) in done.out
    assert chat("--continue", said="fourth").code == 0
    assert heard(private)[-2:] == ["third", "fourth"]
    assert len(public.requests) == 2


@pytest.mark.usefixtures("folder")
def test_a_session_that_does_not_say_its_endpoint_is_not_sent_anywhere(
    private: ChatModel, public: ChatModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions of programs, of older versions and of archives; and what a foreign store says is no answer."""
    assert chat("--model", private.address, said="to make the store").code == 0
    (made,) = turnstate("sessions", "--json").objects
    monkeypatch.setenv("TURNSTATE_MODEL", public.address)
    claim = {"folder": "", "model": "x", "provider": "openai", "url": url(public), "signature": "0" * 64}
    own = {**made["meta"][META], "url": url(public)}
    stolen = made["meta"][META]

    async def create() -> list[str]:
        async with SessionManager.open(default_store()) as sessions:
            metas = [{}, {META: claim}, {META: own}, {META: stolen}, {META: 7}, {META: {"url": url(public)}}]
            made = [await sessions.create(user="ann", meta=one, model="x") for one in metas]
            for one in made:
                await one.append(Message.user("a secret"))
            return [one.id for one in made]

    ids = asyncio.run(create())
    for id in ids:
        done = chat("--resume", id)
        assert (done.code, done.out) == (2, "")
        assert "does not say where its messages may be sent" in done.err
        assert f"--resume {id} --model" in done.err
    assert len(private.requests) == 1
    assert public.requests == []
    assert chat("--resume", ids[0], "--model", private.address).code == 0
    assert chat("--resume", ids[0]).code == 0
    assert heard(private)[0] == "a secret"
    assert public.requests == []


@pytest.mark.usefixtures("folder")
def test_sessions_that_are_resumed_in_a_chat_keep_their_models(private: ChatModel, public: ChatModel) -> None:
    assert chat("--model", private.address, said="a secret").code == 0
    (session,) = turnstate("sessions", "--json").objects
    lines = f"hello\n/resume {session['id']}\nagain\n/new\nmore\n"
    assert chat("--lines", "--model", public.address, said=lines).code == 0
    assert [heard(public), len(public.requests)] == [["hello"], 1]
    assert heard(private) == ["more"]  # a new session is answered by the model that answered last
    assert "again" in str(private.requests[1])


def test_another_folder_is_offered_by_name_and_never_continued_by_itself(
    folder: Path, private: ChatModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chat("--model", private.address, said="the plan").code == 0
    (session,) = turnstate("sessions", "--json").objects
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "alias").symlink_to(folder)

    monkeypatch.chdir(elsewhere)
    for flags in (("--continue",), ("--resume", "last")):
        done = chat(*flags, "--model", private.address)
        assert (done.code, done.out) == (1, "")
        for word in (session["id"], "the plan", str(folder), "--resume"):
            assert word in done.err
    assert len(private.requests) == 1
    monkeypatch.chdir(tmp_path / "alias")  # the same folder by another path
    assert chat("--continue").code == 0
    monkeypatch.chdir(elsewhere)
    assert chat("--model", private.address, said="new here").code == 0
    monkeypatch.chdir(folder)
    assert chat("--continue", said="back").code == 0  # not the newest of all
    assert heard(private) == ["the plan", "and now?", "back"]


def leave_a_call_open(session: str) -> None:
    """Leave a session as a chat leaves it that is killed before it runs a tool."""

    async def leave() -> None:
        async with SessionManager.open(default_store()) as sessions:
            known = await sessions.open(session)
            call = ToolCallRequest(id="c1", name="write_file", args={"path": "made.txt", "content": "x"})
            await known.append(Message.user("write it"), Message.assistant(None, tool_calls=[call]))

    asyncio.run(leave())


def test_calls_that_another_folder_left_open_never_run_here(
    folder: Path, private: ChatModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chat("--model", private.address, said="the plan").code == 0
    (session,) = turnstate("sessions", "--json").objects
    leave_a_call_open(session["id"])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    allowed = ("--resume", session["id"], "--allow", "*", "--lines")
    done = chat(*allowed, said="/usage\n")
    assert f"was interrupted in {folder}; nothing of it runs here" in done.err
    assert "no session belongs to this folder" in chat("--continue").err  # looking did not move it
    done = chat(*allowed, said="go on\n")
    assert done.code == 0, done.err
    assert chat("--continue", "--allow", "*", said="and on").code == 0  # the message moved it here
    assert not (elsewhere / "made.txt").exists()
    assert not (folder / "made.txt").exists()
    assert len(private.requests) == 3


def test_calls_that_this_folder_left_open_go_on(folder: Path, private: ChatModel) -> None:
    assert chat("--model", private.address, said="the plan").code == 0
    (session,) = turnstate("sessions", "--json").objects
    leave_a_call_open(session["id"])
    done = chat("--continue", "--allow", "*", "--lines", said="/usage\n")
    assert "the last turn was interrupted; it goes on" in done.err
    assert (folder / "made.txt").exists()


@pytest.mark.usefixtures("folder")
def test_a_memory_that_sends_elsewhere_is_told(private: ChatModel, monkeypatch: pytest.MonkeyPatch) -> None:
    told = "of your memory sends what is said here to"
    settings = "extractor=x@http://127.0.0.1:9/v1&embedder=openai:y@http://127.0.0.1:9/v2"
    monkeypatch.setenv("TURNSTATE_MEMORY", f"builtin:memory.db?{settings}")
    done = chat("--model", private.address, "--lines", said="/usage\n")
    assert f"the extractor {told} http://127.0.0.1:9/v1" in done.err
    assert f"the embedder {told} http://127.0.0.1:9/v2" in done.err
    assert told not in chat("--model", private.address, "--lines", "--no-memory", said="/usage\n").err
    monkeypatch.setenv("TURNSTATE_MEMORY", f"builtin:memory.db?extractor=x@{url(private)}")
    assert told not in chat("--model", private.address, "--lines", said="/usage\n").err
