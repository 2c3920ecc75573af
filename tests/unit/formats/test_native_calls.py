"""Calls of OpenAI Responses that are not functions are cut, reduced, answered and run like the others."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from openai.types.responses import ResponseInputItem
from pydantic import TypeAdapter

from turnstate import Budget, Message, SessionManager, StateManager, ToolCallResult, codec, formats, wire_text
from turnstate.context.fit import fit, fitted
from turnstate.context.policy import Policy
from turnstate.context.reduction import MASK
from turnstate.context.window import Window
from turnstate.entry import ABANDONED
from turnstate.errors import InvalidMessage
from turnstate.formats.native_calls import BLANK_SCREEN
from turnstate.log.fold import open_calls
from turnstate.part import Native, OpaquePart
from turnstate.session.turn import pending
from turnstate.stores.memory import MemoryStore

pytestmark = pytest.mark.req("A8")

responses = formats.get("openai-responses")
check_item = TypeAdapter(ResponseInputItem).validate_python
ASK = {"role": "user", "content": "Go."}
CHECK = {"id": "cu_sc_1", "code": "malicious_instructions", "message": "Careful."}


def item(type: str, **fields: Any) -> dict[str, Any]:
    return {"type": type, **fields}


def custom(n: int, input: str = "ls -l") -> dict[str, Any]:
    return item("custom_tool_call", id=f"ctc_{n}", call_id=f"c{n}", name="sh", input=input)


def custom_output(n: int, output: Any = "total 0") -> dict[str, Any]:
    return item("custom_tool_call_output", call_id=f"c{n}", output=output)


def shell(n: int) -> dict[str, Any]:
    action = {"commands": ["ls", "make"], "timeout_ms": 1_000, "max_output_length": 4_096}
    return item("shell_call", id=f"sh_{n}", call_id=f"c{n}", action=action, status="completed")


def shell_output(n: int, stdout: str = "a\n", code: int = 0) -> dict[str, Any]:
    chunk = {"stdout": stdout, "stderr": "", "outcome": {"type": "exit", "exit_code": code}}
    return item(
        "shell_call_output", call_id=f"c{n}", output=[chunk], max_output_length=4_096, status="completed"
    )


def local_shell(n: int) -> dict[str, Any]:
    action = {"type": "exec", "command": ["ls"], "env": {}}
    return item("local_shell_call", id=f"lsh_{n}", call_id=f"c{n}", action=action, status="completed")


def local_shell_output(n: int, output: str = "a") -> dict[str, Any]:
    return item("local_shell_call_output", id=f"c{n}", output=output, status="completed")


def patch(n: int) -> dict[str, Any]:
    operation = {"type": "update_file", "path": "src/lamp.py", "diff": "@@\n-a\n+b"}
    return item("apply_patch_call", id=f"apc_{n}", call_id=f"c{n}", operation=operation, status="completed")


def patch_output(n: int, output: str = "done", status: str = "completed") -> dict[str, Any]:
    return item("apply_patch_call_output", call_id=f"c{n}", status=status, output=output)


def computer(n: int, *checks: Any) -> dict[str, Any]:
    action = {"type": "click", "button": "left", "x": 1, "y": 2}
    fields = {"action": action, "pending_safety_checks": list(checks), "status": "completed"}
    return item("computer_call", id=f"cu_{n}", call_id=f"c{n}", **fields)


def computer_output(n: int, *checks: Any) -> dict[str, Any]:
    shot = {"type": "computer_screenshot", "image_url": BLANK_SCREEN}
    return item("computer_call_output", call_id=f"c{n}", output=shot, acknowledged_safety_checks=list(checks))


def approval(n: int) -> dict[str, Any]:
    return item(
        "mcp_approval_request", id=f"mcpr_{n}", server_label="sea", name="drop", arguments='{"all": true}'
    )


def approved(n: int, approve: bool = True) -> dict[str, Any]:
    return item("mcp_approval_response", approval_request_id=f"mcpr_{n}", approve=approve, reason="Because.")


KINDS: dict[str, tuple[Any, Any]] = {
    "custom": (custom, custom_output),
    "shell": (shell, shell_output),
    "local_shell": (local_shell, local_shell_output),
    "apply_patch": (patch, patch_output),
    "computer": (computer, computer_output),
    "mcp_approval": (approval, approved),
}
each_pair = pytest.mark.parametrize(("call", "output"), KINDS.values(), ids=KINDS)
each_kind = pytest.mark.parametrize(
    ("kind", "call", "output"), [(kind, *pair) for kind, pair in KINDS.items()], ids=KINDS
)


def reply(*items: Any) -> Message:
    return responses.reply({"output": list(items), "status": "completed"}).without_usage


def sent(messages: list[Message], budget: Budget = Budget.UNLIMITED) -> list[dict[str, Any]]:
    """Return the items of a window, each of which the SDK's types accept."""
    items: list[dict[str, Any]] = StateManager().window(messages, budget).render(responses)["input"]
    for one in items:
        check_item(one)
    return items


