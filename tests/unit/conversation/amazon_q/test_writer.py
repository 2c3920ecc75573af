from __future__ import annotations

import asyncio
import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.conversation.amazon_q.original_stage import (
    EXAMPLE,
    NOW,
    Still,
    answers,
    example,
    exchange,
    of,
    read,
    record,
    response,
    result,
    talk,
    user,
)
from tests.unit.conversation.conversation_fixtures import stored
from turnstate import FilePart, ImagePart, Message, ReasoningPart, SessionManager, TextPart, ToolSpec
from turnstate.context.cut import Strategy
from turnstate.conversation import (
    ConversationState,
    RequestMetadata,
    ToolOrigin,
    amazon_q,
    from_json,
    to_json,
)
from turnstate.conversation.amazon_q import schema
from turnstate.message import ToolCallRequest, ToolCallResult

pytestmark = pytest.mark.req("I9")

KEYS = """
    conversation_id next_message history valid_history_range transcript tools context_manager
    context_message_length latest_summary file_line_tracker checkpoint_manager mcp_enabled
""".split()


def new(**settings: Any) -> ConversationState:
    return ConversationState("c-1", os=Still(), **settings)


def say(state: ConversationState, *words: str) -> None:
    for text in words:
        state.set_next_user_message(text)
        state.push_assistant_message(Message.assistant(f"answer to {text}"))


def written(state: ConversationState) -> dict[str, Any]:
    """Write a state, and hold it to the shape and to being read as it is."""
    document = amazon_q.write(state)
    schema.check(document)
    assert amazon_q.write(read(document)) == document
    return document


def prompts(document: dict[str, Any]) -> list[str]:
    return [entry["user"]["content"]["Prompt"]["prompt"] for entry in document["history"]]


def test_the_example_is_written_as_it_was_saved() -> None:
    state = amazon_q.load(EXAMPLE.read_bytes(), os=Still())
    assert amazon_q.write(state) == example()
    assert amazon_q.saved(state) == EXAMPLE.read_text()
    assert amazon_q.row(state) == json.dumps(example(), ensure_ascii=False, separators=(",", ":"))


def test_the_example_survives_our_own_json() -> None:
    ours = json.loads(json.dumps(to_json(read(example()))))
    assert amazon_q.write(from_json(ours, os=Still())) == example()


