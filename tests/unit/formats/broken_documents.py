"""Documents that a provider answers with 400, each with the rule that it breaks.

``expected`` is the rule, the index of the message and the id concerned; ``also`` lists the rules that the
same fault breaks besides, where it cannot break one alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["BROKEN", "Broken"]

LONG_ID = "x" * 41
SIXTY_FIVE = "n" * 65


class Broken(NamedTuple):
    provider: str
    says: str
    document: Any
    expected: tuple[str, int, str | None]
    also: tuple[str, ...] = ()
    request: bool = False


def chat_call(id: Any = "a", name: Any = "look", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def chat_calls(*calls: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def chat_answer(id: Any = "a", content: Any = "fog") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


ASK = {"role": "user", "content": "Look outside."}
SAY = {"role": "assistant", "content": "Fog."}

CHAT = [
    ("the messages are an object", {"messages": {"role": "user"}}, ("shape", 0, None)),
    ("the messages are missing", {"model": "m"}, ("shape", 0, None)),
    ("there are no messages", [], ("no-messages", 0, None)),
    ("a message is text", [ASK, "hello"], ("shape", 1, None)),
    ("a role is unknown", [{"role": "robot", "content": "hi"}], ("role", 0, None)),
    ("a role is missing", [ASK, {"content": "hi"}], ("role", 1, None)),
    ("the last call has no answer", [ASK, chat_calls(chat_call())], ("call-unanswered", 1, "a")),
    (
        "one of two parallel calls has no answer",
        [ASK, chat_calls(chat_call("a"), chat_call("b")), chat_answer("b"), SAY],
        ("call-unanswered", 1, "a"),
    ),
    (
        "the user speaks between call and answer",
        [ASK, chat_calls(chat_call()), ASK, chat_answer()],
        ("call-unanswered", 1, "a"),
        ("result-orphan",),
    ),
    (
        "a system message stands between call and answer",
        [ASK, chat_calls(chat_call()), {"role": "system", "content": "Hurry."}, chat_answer()],
        ("result-orphan", 3, "a"),
        ("call-unanswered",),
    ),
    (
        "the assistant speaks again while a call is open",
        [ASK, chat_calls(chat_call("a")), chat_calls(chat_call("b")), chat_answer("a"), chat_answer("b")],
        ("call-unanswered", 1, "a"),
        ("result-orphan",),
    ),
    ("an answer comes first", [chat_answer("a"), ASK], ("result-orphan", 0, "a")),
    (
        "an answer is for no call",
        [ASK, chat_calls(chat_call()), chat_answer("a"), chat_answer("zz")],
        ("result-orphan", 3, "zz"),
    ),
    (
        "an answer has no id",
        [ASK, chat_calls(chat_call()), chat_answer("a"), {"role": "tool", "content": "fog"}],
        ("result-orphan", 3, None),
    ),
    (
        "an answer is for a batch before the nearest",
        [ASK, chat_calls(chat_call("a")), chat_answer("a"), chat_calls(chat_call("b")), chat_answer("a")],
        ("result-orphan", 4, "a"),
        ("call-unanswered",),
    ),
    (
        "an answer comes before its call",
        [ASK, chat_answer("a"), chat_calls(chat_call("a")), chat_answer("a")],
        ("result-orphan", 1, "a"),
    ),
    (
        "a call is answered twice",
        [ASK, chat_calls(chat_call()), chat_answer(), chat_answer()],
        ("result-twice", 3, "a"),
    ),
    (
        "tool_calls is empty",
        [ASK, {"role": "assistant", "content": "Fog.", "tool_calls": []}],
        ("tool-calls-empty", 1, None),
    ),
    (
        "tool_calls is an object",
        [ASK, {"role": "assistant", "content": "Fog.", "tool_calls": {"id": "a"}}],
        ("tool-calls-empty", 1, None),
    ),
    ("the user's content is null", [{"role": "user", "content": None}], ("content-null", 0, None)),
    ("the user's content is missing", [{"role": "user"}], ("content-null", 0, None)),
    ("a system content is null", [{"role": "system", "content": None}, ASK], ("content-null", 0, None)),
    (
        "the assistant says nothing and calls nothing",
        [ASK, {"role": "assistant", "content": None}],
        ("content-null", 1, None),
    ),
    (
        "an answer's content is null",
        [ASK, chat_calls(chat_call()), chat_answer("a", None)],
        ("content-null", 2, "a"),
    ),
    ("content is a number", [{"role": "user", "content": 7}], ("content", 0, None)),
    ("content is an empty list", [{"role": "user", "content": []}], ("content", 0, None)),
    ("a part has no type", [{"role": "user", "content": [{"text": "hi"}]}], ("content", 0, None)),
    ("a call has no id", [ASK, chat_calls(chat_call(None))], ("call-id", 1, None)),
    ("a call's id is empty", [ASK, chat_calls(chat_call(""))], ("call-id", 1, "")),
    (
        "a call's id has 41 characters",
        [ASK, chat_calls(chat_call(LONG_ID)), chat_answer(LONG_ID)],
        ("call-id", 1, LONG_ID),
    ),
    (
        "an id occurs twice in one batch",
        [ASK, chat_calls(chat_call("a"), chat_call("a")), chat_answer("a"), chat_answer("a")],
        ("call-id", 1, "a"),
        ("result-twice",),
    ),
    (
        "a name holds a dot",
        [ASK, chat_calls(chat_call("a", "look.out")), chat_answer()],
        ("tool-name", 1, "a"),
    ),
    (
        "a name has 65 characters",
        [ASK, chat_calls(chat_call("a", SIXTY_FIVE)), chat_answer()],
        ("tool-name", 1, "a"),
    ),
    ("a name is empty", [ASK, chat_calls(chat_call("a", "")), chat_answer()], ("tool-name", 1, "a")),
    (
        "a name ends in a line break",
        [ASK, chat_calls(chat_call("a", "look\n")), chat_answer()],
        ("tool-name", 1, "a"),
    ),
    (
        "arguments are an object",
        [ASK, chat_calls(chat_call("a", "look", {"at": 1})), chat_answer()],
        ("arguments", 1, "a"),
    ),
    (
        "arguments are missing",
        [ASK, chat_calls({"id": "a", "type": "function", "function": {"name": "look"}}), chat_answer()],
        ("arguments", 1, "a"),
    ),
    (
        "the input of a custom tool is an object",
        [
            ASK,
            chat_calls({"id": "a", "type": "custom", "custom": {"name": "sh", "input": {}}}),
            chat_answer(),
        ],
        ("arguments", 1, "a"),
    ),
    ("a call has no function", [ASK, chat_calls({"id": "a"}), chat_answer()], ("shape", 1, "a")),
]


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


def function_call(
    call_id: Any = "a", name: Any = "look", arguments: Any = "{}", **rest: Any
) -> dict[str, Any]:
    return item("function_call", call_id=call_id, name=name, arguments=arguments, **rest)


def output(call_id: Any = "a", output: Any = "fog") -> dict[str, Any]:
    return item("function_call_output", call_id=call_id, output=output)


THOUGHT = item("reasoning", id="rs_1", summary=[])

RESPONSES = [
    ("the input is a number", {"input": 7}, ("shape", 0, None)),
    ("the input is an empty list", {"input": []}, ("no-messages", 0, None)),
    ("an item is text", [ASK, "hello"], ("shape", 1, None)),
    ("an item's type is a number", [ASK, {"type": 7}], ("shape", 1, None)),
    ("a role is unknown", [{"role": "tool", "content": "hi"}], ("role", 0, None)),
    ("content is null", [item("message", role="user", content=None)], ("content", 0, None)),
    ("content is an empty list", [ASK, item("message", role="assistant", content=[])], ("content", 1, None)),
    ("a part has no type", [item("message", role="user", content=[{"text": "hi"}])], ("content", 0, None)),
    ("a call has no answer", [ASK, function_call()], ("call-unanswered", 1, "a")),
    (
        "one of two calls has no answer",
        [ASK, function_call("a"), function_call("b"), output("a"), SAY],
        ("call-unanswered", 2, "b"),
    ),
    ("an answer is for no call", [ASK, output("zz")], ("result-orphan", 1, "zz")),
    ("an answer has no id", [ASK, item("function_call_output", output="fog")], ("result-orphan", 1, None)),
    (
        "an answer comes before its call",
        [ASK, output("a"), function_call("a")],
        ("result-orphan", 1, "a"),
        ("call-unanswered",),
    ),
    (
        "a call is answered twice",
        [ASK, function_call(), output(), output()],
        ("result-twice", 3, "a"),
    ),
    (
        "a call is answered twice where the service has the rest",
        {"input": [output(), output()], "previous_response_id": "resp_1"},
        ("result-twice", 1, "a"),
    ),
    (
        "two calls have one id",
        [ASK, function_call(), output(), function_call(), output()],
        ("call-id", 3, "a"),
        ("result-twice",),
    ),
    ("a call has no id", [ASK, function_call(None)], ("call-id", 1, None)),
    (
        "a call's id has 65 characters",
        [ASK, function_call("x" * 65), output("x" * 65)],
        ("call-id", 1, "x" * 65),
    ),
    (
        "a name holds a space",
        [ASK, function_call("a", "look out"), output()],
        ("tool-name", 1, "a"),
    ),
    ("a name is missing", [ASK, function_call("a", None), output()], ("tool-name", 1, "a")),
    (
        "arguments are an object",
        [ASK, function_call("a", "look", {"at": 1}), output()],
        ("arguments", 1, "a"),
    ),
    ("an output is an object", [ASK, function_call(), output("a", {"sea": 1})], ("output", 2, "a")),
    ("an output is null", [ASK, function_call(), output("a", None)], ("output", 2, "a")),
    (
        "an output is of another kind than its call",
        [ASK, item("custom_tool_call", call_id="a", name="sh", input="ls"), output("a")],
        ("result-kind", 2, "a"),
    ),
    (
        "a patch is neither done nor failed",
        [
            ASK,
            item("apply_patch_call", call_id="a", operation={}, status="completed"),
            item("apply_patch_call_output", call_id="a", status="maybe"),
        ],
        ("output", 2, "a"),
    ),
    (
        "a request for approval is left open",
        [ASK, item("mcp_approval_request", id="a", server_label="sea", name="drop", arguments="{}"), ASK],
        ("call-unanswered", 1, "a"),
    ),
    (
        "an approval is for no request",
        [ASK, item("mcp_approval_response", approval_request_id="a", approve=True)],
        ("result-orphan", 1, "a"),
    ),
    ("reasoning stands at the end", [ASK, THOUGHT], ("reasoning-alone", 1, None)),
    ("reasoning stands before the user", [ASK, THOUGHT, ASK], ("reasoning-alone", 1, None)),
    (
        "reasoning is separated from its call by another answer",
        [ASK, function_call("a"), THOUGHT, output("a"), function_call("b"), output("b")],
        ("reasoning-alone", 2, None),
    ),
    (
        "a message's id is invented",
        [ASK, item("message", role="assistant", id="m1", content="Fog.")],
        ("item-id", 1, "m1"),
    ),
    (
        "a call's item id is that of a message",
        [ASK, function_call(id="msg_1"), output()],
        ("item-id", 1, "msg_1"),
    ),
    ("a reasoning id is a number", [ASK, item("reasoning", id=7, summary=[]), SAY], ("item-id", 1, None)),
]


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def words(text: Any = "Fog.") -> dict[str, Any]:
    return {"type": "text", "text": text}


def tool_use(id: Any = "a", name: Any = "look", input: Any = None) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": {} if input is None else input}


def tool_result(id: Any = "a", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, **fields}


THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}

ANTHROPIC = [
    ("the messages are text", {"messages": "hello"}, ("shape", 0, None)),
    ("there are no messages", {"messages": []}, ("no-messages", 0, None)),
    ("a message is a list", [ASK, []], ("shape", 1, None)),
    ("a block is text", [user("hello")], ("shape", 0, None)),
    ("a block has no type", [user({"text": "hello"})], ("shape", 0, None)),
    (
        "a system message comes first",
        [{"role": "system", "content": "Hurry."}, ASK],
        ("system-place", 0, None),
    ),
    (
        "a system message follows the assistant",
        [ASK, SAY, {"role": "system", "content": "Hurry."}],
        ("system-place", 2, None),
    ),
    (
        "a system message comes before the user",
        [ASK, {"role": "system", "content": "Hurry."}, ASK],
        ("system-place", 1, None),
    ),
    (
        "two system messages in a row",
        [ASK, {"role": "system", "content": "Hurry."}, {"role": "system", "content": "Slowly."}],
        ("system-place", 1, None),
    ),
    (
        "a system message stands between a call and its answer",
        [ASK, assistant(tool_use()), {"role": "system", "content": "Hurry."}, user(tool_result())],
        ("call-unanswered", 1, "a"),
        ("system-place", "result-orphan"),
    ),
    ("a role is unknown", [ASK, {"role": "tool", "content": "Fog."}], ("role", 1, None)),
    ("the user uses a tool", [user(words(), tool_use())], ("role", 0, "a"), ("call-unanswered",)),
    ("the assistant answers a call", [ASK, assistant(tool_result())], ("role", 1, "a")),
    ("the assistant speaks first", [SAY, ASK], ("first-user", 0, None)),
    ("content is empty text", [{"role": "user", "content": ""}], ("content-empty", 0, None)),
    ("content is an empty list", [ASK, assistant()], ("content-empty", 1, None)),
    ("content is null", [ASK, {"role": "assistant", "content": None}], ("content-empty", 1, None)),
    ("a text block is empty", [user(words(""))], ("text-empty", 0, None)),
    ("a text block is null", [user(words(None))], ("text-empty", 0, None)),
    ("a message is white space", [{"role": "user", "content": " \n"}], ("text-blank", 0, None)),
    (
        "white space stands before a call",
        [ASK, assistant(words("\n\n"), tool_use()), user(tool_result())],
        ("text-blank", 1, None),
    ),
    (
        "a result is white space",
        [ASK, assistant(tool_use()), user(tool_result(content="\n"))],
        ("text-blank", 2, "a"),
    ),
    (
        "a text block inside a result is white space",
        [ASK, assistant(tool_use()), user(tool_result(content=[words("\t")]))],
        ("text-blank", 2, "a"),
    ),
    ("a system block is white space", {"system": [words("\n")], "messages": [ASK]}, ("system", 0, None)),
    (
        "a text block inside a result is empty",
        [ASK, assistant(tool_use()), user(tool_result(content=[words("")]))],
        ("text-empty", 2, "a"),
    ),
    ("the last call has no answer", [ASK, assistant(tool_use())], ("call-unanswered", 1, "a")),
    (
        "one of two parallel calls has no answer",
        [ASK, assistant(tool_use("a"), tool_use("b")), user(tool_result("b"))],
        ("call-unanswered", 1, "a"),
    ),
    (
        "the answer comes a message too late",
        [ASK, assistant(tool_use()), ASK, SAY, user(tool_result())],
        ("call-unanswered", 1, "a"),
        ("result-orphan",),
    ),
    (
        "the answer comes after words",
        [ASK, assistant(tool_use()), user(words(), tool_result())],
        ("results-first", 2, "a"),
    ),
    (
        "the answer comes in a neighbor after words",
        [ASK, assistant(tool_use()), user(words()), user(tool_result())],
        ("results-first", 3, "a"),
    ),
    (
        "a picture stands between two answers",
        [
            ASK,
            assistant(tool_use("a"), tool_use("b")),
            user(
                tool_result("a"),
                {"type": "image", "source": {"type": "url", "url": "https://e.org/i.png"}},
                tool_result("b"),
            ),
        ],
        ("results-first", 2, "b"),
    ),
    ("an answer is for no call", [user(tool_result("zz"))], ("result-orphan", 0, "zz")),
    (
        "an answer is for a call of an earlier message",
        [
            ASK,
            assistant(tool_use("a")),
            user(tool_result("a")),
            assistant(tool_use("b")),
            user(tool_result("b"), tool_result("a")),
        ],
        ("result-orphan", 4, "a"),
    ),
    ("an answer has no id", [ASK, SAY, user(tool_result(None))], ("result-orphan", 2, None)),
    (
        "a call is answered twice",
        [ASK, assistant(tool_use()), user(tool_result(), tool_result())],
        ("result-twice", 2, "a"),
    ),
    (
        "a call is answered twice, in neighbors",
        [ASK, assistant(tool_use()), user(tool_result()), user(tool_result())],
        ("result-twice", 3, "a"),
    ),
    (
        "an id is used again later",
        [ASK, assistant(tool_use()), user(tool_result()), assistant(tool_use()), user(tool_result())],
        ("call-id", 3, "a"),
    ),
    (
        "an id occurs twice in one message",
        [ASK, assistant(tool_use(), tool_use()), user(tool_result())],
        ("call-id", 1, "a"),
    ),
    (
        "an id holds a colon",
        [ASK, assistant(tool_use("look:0")), user(tool_result("look:0"))],
        ("call-id", 1, "look:0"),
    ),
    ("an id is missing", [ASK, assistant(tool_use(None)), ASK], ("call-id", 1, None)),
    (
        "a name has 129 characters",
        [ASK, assistant(tool_use("a", "n" * 129)), user(tool_result())],
        ("tool-name", 1, "a"),
    ),
    (
        "a name is in another script",
        [ASK, assistant(tool_use("a", "見る")), user(tool_result())],
        ("tool-name", 1, "a"),
    ),
    (
        "the input is a string",
        [ASK, assistant(tool_use("a", "look", "{}")), user(tool_result())],
        ("arguments", 1, "a"),
    ),
    (
        "the input is a list",
        [ASK, assistant(tool_use("a", "look", [])), user(tool_result())],
        ("arguments", 1, "a"),
    ),
    (
        "thinking has no signature",
        [ASK, assistant({"type": "thinking", "thinking": "Hm."}, words())],
        ("thinking", 1, None),
    ),
    ("the user thinks", [user(THINKING, words())], ("thinking", 0, None)),
    ("the system prompt is a number", {"system": 7, "messages": [ASK]}, ("system", 0, None)),
    ("a system block is empty", {"system": [words("")], "messages": [ASK]}, ("system", 0, None)),
    ("a system block is text", {"system": ["Hurry."], "messages": [ASK]}, ("system", 0, None)),
]

ANTHROPIC_REQUESTS = [
    ("the assistant has the last word", {"messages": [ASK, SAY]}, ("last-user", 1, None)),
    ("the assistant has the last two words", {"messages": [ASK, SAY, SAY]}, ("last-user", 2, None)),
    (
        "a paused turn ends with white space",
        {
            "messages": [
                ASK,
                assistant(
                    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}, words("Fog. ")
                ),
            ]
        },
        ("text-end", 1, None),
    ),
    (
        "thinking is on and the calls begin without it",
        {
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "messages": [ASK, assistant(tool_use()), user(tool_result())],
        },
        ("thinking-first", 1, None),
    ),
    (
        "thinking is on and the calls begin with words",
        {
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "messages": [ASK, SAY, ASK, assistant(words(), tool_use()), user(tool_result(), words())],
        },
        ("thinking-first", 3, None),
    ),
]


def text(text: Any = "Fog.") -> dict[str, Any]:
    return {"text": text}


def tool_use_block(id: Any = "a", name: Any = "look", input: Any = None) -> dict[str, Any]:
    return {"toolUse": {"toolUseId": id, "name": name, "input": {} if input is None else input}}


def tool_result_block(id: Any = "a", content: Any = None, **fields: Any) -> dict[str, Any]:
    return {"toolResult": {"toolUseId": id, "content": [text()] if content is None else content, **fields}}


def converse(*messages: Any, **fields: Any) -> dict[str, Any]:
    config = {"tools": [{"toolSpec": {"name": "look", "inputSchema": {"json": {"type": "object"}}}}]}
    return {"messages": list(messages), "toolConfig": config, **fields}


UASK, USAY = user(text("Look outside.")), assistant(text("Fog."))

BEDROCK = [
    ("the messages are missing", {"modelId": "m"}, ("shape", 0, None)),
    ("there are no messages", {"messages": []}, ("no-messages", 0, None)),
    ("a message is null", converse(UASK, None), ("shape", 1, None)),
    ("a block is text", converse(user("hello")), ("shape", 0, None)),
    ("a block is empty", converse(user({})), ("shape", 0, None)),
    ("a role is unknown", converse({"role": "tool", "content": [text()]}), ("role", 0, None)),
    (
        "the user uses a tool",
        converse(user(text(), tool_use_block())),
        ("role", 0, "a"),
        ("call-unanswered",),
    ),
    ("the assistant answers a call", converse(UASK, assistant(tool_result_block())), ("role", 1, "a")),
    ("the assistant speaks first", converse(USAY, UASK), ("first-user", 0, None)),
    ("the user speaks twice in a row", converse(UASK, UASK), ("alternation", 1, None)),
    ("the assistant speaks twice in a row", converse(UASK, USAY, USAY), ("alternation", 2, None)),
    ("content is text", converse({"role": "user", "content": "hello"}), ("content-empty", 0, None)),
    ("content is an empty list", converse(UASK, assistant()), ("content-empty", 1, None)),
    ("a text is empty", converse(user(text(""))), ("text-blank", 0, None)),
    ("a text is white space", converse(UASK, assistant(text(" \n\t"))), ("text-blank", 1, None)),
    ("the last call has no answer", converse(UASK, assistant(tool_use_block())), ("call-unanswered", 1, "a")),
    (
        "one of two calls has no answer",
        converse(UASK, assistant(tool_use_block("a"), tool_use_block("b")), user(tool_result_block("a"))),
        ("call-unanswered", 1, "b"),
    ),
    (
        "the answer comes too late",
        converse(UASK, assistant(tool_use_block()), UASK, USAY, user(tool_result_block())),
        ("result-orphan", 4, "a"),
        ("call-unanswered",),
    ),
    (
        "there is one answer too many",
        converse(UASK, assistant(tool_use_block()), user(tool_result_block("a"), tool_result_block("zz"))),
        ("result-orphan", 2, "zz"),
    ),
    ("an answer comes first", converse(user(tool_result_block())), ("result-orphan", 0, "a")),
    (
        "a call is answered twice",
        converse(UASK, assistant(tool_use_block()), user(tool_result_block(), tool_result_block())),
        ("result-twice", 2, "a"),
    ),
    (
        "an id is used again later",
        converse(
            UASK,
            assistant(tool_use_block()),
            user(tool_result_block()),
            assistant(tool_use_block()),
            user(tool_result_block()),
        ),
        ("call-id", 3, "a"),
    ),
    (
        "an id has 65 characters",
        converse(UASK, assistant(tool_use_block("x" * 65)), user(tool_result_block("x" * 65))),
        ("call-id", 1, "x" * 65),
    ),
    (
        "an id holds a slash",
        converse(UASK, assistant(tool_use_block("a/b")), user(tool_result_block("a/b"))),
        ("call-id", 1, "a/b"),
    ),
    (
        "an id is missing",
        converse(UASK, assistant({"toolUse": {"name": "look", "input": {}}})),
        ("call-id", 1, None),
    ),
    (
        "a name holds a dot",
        converse(UASK, assistant(tool_use_block("a", "look.out")), user(tool_result_block())),
        ("tool-name", 1, "a"),
    ),
    (
        "a name has 65 characters",
        converse(UASK, assistant(tool_use_block("a", SIXTY_FIVE)), user(tool_result_block())),
        ("tool-name", 1, "a"),
    ),
    (
        "the input is a string",
        converse(UASK, assistant(tool_use_block("a", "look", "{}")), user(tool_result_block())),
        ("arguments", 1, "a"),
    ),
    (
        "a result's content is text",
        converse(UASK, assistant(tool_use_block()), user(tool_result_block("a", "fog"))),
        ("result-content", 2, "a"),
    ),
    (
        "a result's json is a list",
        converse(UASK, assistant(tool_use_block()), user(tool_result_block("a", [{"json": [1]}]))),
        ("result-content", 2, "a"),
    ),
    (
        "a result holds a block of no kind",
        converse(UASK, assistant(tool_use_block()), user(tool_result_block("a", [{"toolUse": {}}]))),
        ("result-content", 2, "a"),
    ),
    (
        "a result's status is a word of its own",
        converse(UASK, assistant(tool_use_block()), user(tool_result_block(status="failed"))),
        ("result-status", 2, "a"),
    ),
    (
        "tools are used and not configured",
        {"messages": [UASK, assistant(tool_use_block()), user(tool_result_block())]},
        ("tool-config", 0, None),
    ),
    (
        "tools are used and the configuration is empty",
        converse(UASK, assistant(tool_use_block()), user(tool_result_block()), toolConfig={"tools": []}),
        ("tool-config", 0, None),
    ),
    (
        "a text inside a result is blank",
        converse(UASK, assistant(tool_use_block()), user(tool_result_block(content=[text(" ")]))),
        ("text-blank", 2, "a"),
    ),
    (
        "an error says nothing",
        converse(UASK, assistant(tool_use_block()), user(tool_result_block(content=[], status="error"))),
        ("result-content", 2, "a"),
    ),
    (
        "a system message follows the assistant",
        converse(UASK, USAY, {"role": "system", "content": [text()]}),
        ("system-place", 2, None),
    ),
    (
        "a system message comes before the user",
        converse(UASK, {"role": "system", "content": [text()]}, UASK),
        ("system-place", 2, None),
    ),
    ("the system prompt is text", converse(UASK, system="Hurry."), ("system", 0, None)),
    ("a system text is blank", converse(UASK, system=[text(" ")]), ("system", 0, None)),
]

BEDROCK_REQUESTS = [
    ("the assistant has the last word", converse(UASK, USAY), ("last-user", 1, None)),
    (
        "the assistant has the last word after tools",
        converse(UASK, assistant(tool_use_block()), user(tool_result_block()), USAY),
        ("last-user", 3, None),
    ),
]


def content(role: str, *parts: Any) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


def call(name: Any = "look", args: Any = None, **rest: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {} if args is None else args, **rest}}


def response(name: Any = "look", response: Any = None, **rest: Any) -> dict[str, Any]:
    return {
        "functionResponse": {
            "name": name,
            "response": {"sea": "calm"} if response is None else response,
            **rest,
        }
    }


GASK, GSAY = content("user", text("Look outside.")), content("model", text("Fog."))

GEMINI = [
    ("the contents are text", {"contents": "hello"}, ("shape", 0, None)),
    ("there are no contents", {"contents": []}, ("no-messages", 0, None)),
    ("a content is text", [GASK, "hello"], ("shape", 1, None)),
    ("a role is that of others", [GASK, content("assistant", text())], ("role", 1, None)),
    ("a system content stands in the list", [content("system", text()), GASK], ("role", 0, None)),
    ("the user calls a function", [content("user", call())], ("role", 0, None), ("call-unanswered",)),
    (
        "the model answers a call",
        [GASK, content("model", call(id="c")), content("model", response(id="c"))],
        ("role", 2, "c"),
    ),
    ("the model speaks first", [GSAY, GASK], ("first-user", 0, None)),
    ("parts are empty", [content("user")], ("parts-empty", 0, None)),
    ("parts are missing", [GASK, {"role": "model"}], ("parts-empty", 1, None)),
    ("a text is empty", [content("user", text(""))], ("part-empty", 0, None)),
    ("a part is an empty object", [GASK, content("model", {})], ("part-empty", 1, None)),
    ("a part is text", [content("user", "hello")], ("part-empty", 0, None)),
    ("a thought is empty", [GASK, content("model", {"text": "", "thought": True})], ("part-empty", 1, None)),
    (
        "a call comes right after the model's words",
        [GASK, GSAY, content("model", call(id="c")), content("user", response(id="c"))],
        ("call-place", 2, "c"),
    ),
    (
        "the first content calls",
        [content("model", call()), content("user", response())],
        ("first-user", 0, None),
        ("call-place",),
    ),
    ("the last call has no answer", [GASK, content("model", call())], ("call-unanswered", 1, "look")),
    (
        "one of two calls has no answer",
        [GASK, content("model", call("look"), call("hear")), content("user", response("hear"))],
        ("call-unanswered", 1, "look"),
    ),
    (
        "one of two calls of one name has no answer",
        [GASK, content("model", call(), call()), content("user", response())],
        ("call-unanswered", 1, "look"),
    ),
    (
        "the answers come in two contents",
        [
            GASK,
            content("model", call("look"), call("hear")),
            content("user", response("look")),
            content("user", response("hear")),
        ],
        ("call-unanswered", 1, "hear"),
        ("result-orphan",),
    ),
    (
        "words come before the answers",
        [GASK, content("model", call(id="c")), GASK, content("user", response(id="c"))],
        ("call-unanswered", 1, "c"),
        ("result-orphan",),
    ),
    ("an answer is for no call", [content("user", response(id="zz"))], ("result-orphan", 0, "zz")),
    (
        "an answer has the id of no call",
        [GASK, content("model", call(id="c")), content("user", response(id="d"))],
        ("result-orphan", 2, "d"),
        ("call-unanswered",),
    ),
    (
        "there is one answer too many",
        [GASK, content("model", call()), content("user", response(), response())],
        ("result-orphan", 2, None),
    ),
    (
        "a response is text",
        [GASK, content("model", call(id="c")), content("user", response("look", "fog", id="c"))],
        ("response-object", 2, "c"),
    ),
    (
        "a response is missing",
        [GASK, content("model", call()), content("user", {"functionResponse": {"name": "look"}})],
        ("response-object", 2, None),
    ),
    (
        "an id occurs twice in one content",
        [
            GASK,
            content("model", call(id="c"), call(id="c")),
            content("user", response(id="c"), response(id="c")),
        ],
        ("call-id", 1, "c"),
    ),
    (
        "a name is missing",
        [GASK, content("model", call(None)), content("user", response(None))],
        ("tool-name", 1, None),
    ),
    (
        "a name has 65 characters",
        [GASK, content("model", call(SIXTY_FIVE, id="c")), content("user", response(SIXTY_FIVE, id="c"))],
        ("tool-name", 1, "c"),
    ),
    (
        "the arguments are a string",
        [GASK, content("model", call("look", "{}", id="c")), content("user", response(id="c"))],
        ("arguments", 1, "c"),
    ),
    (
        "the arguments are a string, in snake case",
        [
            GASK,
            content("model", {"function_call": {"name": "look", "args": "{}"}}),
            content("user", response()),
        ],
        ("arguments", 1, None),
    ),
    (
        "the system instruction has no parts",
        {"systemInstruction": {}, "contents": [GASK]},
        ("system", 0, None),
    ),
    (
        "the system instruction is a number",
        {"system_instruction": 7, "contents": [GASK]},
        ("system", 0, None),
    ),
]

GEMINI_REQUESTS = [
    (
        "a call of the current turn is not signed",
        {
            "model": "gemini-3-pro",
            "contents": [GASK, content("model", call(id="c")), content("user", response(id="c"))],
        },
        ("thought-signature", 1, "c"),
    ),
    (
        "the second step of the current turn is not signed",
        {
            "model": "models/gemini-3-flash",
            "contents": [
                GASK,
                content("model", {**call(), "thought_signature": "c2ln"}),
                content("user", response()),
                content("model", call()),
                content("user", response()),
            ],
        },
        ("thought-signature", 3, None),
    ),
]

CHAT += [
    ("annotations of a response", [ASK, {**SAY, "annotations": []}], ("response-field", 1, None)),
    ("a refusal that is null", [ASK, {**SAY, "refusal": None}], ("response-field", 1, None)),
    ("sound that is null", [ASK, {**SAY, "audio": None}], ("response-field", 1, None)),
    ("a function call that is null", [ASK, {**SAY, "function_call": None}], ("response-field", 1, None)),
    ("calls that are null", [ASK, {**SAY, "tool_calls": None}], ("response-field", 1, None)),
    (
        "the sound itself beside its id",
        [ASK, {"role": "assistant", "content": None, "audio": {"id": "audio_1", "data": "AAAA"}}],
        ("response-field", 1, None),
    ),
    (
        "the number of a streamed call",
        [ASK, chat_calls({**chat_call(), "index": 0}), chat_answer()],
        ("response-field", 1, None),
    ),
    (
        "the usage of a response",
        {"messages": [ASK, SAY], "usage": {"total_tokens": 7}},
        ("response-field", 0, None),
    ),
]

RESPONSES += [
    (
        "the status of a call is null",
        [ASK, {**function_call(), "status": None}, output()],
        ("response-field", 1, None),
    ),
    (
        "the content of reasoning is null",
        [ASK, item("reasoning", id="rs_1", summary=[], content=None), function_call(), output()],
        ("response-field", 1, None),
    ),
    (
        "the output of a response",
        {"input": [ASK], "output": [], "status": "completed"},
        ("response-field", 0, None),
    ),
]

ANTHROPIC += [
    (
        "what a response says of itself",
        [ASK, {**SAY, "id": "msg_1", "stop_reason": "end_turn"}],
        ("response-field", 1, None),
    ),
    (
        "citations that are null",
        [ASK, assistant({"type": "text", "text": "Fog.", "citations": None})],
        ("response-field", 1, None),
    ),
    (
        "a caller that is null",
        [ASK, assistant({**tool_use(), "caller": None}), user(tool_result())],
        ("response-field", 1, None),
    ),
    ("the usage of a response", {"messages": [ASK], "usage": {}}, ("response-field", 0, None)),
]

BEDROCK += [
    (
        "why a response stopped",
        {"messages": [UASK], "stopReason": "end_turn", "metrics": {"latencyMs": 7}},
        ("response-field", 0, None),
    ),
]

GEMINI += [
    ("candidates", {"contents": [GASK], "candidates": []}, ("response-field", 0, None)),
    (
        "why a candidate stopped",
        {"contents": [GASK, {**GSAY, "finish_reason": "STOP", "index": 0}]},
        ("response-field", 1, None),
    ),
    (
        "a part with a null for every other kind of part",
        {"contents": [GASK, content("model", {"text": "Fog.", "functionCall": None})]},
        ("response-field", 1, None),
    ),
]

_TABLES: list[tuple[str, list[Any], bool]] = [
    ("openai-chat", CHAT, False),
    ("openai-responses", RESPONSES, False),
    ("anthropic", ANTHROPIC, False),
    ("anthropic", ANTHROPIC_REQUESTS, True),
    ("bedrock", BEDROCK, False),
    ("bedrock", BEDROCK_REQUESTS, True),
    ("gemini", GEMINI, False),
    ("gemini", GEMINI_REQUESTS, True),
]

BROKEN = [
    Broken(provider, row[0], row[1], row[2], row[3] if len(row) > 3 else (), request)
    for provider, rows, request in _TABLES
    for row in rows
]