@each_kind
def test_it_is_a_call_with_a_result_and_comes_back_as_it_was(kind: str, call: Any, output: Any) -> None:
    document = [ASK, call(1), output(1), ASK]
    assert responses.validate(document) == []
    messages = responses.parse(document)
    assert [one.role for one in messages] == ["user", "assistant", "tool", "user"]
    (made,) = messages[1].tool_calls
    assert (made.kind, messages[2].tool_results[0].tool_call_id) == (kind, made.id)
    stored = [codec.decode(codec.encode(message)) for message in messages]
    assert responses.render(stored) == {"input": document}
    assert sent(messages) == document
    for name in formats.names():
        other = formats.get(name)
        rendered = other.render(messages)
        assert other.validate(rendered) == []
        assert formats.same(messages, other.parse(rendered)), name


@each_pair
def test_a_reply_lists_it_and_the_callers_result_is_the_matching_item(call: Any, output: Any) -> None:
    said = [Message.user("Go."), reply(item("reasoning", id="rs_1", summary=[]), call(1))]
    (made,) = said[1].tool_calls
    wanted = responses.parse([call(1), output(1)])[1].tool_results[0]
    done = Message.tool([ToolCallResult(tool_call_id=made.id, result=wanted.result)])
    items = sent([*said, done])
    assert items[2] == call(1)
    written = {
        key: value for key, value in output(1).items() if key not in ("status", "acknowledged_safety_checks")
    }
    got = {key: value for key, value in items[3].items() if key != "status"}
    assert got == written


@pytest.mark.parametrize(("kind", "call"), [(kind, call) for kind, (call, _) in KINDS.items()])
def test_a_stream_lists_it_too(kind: str, call: Any) -> None:
    response = {"output": [call(1)], "status": "completed"}
    events = [
        {"type": "response.output_item.done", "item": call(1)},
        {"type": "response.completed", "response": response},
    ]
    assert [one.kind for one in responses.collect(events).tool_calls] == [kind]


@each_kind
def test_an_abandoned_one_is_answered_by_an_item_of_its_kind(kind: str, call: Any, output: Any) -> None:
    document = [ASK, call(1), ASK]
    assert [one.rule for one in responses.validate(document)] == ["call-unanswered"]
    items = sent(responses.parse(document))
    assert [one.get("type") for one in items] == [None, call(1)["type"], output(1)["type"], None]
    assert ABANDONED in str(items[2]) or kind == "computer"  # a screenshot holds no words
    assert items[2].get("approve") is (False if kind == "mcp_approval" else None)
    report = StateManager().window(responses.parse(document), Budget.UNLIMITED).report
    assert len(report.repairs) == 1
    assert fit(document, 10_000) == items


@each_pair
def test_twenty_rounds_fit_a_small_budget(call: Any, output: Any) -> None:
    rounds = [
        one for n in range(20) for one in (item("reasoning", id=f"rs_{n}", summary=[]), call(n), output(n))
    ]
    for one in rounds:
        if one["type"] == "custom_tool_call":
            one["input"] = "look at the lamp " * 40
    document = [ASK, *rounds]
    result = fitted(document, 600)
    assert result.after.tokens <= 600
    assert responses.validate(result.payload) == []
    for one in result.payload:
        check_item(one)