@pytest.mark.parametrize("kind", ["memory:", "sqlite"])
def test_the_example_survives_a_store(kind: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/agent.db" if kind == "sqlite" else kind

    async def through_a_store() -> str:
        async with await SessionManager.open(url) as sessions:
            session = await stored(amazon_q.load(EXAMPLE.read_bytes(), os=Still()), sessions)
            return amazon_q.saved(await session.conversation(last=10_000, os=Still()))

    assert asyncio.run(through_a_store()) == EXAMPLE.read_text()


@pytest.mark.req("J1")
def test_a_tangent_under_way_survives_a_store(tmp_path: Path) -> None:
    main = talk("one", "two", "three")
    document = of(
        *copy.deepcopy(main[:2]),
        *talk("what if?"),
        tangent_state={
            "main_history": main,
            "main_next_message": None,
            "main_transcript": ["main"],
            "main_latest_summary": ["before", record()],
            "tangent_start_time": "2025-10-25 05:03:11.5 +00:00:00",
        },
        latest_summary=["before", record()],
    )

    async def through_a_store() -> tuple[dict[str, Any], dict[str, Any]]:
        async with await SessionManager.open(f"sqlite:///{tmp_path}/agent.db") as sessions:
            session = await stored(read(document), sessions)
            aside = amazon_q.write(await session.conversation(last=10_000, os=Still()))
            await session.leave_tangent()
            return aside, amazon_q.write(await session.conversation(last=10_000, os=Still()))

    aside, back = asyncio.run(through_a_store())
    assert aside == document
    assert (back["history"], back["transcript"]) == (main, ["main"])


def test_an_empty_conversation_has_all_fields_that_are_always_written_in_their_order() -> None:
    document = written(new())
    assert list(document) == KEYS
    assert document == of()


def test_a_conversation_of_ours_is_written_in_the_original_shape() -> None:
    state = new(model_id="claude-sonnet-4")
    call = ToolCallRequest(name="ls", args={"path": "."})
    state.set_next_user_message([TextPart("look"), ImagePart(data=b"\x01", media_type="image/png")])
    state.push_assistant_message(
        Message.assistant(tool_calls=[call]), RequestMetadata(model="claude-sonnet-4", input=7)
    )
    state.add_tool_results([ToolCallResult(tool_call_id=call.id, result={"files": 2})])
    state.push_assistant_message(Message.assistant("Two files."))
    state.set_next_user_message("thanks")
    document = written(state)
    asked, answered = document["history"]
    assert asked["user"]["content"] == {"Prompt": {"prompt": "look"}}
    assert asked["user"]["images"] == [{"format": "Png", "source": {"Bytes": [1]}}]
    assert asked["user"]["timestamp"] == state.messages[0].timestamp
    assert asked["assistant"]["ToolUse"]["tool_uses"] == [
        {"id": call.id, "name": "ls", "orig_name": "ls", "args": {"path": "."}, "orig_args": {"path": "."}}
    ]
    assert asked["request_metadata"]["model_id"] == "claude-sonnet-4"
    assert asked["request_metadata"]["tool_use_ids_and_names"] == [[call.id, "ls"]]
    assert answered["user"]["content"]["ToolUseResults"]["tool_use_results"] == [
        {"tool_use_id": call.id, "content": [{"Json": {"files": 2}}], "status": "Success"}
    ]
    assert (answered["user"]["timestamp"], answered["request_metadata"]) == (None, None)
    assert document["next_message"]["content"] == {"Prompt": {"prompt": "thanks"}}
    assert document["valid_history_range"] == [0, 2]
    assert document["transcript"] == state.transcript
    assert document["model_info"]["model_id"] == "claude-sonnet-4"
    assert "model" not in document


@pytest.mark.req("I7")
def test_calls_that_the_user_did_not_wait_for_are_cancelled_in_the_document() -> None:
    state = new()
    state.set_next_user_message("go")
    state.push_assistant_message(Message.assistant(tool_calls=[ToolCallRequest(name="ls", args={})]))
    state.set_next_user_message("stop")
    body = written(state)["next_message"]["content"]["CancelledToolUses"]
    assert (body["prompt"], body["tool_use_results"][0]["status"]) == ("stop", "Error")


@pytest.mark.req("I7")
def test_calls_that_a_conversation_of_ours_ends_with_are_cancelled_in_the_document() -> None:
    state = new()
    calls = [ToolCallRequest(name="ls", args={}), ToolCallRequest(name="ls", args={}, provider_id="toolu_1")]
    state.set_next_user_message("go")
    state.push_assistant_message(Message.assistant(tool_calls=calls))
    document = written(state)
    waiting = document["next_message"]["content"]["CancelledToolUses"]
    said = [{"Text": "Tool use was cancelled by the user"}]
    assert waiting == {
        "prompt": None,
        "tool_use_results": [
            {"tool_use_id": id, "content": said, "status": "Error"} for id in (calls[0].id, "toolu_1")
        ],
    }
    assert state.next_message is None  # they are still open here
    assert written(read(document)) == document


@pytest.mark.req("I9")
def test_calls_that_a_document_ends_with_are_still_open_in_it() -> None:
    document = of(*talk("go"))
    use = {"id": "t", "name": "ls", "orig_name": "ls", "args": {}, "orig_args": {}}
    body = {"message_id": None, "content": "", "tool_uses": [use]}
    document["history"][-1]["assistant"] = {"ToolUse": body}
    assert written(read(document)) == document


@pytest.mark.req("L1")
def test_custom_tools_are_native_in_the_document() -> None:
    state = new(tool_config={"ls": ToolSpec("ls")})
    state.tools[ToolOrigin("custom")] = [ToolSpec("mine")]
    state.tools[ToolOrigin.mcp("srv")] = [ToolSpec("theirs")]
    tools = written(state)["tools"]
    names = {key: [one["ToolSpecification"]["name"] for one in some] for key, some in tools.items()}
    assert names == {"native___": ["ls", "mine"], "srv": ["theirs"]}


@pytest.mark.req("D5")
def test_a_compacted_conversation_is_its_summary_and_what_followed() -> None:
    state = new()
    say(state, "one", "two", "three", "four")
    plan = state.plan_compaction(Strategy(keep=1))
    assert plan is not None
    state.compact(plan, "They counted.", source={"model": "m"})
    document = written(state)
    assert prompts(document) == ["four"]
    assert document["latest_summary"][0] == "They counted."
    assert document["latest_summary"][1]["message_meta_tags"] == ["Compact"]
    assert document["latest_summary"][1]["model_id"] == "m"
    assert len(document["transcript"]) == 8
    assert amazon_q.left_out(state) == ["3 exchanges before the summary left out"]


def test_a_summary_that_came_along_stays_until_there_is_a_newer_one() -> None:
    state = read(of(*talk("one", "two", "three"), latest_summary=["Before.", record()]))
    say(state, "four")
    assert amazon_q.write(state)["latest_summary"] == ["Before.", record()]
    plan = state.plan_compaction(Strategy(keep=1))
    assert plan is not None
    state.compact(plan)
    text, known = written(state)["latest_summary"]
    assert "Before." in text
    assert known != record()


@pytest.mark.req("I8")
def test_a_cleared_conversation_has_its_transcript_left() -> None:
    state = read(example())
    state.clear()
    document = written(state)
    assert (document["history"], document["valid_history_range"]) == ([], [0, 0])
    assert document["transcript"] == example()["transcript"]


@pytest.mark.req("J1")
def test_a_tangent_of_ours_is_written_with_the_main_conversation() -> None:
    state = new()
    say(state, "one")
    state.enter_tangent_mode()
    say(state, "what if?")
    document = written(state)
    assert prompts(document) == ["one", "what if?"]
    tangent = document["tangent_state"]
    assert [entry["user"]["content"]["Prompt"]["prompt"] for entry in tangent["main_history"]] == ["one"]
    assert tangent["main_transcript"] == document["transcript"][:2]
    assert tangent["tangent_start_time"] == [2025, 298, 5, 3, 20, 0, 0, 0, 0]
    assert state.open_tangents[0].created == NOW
    state.exit_tangent_mode()
    assert amazon_q.left_out(state) == ["1 tangent that was left is omitted"]
    assert "tangent_state" not in written(state)


@pytest.mark.req("J3")
def test_the_tail_of_a_tangent_from_the_original_is_written_behind_the_main_conversation() -> None:
    main = talk("one")
    document = of(
        *copy.deepcopy(main),
        *talk("what if?"),
        tangent_state={"main_history": main, "main_transcript": []},
    )
    state = read(document)
    state.exit_tangent_mode_with_tail()
    assert prompts(written(state)) == ["one", "what if?"]


@pytest.mark.req("J3")
def test_a_tail_behind_what_waited_is_written_with_it() -> None:
    main = talk("one")
    odd = {"ToolUseResults": {"tool_use_results": []}}
    document = of(
        exchange(user(odd, mood="good"), response("so")),
        tangent_state={
            "main_history": main,
            "main_transcript": [],
            "main_next_message": user(answers(result("gone", {"Text": "late"}))),
        },
    )
    state = read(document)
    state.exit_tangent_mode_with_tail()
    assert len(written(state)["history"]) == 2


def test_what_was_changed_is_written_and_what_was_not_stays_as_it_came() -> None:
    document = example()
    document["tools"]["native___"][0]["ToolSpecification"]["tags"] = ["x"]
    document["model_info"]["rate"] = 2
    state = read(document)
    state.tools[ToolOrigin("builtin")] = [ToolSpec("ls")]
    state.append_transcript("a notice")
    back = amazon_q.write(state)
    assert [one["ToolSpecification"]["name"] for one in back["tools"]["native___"]] == ["ls"]
    assert back["model_info"] == document["model_info"]
    state.set_model("gpt-4o")
    assert amazon_q.write(state)["model_info"]["model_id"] == "gpt-4o"
    assert back["transcript"] == [*document["transcript"], "a notice"]
    assert back["history"] == document["history"]


def test_words_that_follow_what_waited_are_written_with_it() -> None:
    waiting = {**example()["history"][0]["user"], "mood": "good"}
    state = read(of(next_message=waiting))
    state.set_next_user_message("and quickly")
    back = written(state)["next_message"]
    assert back["content"] == {"Prompt": {"prompt": "add a retry to fetch.py\n\nand quickly"}}
    assert back["env_context"] == waiting["env_context"]


def test_a_very_long_history_begins_at_a_later_prompt_as_it_does_there() -> None:
    state = new()
    for number in range(4_998):
        state.log.add(Message.user(str(number)))
        state.log.add(Message.assistant("ok"))
    assert amazon_q.write(state)["valid_history_range"] == [1, 4_998]


def test_checkpoints_are_carried_along_without_their_copies_of_the_history() -> None:
    history = talk(*map(str, range(20)))
    copies = [*(history[:number] for number in range(20)), [*history[:7], *talk("elsewhere")]]
    checkpoints = [
        {"tag": str(number), "history_snapshot": copy, "is_turn": True} for number, copy in enumerate(copies)
    ]
    document = of(*history, checkpoint_manager={"checkpoints": checkpoints, "tag_index": {}})
    state = read(document)
    assert amazon_q.write(state) == document
    assert state.checkpoint_manager is None
    assert len(json.dumps(to_json(state))) < 2 * len(json.dumps(to_json(read(of(*history)))))
    say(state, "one more")
    back = amazon_q.write(state)["checkpoint_manager"]
    assert back == document["checkpoint_manager"]


@pytest.mark.parametrize(
    "manager", [{}, {"checkpoints": None}, {"checkpoints": [7, {}, {"history_snapshot": 3}]}]
)
def test_checkpoints_of_another_shape_are_carried_along_as_they_are(manager: dict[str, Any]) -> None:
    document = of(*talk("one"), checkpoint_manager=manager)
    assert amazon_q.write(read(document)) == document


def test_what_has_no_place_is_told() -> None:
    state = new()
    state.set_system("You help.")
    state.set_next_user_message([TextPart("read"), FilePart(url="https://e.org/a.pdf")])
    state.push_assistant_message(Message.assistant([ReasoningPart("hm"), TextPart("ok")]))
    document = written(state)
    assert document["history"][0]["user"]["content"]["Prompt"]["prompt"] == "read\n[file https://e.org/a.pdf]"
    assert document["history"][0]["assistant"]["Response"]["content"] == "ok"
    assert amazon_q.left_out(state) == [
        "the system prompt is left out; in Amazon Q it comes from the agent",
        "1 piece of reasoning left out",
        "1 file or picture written as a line of text",
    ]
    assert amazon_q.left_out(read(example())) == []


def test_a_picture_that_is_written_as_text_is_listed() -> None:
    state = new()
    shown, unknown = (
        ImagePart(data=b"p", media_type="image/png"),
        ImagePart(data=b"b", media_type="image/bmp"),
    )
    state.set_next_user_message([TextPart("look"), shown, unknown])
    state.push_assistant_message(Message.assistant([TextPart("like this"), shown]))
    (exchange,) = written(state)["history"]
    assert [one["format"] for one in exchange["user"]["images"]] == ["Png"]
    assert exchange["user"]["content"]["Prompt"]["prompt"].startswith("look\n[image image/bmp, 1 bytes")
    assert "[image image/png, 1 bytes" in exchange["assistant"]["Response"]["content"]
    assert amazon_q.left_out(state) == ["2 files or pictures written as a line of text"]
