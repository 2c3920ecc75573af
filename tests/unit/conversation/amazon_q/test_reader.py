from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.unit.conversation.amazon_q.original_stage import (
    NOW,
    answers,
    example,
    exchange,
    of,
    prompt,
    read,
    record,
    response,
    result,
    talk,
    use,
    user,
    uses,
)
from turnstate import ImagePart, Message, ids
from turnstate.conversation import ConversationState, ToolOrigin, amazon_q
from turnstate.errors import ForbiddenJSON, InvalidPayload, MalformedJSON, TooLarge
from turnstate.log.operations import messages

pytestmark = pytest.mark.req("I9")

REQUIRED = [
    "conversation_id",
    "history",
    "valid_history_range",
    "transcript",
    "tools",
    "history[0].user",
    "history[0].assistant",
    "history[0].user.additional_context",
    "history[0].user.env_context",
    "history[0].user.env_context.env_state.environment_variables",
    "history[0].user.content",
    "history[0].user.content.Prompt.prompt",
    "history[0].assistant.ToolUse.content",
    "history[0].assistant.ToolUse.tool_uses",
    *(
        f"history[0].assistant.ToolUse.tool_uses[0].{name}"
        for name in ("id", "name", "orig_name", "args", "orig_args")
    ),
    *(
        f"history[0].request_metadata.{name}"
        for name in (
            "message_id",
            "request_start_timestamp_ms",
            "stream_end_timestamp_ms",
            "time_between_chunks",
            "user_prompt_length",
            "response_size",
            "tool_use_ids_and_names",
            "message_meta_tags",
        )
    ),
    *(
        f"history[1].user.content.ToolUseResults.tool_use_results[0].{name}"
        for name in ("tool_use_id", "content", "status")
    ),
    "tools.native___[0].ToolSpecification.name",
    "context_manager.paths",
    "context_manager.hooks",
    "model_info.model_id",
]


def holder(document: Any, path: str) -> tuple[Any, str]:
    """Return the object that holds the last step of a path, and that step."""
    *steps, last = path.replace("[", ".[").split(".")
    for step in steps:
        document = document[int(step[1:-1])] if step.startswith("[") else document[step]
    return document, last


@pytest.mark.parametrize("path", REQUIRED)
def test_a_required_field_that_is_missing_is_named_by_its_path(path: str) -> None:
    document = example()
    place, name = holder(document, path)
    del place[name]
    with pytest.raises(InvalidPayload) as caught:
        read(document)
    assert caught.value.path == f"$.{path}"


def test_a_tracker_without_all_of_its_fields_is_refused_with_its_file() -> None:
    document = example()
    del document["file_line_tracker"]["/home/ann/shop/fetch.py"]["is_first_write"]
    with pytest.raises(InvalidPayload) as caught:
        read(document)
    assert caught.value.path == "$.file_line_tracker['/home/ann/shop/fetch.py'].is_first_write"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("history[0].user.content", {"Prompt": {"prompt": "x"}, "ToolUseResults": {"tool_use_results": []}}),
        ("history[0].user.content", {"Question": {"prompt": "x"}}),
        ("history[0].user.timestamp", "yesterday"),
        ("history[0].user.timestamp", "2025-02-30T00:00:00Z"),
        ("history[0].user.images", [{"format": "Bmp", "source": {"Bytes": []}}]),
        ("history[0].user.images", [{"format": "Png", "source": {"Bytes": [256]}}]),
        ("history[1].user.content.ToolUseResults.tool_use_results[0].status", "Maybe"),
        ("valid_history_range", [0]),
        ("valid_history_range", [-1, 2]),
        ("conversation_id", ""),
        ("mcp_enabled", "yes"),
        ("checkpoint_manager", []),
        ("tangent_state", {"main_history": [], "main_transcript": [], "tangent_start_time": 7}),
    ],
)
def test_what_cannot_be_read_is_refused_near_its_path(path: str, value: Any) -> None:
    document = example()
    place, name = holder(document, path)
    place[name] = value
    with pytest.raises(InvalidPayload) as caught:
        read(document)
    assert caught.value.path.startswith(f"$.{path}")