LONG = "\n".join(f"line {n} of a log that nobody reads to its end" for n in range(6_000))


@pytest.mark.parametrize(
    ("call", "output", "shown"),
    [
        (custom(1), custom_output(1, LONG), lambda one: one["output"]),
        (shell(1), shell_output(1, LONG, 2), lambda one: one["output"][0]["stderr"]),
        (local_shell(1), local_shell_output(1, LONG), lambda one: one["output"]),
        (patch(1), patch_output(1, LONG, "failed"), lambda one: one["output"]),
    ],
)
def test_a_long_output_is_reduced_in_its_own_item(call: Any, output: Any, shown: Any) -> None:
    result = fitted([ASK, call, output], 8_000)
    assert result.after.tokens <= 8_000
    assert result.reduced == ("c1",)
    assert responses.validate(result.payload) == []
    short = result.payload[2]
    check_item(short)
    assert shown(short).startswith("[Data Truncated]")
    assert (short["type"], short.get("status") == "failed") == (
        output["type"],
        output["type"].startswith("apply"),
    )


def test_a_shell_that_the_service_runs_stays_in_the_reply() -> None:
    items = [shell(1), shell_output(1), shell(2)]
    said = reply(*items)
    assert [call.provider_id for call in said.tool_calls] == ["c2"]
    done = Message.tool([ToolCallResult.of(said.tool_calls[0].id, "ok")])
    assert sent([Message.user("Go."), said, done])[1:4] == items


def test_only_a_plain_yes_is_an_approval() -> None:
    said = [Message.user("Go."), reply(approval(1))]
    id = said[1].tool_calls[0].id
    assert said[1].tool_calls[0].name == "mcp_approval"  # never the name of a tool of ours
    for value, approves in [(True, True), (False, False), ("yes", False), (1, False), (None, False)]:
        assert sent([*said, Message.tool([ToolCallResult.of(id, value)])])[2]["approve"] is approves
    assert not sent([*said, Message.tool([ToolCallResult.of(id, True, is_error=True)])])[2]["approve"]
    assert not sent([*said, Message.tool([ToolCallResult.of(id, {"approve": "yes"})])])[2]["approve"]


def test_a_result_may_be_given_as_the_fields_of_its_item() -> None:
    said = [Message.user("Go."), reply(computer(1, CHECK))]
    output = computer_output(1, CHECK)
    fields = {key: value for key, value in output.items() if key not in ("type", "call_id")}
    hostile = {**fields, "type": "message", "call_id": "other"}
    done = Message.tool([ToolCallResult.of(said[1].tool_calls[0].id, hostile)])
    assert sent([*said, done])[2] == output
    acknowledged = {"acknowledged_safety_checks": [CHECK]}  # without a screenshot
    done = Message.tool([ToolCallResult.of(said[1].tool_calls[0].id, acknowledged)])
    assert sent([*said, done])[2] == output


THOUGHT = item("reasoning", id="rs_1", summary=[], encrypted_content="c2ln")
OTHER = {**CHECK, "id": "cu_sc_2"}


@pytest.mark.parametrize(
    "given",
    [
        ("the user refused", True),
        ("the user refused", False),
        (None, False),
        ({"acknowledged_safety_checks": [OTHER]}, False),
        ({"acknowledged_safety_checks": [{"code": "malicious_instructions"}]}, False),
    ],
)
def test_the_checks_of_a_refused_computer_call_are_not_acknowledged(given: tuple[Any, bool]) -> None:
    value, is_error = given
    said = [Message.user("Go."), reply(THOUGHT, computer(1, CHECK))]
    done = Message.tool([ToolCallResult.of(said[1].tool_calls[0].id, value, is_error=is_error)])
    for items in (
        sent([*said, done]),
        responses.request([*said, done])["input"],
        responses.render([*said, done])["input"],
    ):
        assert [one["role"] for one in items] == ["user", "assistant", "user"]
        assert "click" in str(items[1])
        assert CHECK["message"] in str(items[1])
        assert "not acknowledged" in str(items[2])
        assert wire_text.result_text(value) in items[2]["content"][0]["text"]
        assert responses.validate({"input": items}, request=True) == []


def test_the_checks_of_an_abandoned_computer_call_are_not_acknowledged() -> None:
    document = [ASK, THOUGHT, computer(1, CHECK), ASK]
    items = sent(responses.parse(document))
    assert [one["role"] for one in items] == ["user", "assistant", "user", "user"]
    assert ABANDONED in str(items[2])
    assert fit(document, 10_000) == items


def test_other_calls_beside_a_refused_computer_call_stay_items() -> None:
    said = [Message.user("Go."), reply(THOUGHT, computer(1, CHECK), custom(2))]
    refused, ran = said[1].tool_calls
    answers = [ToolCallResult.of(refused.id, "no", is_error=True), ToolCallResult.of(ran.id, "total 0")]
    for done in ([Message.tool(answers)], [Message.tool([one]) for one in answers]):
        items = sent([*said, *done])
        types = ["message", "message", "custom_tool_call", "custom_tool_call_output", "message"]
        assert [one["type"] for one in items] == types
        assert items[3] == custom_output(2)


def test_a_document_with_open_checks_comes_back_as_it_was() -> None:
    for output in (computer_output(1), {**computer_output(1), "output": {"type": "gone"}}):
        document = [ASK, computer(1, CHECK), output, ASK]
        assert responses.render(responses.parse(document)) == {"input": document}
    agreed = [ASK, THOUGHT, computer(1, CHECK), computer_output(1, CHECK), ASK]
    assert sent(responses.parse(agreed)) == agreed


def opaque(*bodies: Any) -> Message:
    """Return a message as it was stored when these items were not calls yet."""
    parts = [OpaquePart(format=responses.name, body=body, text=f"[{body['type']}]") for body in bodies]
    message = Message.assistant(parts).replace(native=Native(format=responses.name))
    stored: Message = codec.decode(codec.encode(message))
    return stored


@each_pair
def test_no_result_of_a_tool_makes_a_request_that_the_service_rejects(call: Any, output: Any) -> None:
    said = [Message.user("Go."), reply(call(1))]
    odd = [None, 7, "", "x", [], {}, [1], {"output": 7}, {"output": []}, {"stdout": 7}, [{"stderr": None}]]
    odd += [{"output": "x", "status": "maybe", "role": "user"}, {"output": {"type": "computer_screenshot"}}]
    for value in odd:
        done = Message.tool([ToolCallResult.of(said[1].tool_calls[0].id, value)])
        assert sent([*said, done])[2]["type"] == output(1)["type"]


@each_pair
def test_a_broken_field_is_left_out_and_the_item_stays_what_it_is(call: Any, output: Any) -> None:
    for broken in (7, None, {"a": [1]}):
        for key in output(1).keys() - {"type", "call_id", "id", "approval_request_id"}:
            document = [ASK, call(1), {**output(1), key: broken}, ASK]
            messages = responses.parse(document)
            assert (
                responses.validate(StateManager().window(messages, Budget.UNLIMITED).render(responses)) == []
            )


@each_pair
def test_what_an_older_log_kept_as_the_services_own_items_is_sent_as_before(call: Any, output: Any) -> None:
    for log in (
        [Message.user("Go."), opaque(call(1), output(1))],
        [Message.user("Go."), opaque(call(1)), opaque(output(1))],
    ):
        assert sent(log)[1:] == [call(1), output(1)]


@each_pair
def test_what_an_older_log_left_open_is_answered_or_gets_its_result(call: Any, output: Any) -> None:
    log = [Message.user("Go."), opaque(item("reasoning", id="rs_1", summary=[]), call(1))]
    assert [one.get("type") for one in sent([*log, Message.user("And?")])[1:4]] == [
        "reasoning",
        call(1)["type"],
        output(1)["type"],
    ]
    (late,) = responses.parse([output(1)])
    assert sent(StateManager().append(log, late))[2:] == [call(1), output(1)]
    with pytest.raises(InvalidMessage, match="no call"):
        StateManager().append(log, responses.parse([output(2)])[0])