def test_the_rest_may_be_missing() -> None:
    document = {name: of()[name] for name in REQUIRED[:5]}
    state = read(document)
    assert state.mcp_enabled
    assert (state.next_message, state.context_manager, state.model_info) == (None, None, None)
    assert amazon_q.write(state) == document


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b'{"history": [], "history": []}', ForbiddenJSON),
        (b'{"conversation_id": NaN}', ForbiddenJSON),
        (b'{"conversation_id": "\\ud800"}', ForbiddenJSON),
        (b"[" * 10_000, TooLarge),
        (b"[" * 190 + b"]" * 190, TooLarge),
        (b"\xff", MalformedJSON),
        (b"null", InvalidPayload),
    ],
)
def test_hostile_bytes_are_refused_with_a_typed_error(data: bytes, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        amazon_q.load(data)


def test_a_document_is_copied_when_it_is_read_and_when_it_is_written() -> None:
    document = example()
    state = read(document)
    document["history"][0]["request_metadata"]["request_id"] = "changed"
    amazon_q.write(state)["history"][0]["request_metadata"]["request_id"] = "changed, too"
    assert amazon_q.write(state) == example()


def test_messages_say_what_the_document_says() -> None:
    first, second, third, fourth = read(example()).messages
    assert (first.text, first.timestamp) == ("add a retry to fetch.py", "2025-10-25T05:03:11.482913377Z")
    assert (second.tool_calls[0].name, second.tool_calls[0].provider_id) == ("fs_write", "tooluse_A1")
    assert second.timestamp == "2025-10-25T05:03:15.210Z"
    assert third.tool_results[0].tool_call_id == second.tool_calls[0].id
    assert (fourth.text, fourth.timestamp) == ("Done.", ids.UNKNOWN_TIME)


def test_request_metadata_is_usage_with_all_of_its_details() -> None:
    entry = read(example()).history[0]
    assert entry.request_metadata is not None
    assert entry.request_metadata.model == "claude-sonnet-4"
    assert entry.request_metadata.details == record()


def test_what_a_hook_added_is_read_by_the_model_and_is_no_part_of_the_prompt() -> None:
    document = of(exchange(user(prompt("why?"), additional_context="It rains."), response("because")))
    state = read(document)
    assert [part.text for part in state.messages[0].parts] == ["It rains.", "why?"]  # type: ignore[union-attr]
    state.set_next_user_message("and now?")
    assert "It rains." in state.window().messages[0].text
    assert amazon_q.write(state)["history"] == document["history"]


@pytest.mark.parametrize("kind", ["Gif", "Jpeg", "Png", "Webp"])
def test_pictures_are_bytes_of_their_type(kind: str) -> None:
    picture = {"format": kind, "source": {"Bytes": [0, 1, 255]}}
    document = of(exchange(user(prompt("look"), images=[picture, picture]), response("ok")))
    state = read(document)
    assert state.history[0].user.images == (
        ImagePart(data=b"\x00\x01\xff", media_type=f"image/{kind.lower()}"),
    ) * 2  # fmt: skip
    assert amazon_q.write(state) == document


def test_pictures_that_a_tool_gave_follow_its_results() -> None:
    picture = {"format": "Png", "source": {"Bytes": [1]}}
    document = of(
        *[exchange(user(prompt("look")), uses(use("t1")))],
        exchange(user(answers(result("t1", {"Text": "a picture"})), images=[picture]), response("ok")),
    )
    state = read(document)
    assert [message.role for message in state.history[1].user.messages] == ["tool", "user"]
    assert amazon_q.write(state) == document


@pytest.mark.parametrize("words", [None, "", "stop, do this instead"])
def test_cancelled_calls_are_error_results_and_then_the_words(words: str | None) -> None:
    cancelled = {
        "CancelledToolUses": {
            "prompt": words,
            "tool_use_results": [result("t1", {"Text": "cancelled"}, status="Error")],
        }
    }
    document = of(
        exchange(user(prompt("go")), uses(use("t1"))), exchange(user(cancelled), response("all right"))
    )
    state = read(document)
    said = state.history[1].user
    assert said.tool_use_results[0].is_error
    assert said.prompt == words
    assert amazon_q.write(state) == document


@pytest.mark.parametrize(
    ("blocks", "value"),
    [
        ([{"Text": "done"}], "done"),
        ([{"Json": {"exit_status": "0"}}], {"exit_status": "0"}),
        ([{"Json": "text"}], "text"),
        ([{"Json": None}], None),
        ([], []),
        ([{"Text": "a"}, {"Text": "b"}], [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
        ([{"Text": "a"}, {"Json": 1}], ["a", 1]),
    ],
)
def test_blocks_of_a_result_are_one_value(blocks: list[Any], value: Any) -> None:
    document = of(
        exchange(user(prompt("go")), uses(use("t1"))),
        exchange(user(answers(result("t1", *blocks))), response("ok")),
    )
    state = read(document)
    assert state.history[1].user.tool_use_results[0].result == value
    assert amazon_q.write(state) == document


def test_a_result_finds_the_call_of_the_answer_before_it_and_no_other() -> None:
    document = of(
        exchange(user(prompt("go")), uses(use("t1"), use("t1"), use("t2"))),
        exchange(
            user(answers(result("t2"), result("t1"), result("t1"), result("t1"), result("nowhere"))),
            uses(use("t2")),
        ),
        exchange(user(answers(result("t1"), result("t2"))), response("ok")),
    )
    state = read(document)
    first, second, third = state.history
    a, b, c = (call.id for call in first.assistant.tool_calls)
    answered = [one.tool_call_id for one in second.user.tool_use_results]
    assert answered == [c, a, b, "t1", "nowhere"]
    late, own = (one.tool_call_id for one in third.user.tool_use_results)
    assert (late, own) == ("t1", second.assistant.tool_calls[0].id)
    assert amazon_q.write(state) == document


@pytest.mark.req("I7")
def test_a_result_whose_call_is_nowhere_is_sent_as_text() -> None:
    state = read(of(exchange(user(answers(result("gone", {"Text": "42"}))), response("so"))))
    state.set_next_user_message("and?")
    first = state.window().messages[0]
    assert (first.role, "gone" in first.text, "42" in first.text) == ("user", True, True)


@pytest.mark.req("I7")
def test_a_call_is_repaired_by_the_name_that_was_first_received() -> None:
    called = use("t1", name="srv___find", orig_name="find", orig_args={"q": "first"})
    document = of(
        exchange(user(prompt("go")), uses(called)),
        exchange(user(answers(result("t1"))), response("ok")),
        tools={
            "native___": [
                {"ToolSpecification": {"name": "find", "description": "", "input_schema": {"json": None}}}
            ]
        },
    )
    state = read(document)
    state.set_next_user_message("again")
    (sent,) = (call for message in state.window().messages for call in message.tool_calls)
    assert (sent.name, sent.args) == ("find", {"q": "first"})
    assert state.messages[1].tool_calls[0].name == "srv___find"
    assert amazon_q.write(state)["history"] == document["history"]


@pytest.mark.req("L1")
def test_tools_have_their_origins() -> None:
    spec = {
        "ToolSpecification": {"name": "x", "description": "", "input_schema": {"json": {"type": "object"}}}
    }
    state = read(of(tools={"native___": [spec], "docs server": [spec]}))
    assert set(state.tools) == {ToolOrigin("builtin"), ToolOrigin.mcp("docs server")}


@pytest.mark.req("K1")
def test_paths_are_the_agents() -> None:
    context = read(example()).context_manager
    assert context is not None
    assert {path.owner for path in context.paths} == {"agent"}
    assert context.state.current_profile == "q_cli_default"


@pytest.mark.req("M1")
@pytest.mark.parametrize(
    ("fields", "id", "window"),
    [
        ({"model": "claude-sonnet-4"}, "claude-sonnet-4", 200_000),
        ({"model": "old", "model_info": {"model_id": "new", "context_window_tokens": 9_000}}, "new", 9_000),
        ({"model_info": {"model_id": "new"}}, "new", 200_000),
    ],
)
def test_the_legacy_model_is_read_and_model_info_wins(fields: dict[str, Any], id: str, window: int) -> None:
    document = of(**fields)
    state = read(document)
    assert state.model_info is not None
    assert (state.model_info.id, state.model_info.context_window) == (id, window)
    assert amazon_q.write(state) == document


def test_a_summary_stands_before_all_that_is_there() -> None:
    document = of(*talk("one", "two"), latest_summary=["They met.", record(message_meta_tags=["Compact"])])
    state = read(document)
    assert state.latest_summary is not None
    assert state.latest_summary[0] == "They met."
    assert state.valid_history_range == (0, 2)
    state.set_next_user_message("three")
    window = state.window()
    assert ["They met." in message.text for message in window.messages[:2]] == [True, False]
    assert [message.text for message in window.messages if message.role == "user"] == ["one", "two", "three"]
    assert amazon_q.write(read(document)) == document


@pytest.mark.parametrize("stored", [[0, 1], [0, 0], [7, 9], [2, 0]])
def test_the_stored_range_is_never_trusted(stored: list[int]) -> None:
    state = read(example(valid_history_range=stored))
    assert state.valid_history_range == (0, 2)
    assert amazon_q.write(state) == example()


def test_what_nobody_knows_is_kept_where_it_stood() -> None:
    document = example(new_field={"deep": [1, None]})
    history = document["history"]
    history[0]["score"] = 1.0
    history[0]["user"]["mood"] = "good"
    history[0]["user"]["env_context"]["env_state"]["shell"] = "fish"
    history[0]["assistant"]["ToolUse"]["tool_uses"][0]["provider_id"] = "theirs"
    history[1]["user"]["content"]["ToolUseResults"]["tool_use_results"][0]["extra"] = 0
    document["model_info"]["rate_multiplier"] = 1.3
    document["tools"]["native___"][0]["ToolSpecification"]["tags"] = ["x"]
    document["file_line_tracker"]["/home/ann/shop/fetch.py"]["sha"] = "0"
    document["context_manager"]["hooks"] = {"agentSpawn": [{"command": "date"}]}
    document["context_manager"]["more"] = True
    assert amazon_q.write(read(document)) == document


def test_the_same_document_gives_the_same_ids_and_another_conversation_others() -> None:
    once, again = read(example()).messages, read(copy.deepcopy(example())).messages
    other = read(example(conversation_id="other")).messages
    assert once == again
    assert not {message.id for message in once} & {message.id for message in other}


def own_messages(state: ConversationState) -> list[Message]:
    """Return what was said on the branch of the head."""
    return messages(state.log.entries[state.log.head.branch])


def aside(start: Any, **changes: Any) -> dict[str, Any]:
    """Return a document in which a tangent left after the second of three exchanges."""
    main = talk("one", "two", "three")
    return of(
        *copy.deepcopy(main[:2]),
        *talk("what if?"),
        transcript=["tangent"],
        tangent_state={
            "main_history": main,
            "main_next_message": user(prompt("four")),
            "main_transcript": ["main"],
            "main_latest_summary": None,
            "tangent_start_time": start,
            **changes,
        },
    )


@pytest.mark.req("J1")
@pytest.mark.parametrize(
    "start",
    [
        [2025, 298, 5, 3, 11, 500_000_000, 0, 0, 0],
        [2025, 298, 14, 3, 11, 500_000_000, 9, 0, 0],
        "2025-10-25 05:03:11.5 +00:00:00",
        "2025-10-25 1:33:11.5 -03:30:00",
        "2025-10-25T14:03:11.5+09:00",
    ],
)
def test_a_tangent_began_when_any_of_three_spellings_says(start: Any) -> None:
    document = aside(start)
    state = read(document)
    assert state.open_tangents[0].created == 1_761_368_591_500
    assert state.get_tangent_duration_seconds() == (NOW - 1_761_368_591_500) // 1000
    assert amazon_q.write(state) == document


@pytest.mark.req("J1")
def test_a_tangent_without_a_start_began_now() -> None:
    document = aside(None)
    del document["tangent_state"]["tangent_start_time"]
    state = read(document)
    assert state.open_tangents[0].created == NOW
    assert amazon_q.write(state) == document


@pytest.mark.req("J1", "J2")
def test_a_tangent_under_way_shares_the_beginning_and_leaves_to_the_main_conversation() -> None:
    document = aside("2025-10-25T14:03:11.5+09:00", main_latest_summary=None)
    state = read(document)
    assert [entry.user.prompt for entry in state.history] == ["one", "two", "what if?"]
    assert [message.text for message in own_messages(state)] == ["what if?", "answer to what if?"]
    state.exit_tangent_mode()
    assert [entry.user.prompt for entry in state.history] == ["one", "two", "three"]
    assert state.next_message is not None
    assert (state.next_message.prompt, state.transcript) == ("four", ["main"])
    (kept,) = state.kept_tangents()
    assert kept.opening == "what if?"


@pytest.mark.req("J1")
def test_a_tangent_that_was_compacted_has_nothing_in_common_with_its_main_conversation() -> None:
    document = aside([2025, 1, 0, 0, 0, 0, 0, 0, 0])
    document["latest_summary"] = ["in short", record()]
    state = read(document)
    ids = [one.id for entries in state.log.entries.values() for one in entries if one.message]
    assert len(ids) == len(set(ids))
    assert amazon_q.write(state) == document
    state.exit_tangent_mode()
    assert state.latest_summary is None


def test_a_fault_in_the_main_conversation_is_named_there() -> None:
    main = talk("one")
    main[0]["user"]["timestamp"] = "never"
    document = aside([2025, 1, 0, 0, 0, 0, 0, 0, 0], main_history=main)
    with pytest.raises(InvalidPayload) as caught:
        read(document)
    assert caught.value.path == "$.tangent_state.main_history[0].user.timestamp"