def test_what_an_older_log_kept_in_one_message_is_cut_and_reduced() -> None:
    rounds = [one for n in range(20) for one in (custom(n, "look " * 100), custom_output(n))]
    log = [Message.user("Go."), opaque(*rounds, custom(99), custom_output(99, LONG))]
    window = StateManager().window(log, Budget(3_000))
    items = window.render(responses)["input"]
    assert window.tokens <= 3_000
    assert items[-2] == custom(99)
    assert items[-1]["output"].startswith("[Data Truncated]")
    assert "[Full output" not in items[-1]["output"]


@pytest.mark.req("C3")
def test_a_session_of_patches_and_shells_goes_on_in_a_small_window() -> None:
    async def talk() -> Window:
        async with SessionManager(MemoryStore()) as sessions:
            session = await sessions.create(system="You keep a lighthouse.")
            await session.append(Message.user("Mend the lamp."))
            for n in range(20):
                operation = {"type": "update_file", "path": f"src/lamp{n}.py", "diff": "@@\n-a\n+b\n" * 30}
                said = reply({**patch(2 * n), "operation": operation}, shell(2 * n + 1))
                await session.append(said)
                mended, tried = said.tool_calls
                printed = {"stdout": "FAILED\n" * 50, "outcome": {"type": "exit", "exit_code": 1}}
                results = [
                    ToolCallResult.of(mended.id, "ok"),
                    ToolCallResult.of(tried.id, printed, is_error=True),
                ]
                await session.append(Message.tool(results))
                window = await session.window(Budget(3_000))
                for one in window.render(responses, request=True)["input"]:
                    check_item(one)
            return window

    summary = asyncio.run(talk()).view.summary or ""
    for words in ("Failed: shell", "Done, newest first: apply_patch path src/lamp13.py", "src/lamp1.py"):
        assert words in summary


BROKEN: dict[str, tuple[list[Any], str]] = {
    "an output of no call": ([ASK, custom_output(9)], "result-orphan"),
    "an approval of no request": ([ASK, approved(9)], "result-orphan"),
    "a call without an output": ([ASK, patch(1), ASK], "call-unanswered"),
    "an output twice": ([ASK, shell(1), shell_output(1), shell_output(1)], "result-twice"),
    "an output of another kind": (
        [ASK, custom(1), item("function_call_output", call_id="c1", output="")],
        "result-kind",
    ),
}


@pytest.mark.parametrize(("document", "rule"), BROKEN.values(), ids=BROKEN)
def test_broken_pairs_are_reported_and_repaired(document: list[Any], rule: str) -> None:
    assert rule in [one.rule for one in responses.validate(document)]
    before = copy.deepcopy(document)
    assert responses.render(responses.parse(document)) == {"input": before}
    assert responses.validate(sent(responses.parse(document))) == []


def test_a_reference_to_an_item_may_come_without_a_type() -> None:
    document = [
        ASK,
        {"id": "msg_1"},
        {"id": "fc_1", "type": None},
        item("function_call_output", call_id="c1", output="x"),
    ]
    assert responses.validate(document) == []
    assert responses.render(responses.parse(document)) == {"input": document}


@pytest.mark.parametrize("key", ["previous_response_id", "conversation"])
def test_outputs_of_calls_that_the_service_keeps_stay_outputs(key: str) -> None:
    output = item("custom_tool_call_output", call_id="c1", output=LONG, id="ctco_1")
    document = {"model": "gpt-5", key: "resp_1", "input": [output, custom_output(2)]}
    assert fit(document, 1_000_000) == document
    short = {**document, "input": [{**output, "output": "fog"}, custom_output(2)]}
    window = StateManager().window(responses.parse(short), Budget.UNLIMITED)
    assert window.render(responses, request=True) == short
    assert responses.request(responses.parse(short)) == short
    result = fitted(document, 3_000)
    assert (result.payload[key], result.repairs) == ("resp_1", ())
    assert [(one["type"], one["call_id"]) for one in result.payload["input"]] == [
        ("custom_tool_call_output", "c1"),
        ("custom_tool_call_output", "c2"),
    ]
    assert result.payload["input"][0]["output"].startswith("[Data Truncated]")


def mcp(n: int, output: str | None = "fog", **fields: Any) -> dict[str, Any]:
    common = {"server_label": "sea", "name": "look", "arguments": '{"path": "src/lamp.py"}', "error": None}
    return item("mcp_call", id=f"mcp_{n}", **{**common, "output": output, "status": "completed", **fields})


def mcp_failure(n: int, text: str = "No such lamp.") -> dict[str, Any]:
    error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}
    return mcp(n, None, error=error, status="failed")


def interpreter(n: int, logs: str = "42") -> dict[str, Any]:
    outputs = [{"type": "logs", "logs": logs}, {"type": "image", "url": "https://example.com/a.png"}]
    fields = {"code": "print(42)", "container_id": "cntr_1", "outputs": outputs, "status": "completed"}
    return item("code_interpreter_call", id=f"ci_{n}", **fields)


def file_search(n: int, text: str = "A lamp.") -> dict[str, Any]:
    found = [{"file_id": "file_1", "filename": "lamp.md", "score": 0.9, "text": text, "attributes": {}}]
    return item("file_search_call", id=f"fs_{n}", queries=["lamp"], results=found, status="completed")


HOSTED: dict[str, Any] = {
    "mcp": mcp,
    "a failing mcp": lambda n, text="No.": mcp_failure(n, text),
    "code_interpreter": interpreter,
    "file_search": file_search,
}
each_hosted = pytest.mark.parametrize("hosted", HOSTED.values(), ids=HOSTED)
FUNCTION = item("function_call", call_id="c1", name="f", arguments="{}")
FUNCTION_OUTPUT = item("function_call_output", call_id="c1", output="x")
TEXT = {"type": "output_text", "text": "So.", "annotations": []}
SAID = item("message", id="msg_1", role="assistant", content=[TEXT], status="completed")


@each_hosted
def test_a_call_that_the_service_ran_is_sent_as_it_was_and_is_nobodys_to_run(hosted: Any) -> None:
    thought = [item("reasoning", id=f"rs_{n}", summary=[]) for n in range(2)]
    for said in (
        [hosted(1)],
        [thought[0], hosted(1), hosted(2), thought[1], SAID],
        [hosted(1), FUNCTION, FUNCTION_OUTPUT],
        [FUNCTION, hosted(1), FUNCTION_OUTPUT],
        [FUNCTION, hosted(1), SAID, FUNCTION_OUTPUT],
    ):
        document = [ASK, *said]
        messages = [codec.decode(codec.encode(one)) for one in responses.parse(document)]
        assert responses.render(messages) == {"input": document}
        items = sent(messages)
        assert responses.validate(items) == []
        assert all(one in items for one in document)  # an output follows its call at once
        assert len(items) == len(document)
        assert items == document or document[1] == FUNCTION
        window = StateManager().window(messages, Budget.UNLIMITED)
        assert all("abandoned" not in one.text for one in window.report.repairs)
    answer = reply(hosted(1), FUNCTION)
    assert [call.provider_id for call in answer.tool_calls] == ["c1"]
    done = Message.tool([ToolCallResult.of(answer.tool_calls[0].id, "x")])
    assert sent([Message.user("Go."), answer, done])[1:] == [hosted(1), FUNCTION, FUNCTION_OUTPUT]
    assert sent([Message.user("Go."), opaque(hosted(1))])[1:] == [hosted(1)]


@each_hosted
def test_a_reply_goes_on_after_a_call_that_the_service_ran(hosted: Any) -> None:
    second = {**FUNCTION, "call_id": "c2"}
    said = reply(FUNCTION, hosted(1), item("reasoning", id="rs_1", summary=[]), second)
    results = [ToolCallResult.of(call.id, "x") for call in said.tool_calls]
    window = StateManager().window([Message.user("Go."), said, Message.tool(results)], Budget.UNLIMITED)
    assert window.report.repairs == ()
    types = [one.get("type") for one in window.render(responses)["input"]]
    assert types.count("function_call_output") == 2


@each_hosted
def test_a_long_result_of_the_service_is_reduced_in_its_item(hosted: Any) -> None:
    whole = hosted(1, LONG)
    for payload in ([ASK, whole], [ASK, whole, SAID, ASK]):
        result = fitted(payload, 8_000)
        assert result.after.tokens <= 8_000
        short = result.payload[1]
        check_item(short)
        assert "[Data Truncated]" in str(short)
        changed = {key for key in whole if short.get(key) != whole[key]}
        assert changed <= {"output", "outputs", "results", "error"}
        assert [one for one in result.payload if one is not short] == [
            one for one in payload if one is not whole
        ]
    log = [Message.user("Go."), opaque(*(hosted(n, LONG) for n in range(20)))]
    window = StateManager().window(log, Budget(6_000))
    assert window.tokens <= 6_000
    assert responses.validate(window.render(responses)) == []


@each_hosted
def test_other_providers_get_a_call_and_its_result(hosted: Any) -> None:
    document = [ASK, hosted(1), SAID, ASK]
    plain = [
        *(Message.user("Go."), *formats.unfolded(responses.parse(document)[1])),
        Message.user("Go."),
    ]
    for name in formats.names():
        other = formats.get(name)
        if other is responses:
            continue
        for payload in (
            formats.convert(document, responses, other).document,
            other.render(responses.parse(document)),
            StateManager().window(responses.parse(document), Budget.UNLIMITED).render(other),
        ):
            assert other.validate(payload) == []
            read = other.parse(payload)
            assert next(len(one.tool_calls) for one in read if one.role == "assistant") == 1
            assert formats.same(read, plain), name


@pytest.mark.req("C3")
def test_a_session_with_calls_of_a_remote_server_goes_on_in_a_small_window() -> None:
    async def talk() -> Window:
        async with SessionManager(MemoryStore()) as sessions:
            session = await sessions.create(system="You keep a lighthouse.")
            for n in range(20):
                await session.append(Message.user(f"Look at lamp {n}."))
                look = mcp(2 * n, "fog " * 400, arguments=f'{{"path": "src/lamp{n}.py"}}')
                said = reply(look, mcp_failure(2 * n + 1), {**SAID, "id": f"msg_{n}"})
                await session.append(said)
                window = await session.window(Budget(3_000))
                for one in window.render(responses, request=True)["input"]:
                    check_item(one)
            return window

    summary = asyncio.run(talk()).view.summary or ""
    for words in ("Failed: look", "Succeeded: look", "src/lamp1.py"):
        assert words in summary


def test_a_repeated_call_of_the_service_is_sent_under_another_id_as_a_functions() -> None:
    document = [ASK, mcp(1), ASK, mcp(1)]
    items = sent(responses.parse(document))
    assert responses.validate(items) == []
    assert items[:3] == document[:3]
    assert [one["type"] for one in items[3:]] == ["function_call", "function_call_output"]


def test_an_unfinished_call_of_the_service_stays_as_it_is() -> None:
    running = mcp(1, None, status="calling")
    assert sent(responses.parse([ASK, running, ASK])) == [ASK, running, ASK]
    odd = [
        item("mcp_call"),
        item("mcp_call", id=7, output="x"),
        item("mcp_call_result", id="mcp_1", output="x"),
    ]
    for one in odd:
        assert responses.render(responses.parse([ASK, one, ASK])) == {"input": [ASK, one, ASK]}


@pytest.mark.req("C10")
@each_hosted
def test_old_results_of_the_service_are_hidden_and_stay_hidden(hosted: Any) -> None:
    async def talk() -> None:
        store, policy = MemoryStore(), Policy(mask_at=0.5)
        async with SessionManager(store, policy=policy) as sessions:
            session = await sessions.create()
            for n in range(12):
                await session.append(
                    Message.user(f"Look {n}."), reply(hosted(n, "fog\n" * 90), {**SAID, "id": f"msg_{n}"})
                )
            whole = (await session.preview(Budget.UNLIMITED)).tokens
            window = await session.window(Budget(int(whole / 0.8)))
            assert [type(one).__name__ for one in window.decisions] == ["Mask"]
            items = window.render(responses, request=True)["input"]
            for one in items:
                check_item(one)
            assert MASK in str(items[1])
            assert items[1]["type"] == hosted(0)["type"]
            again = SessionManager(store, policy=policy)
            later = await (await again.open(session.id)).window(Budget(int(whole / 0.8)))
            assert later.render(responses, request=True)["input"] == items

    asyncio.run(talk())


@each_pair
def test_a_session_lists_what_an_older_log_left_open(call: Any, output: Any) -> None:
    log = [Message.user("Go."), opaque(call(1), output(1), call(2))]
    open = ["mcpr_2" if call is approval else "c2"]
    assert [one.id for one in open_calls(log)] == open
    unfinished = pending(log)
    assert unfinished is not None
    assert ([one.id for one in unfinished.open], unfinished.answered) == (open, ())
    log.append(opaque(output(2)))
    assert open_calls(log) == []
    answered = pending(log)
    assert answered is not None
    assert ([one.tool_call_id for one in answered.answered], answered.open) == (open, ())


@each_hosted
def test_what_the_service_ran_is_never_open(hosted: Any) -> None:
    log = [Message.user("Go."), reply(hosted(1), SAID)]
    assert (open_calls(log), pending(log)) == ([], None)
    log[1] = reply(FUNCTION, hosted(1))
    assert [one.provider_id for one in open_calls(log)] == ["c1"]
    unfinished = pending(log)
    assert unfinished is not None
    assert [one.provider_id for one in unfinished.open] == ["c1"]


REFERENCES: dict[str, list[Any]] = {
    "typed": [item("item_reference", id="fc_1"), FUNCTION_OUTPUT],
    "without a type": [{"id": "ctc_1"}, custom_output(1)],
    "two": [{"id": "fc_1"}, {"id": "ctc_2"}, FUNCTION_OUTPUT, custom_output(2)],
    "beside a call": [{"id": "fc_1"}, custom(2), custom_output(2), FUNCTION_OUTPUT],
}


@pytest.mark.parametrize("items", REFERENCES.values(), ids=REFERENCES)
def test_an_output_stays_with_the_reference_to_its_call(items: list[Any]) -> None:
    document = [ASK, *items, SAID, ASK]
    assert sent(responses.parse(document)) == document
    assert fit(document, 1_000_000) == document
    window = StateManager().window(responses.parse(document), Budget.UNLIMITED)
    assert window.report.repairs == ()
    for name in formats.names():
        other = formats.get(name)
        assert other.validate(window.render(other)) == []  # elsewhere it is text
    rounds = [one for n in range(30) for one in ({"id": f"fc_{n}"}, {**FUNCTION_OUTPUT, "call_id": f"c{n}"})]
    rounds = [{**one, "output": "fog " * 50} if "output" in one else one for one in rounds]
    result = fitted([ASK, *rounds, SAID, ASK], 600)
    assert result.after.tokens <= 600
    left = [one for one in result.payload if "role" not in one]
    assert [one.get("type") for one in left] == [None, "function_call_output"] * (len(left) // 2)


@pytest.mark.parametrize("reference", [{"id": "msg_1"}, {"id": "rs_1", "type": "item_reference"}])
def test_a_reference_to_what_is_no_call_keeps_no_output(reference: dict[str, Any]) -> None:
    items = sent(responses.parse([ASK, reference, FUNCTION_OUTPUT]))
    assert [one.get("type") for one in items[2:]] == ["message"]


@pytest.mark.parametrize("name", [name for name in formats.names() if name != "openai-responses"])
def test_outputs_of_calls_that_the_service_keeps_are_text_for_others(name: str) -> None:
    document = {"previous_response_id": "resp_1", "input": [custom_output(1), ASK]}
    window = StateManager().window(responses.parse(document), Budget.UNLIMITED)
    assert "total 0" in str(window.render(name, request=True))
