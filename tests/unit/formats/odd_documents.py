"""Documents that providers take although they look odd: each must come back as it was, and convert."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

__all__ = ["ODD", "Odd"]

PIXEL = base64.b64encode(b"\x89PNG not really").decode()
PDF = base64.b64encode(b"%PDF-1.4 not really").decode()


class Odd(NamedTuple):
    provider: str
    says: str
    document: Any


ASK = {"role": "user", "content": "Look outside."}
SAY = {"role": "assistant", "content": "Fog."}


def chat_call(id: str, name: str = "look", arguments: str = "{}", **rest: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}, **rest}


def chat_calls(*calls: Any, content: Any = None, **rest: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls), **rest}


def chat_answer(id: str, content: Any = "fog", **rest: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content, **rest}


CHAT: dict[str, Any] = {
    "parallel calls are answered out of order": [
        ASK,
        chat_calls(chat_call("a"), chat_call("b"), chat_call("c")),
        chat_answer("c", "3"),
        chat_answer("a", "1"),
        chat_answer("b", "2"),
        SAY,
    ],
    "text stands beside calls": [ASK, chat_calls(chat_call("a"), content="Let me look."), chat_answer("a")],
    "empty text stands beside calls": [ASK, chat_calls(chat_call("a"), content=""), chat_answer("a")],
    "content is absent beside calls": [
        ASK,
        {"role": "assistant", "tool_calls": [chat_call("a")]},
        chat_answer("a"),
    ],
    "a result is empty text": [ASK, chat_calls(chat_call("a")), chat_answer("a", ""), SAY],
    "several system messages, one in the middle and one at the end": [
        {"role": "system", "content": "You keep a lighthouse."},
        {"role": "system", "content": "Answer briefly."},
        ASK,
        {"role": "system", "content": "A storm is coming."},
        SAY,
        {"role": "system", "content": "  "},
    ],
    "ids repeat across batches": [
        ASK,
        chat_calls(chat_call("call_0", arguments='{"at":1}'), chat_call("call_1", arguments='{"at":2}')),
        chat_answer("call_1", "two"),
        chat_answer("call_0", "one"),
        chat_calls(chat_call("call_0", arguments='{"at":3}')),
        chat_answer("call_0", "three"),
        ASK,
        chat_calls(chat_call("call_0", arguments='{"at":4}')),
        chat_answer("call_0", "four"),
    ],
    "arguments are no JSON": [
        ASK,
        chat_calls(
            chat_call("a", arguments='{"at": '), chat_call("b", arguments=""), chat_call("c", arguments="7")
        ),
        chat_answer("a"),
        chat_answer("b"),
        chat_answer("c"),
    ],
    "arguments hold a key twice and a number out of range": [
        ASK,
        chat_calls(
            chat_call("a", arguments='{"at":1,"at":2}'), chat_call("b", arguments='{"n":1e999,"m":NaN}')
        ),
        chat_answer("a"),
        chat_answer("b"),
    ],
    "arguments are spaced and escaped": [
        ASK,
        chat_calls(chat_call("a", arguments='{ "at" : "\\u00fc\\/", "deep": [1.0, 1, true, -0.0, 1e2] }\n')),
        chat_answer("a"),
    ],
    "the developer speaks": [{"role": "developer", "content": "Be brief."}, ASK, SAY],
    "the assistant refuses": [ASK, {"role": "assistant", "content": None, "refusal": "I will not."}],
    "a refusal is a part": [
        ASK,
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not."}]},
    ],
    "a custom tool is called": [
        ASK,
        chat_calls({"id": "a", "type": "custom", "custom": {"name": "sh", "input": "ls -la\n"}}),
        chat_answer("a", "total 0"),
    ],
    "pictures, files and sound": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {
                    "type": "image_url",
                    "image_url": {"url": f"data:image/png;base64,{PIXEL}", "detail": "low"},
                },
                {"type": "image_url", "image_url": {"url": "https://example.com/a.jpg?size=1#top"}},
                {
                    "type": "file",
                    "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
                },
                {"type": "file", "file": {"file_id": "file-1"}},
                {"type": "input_audio", "input_audio": {"data": PDF, "format": "wav"}},
            ],
        },
        SAY,
    ],
    "a picture in a file, a file in a picture, and bytes of no type": [
        {
            "role": "user",
            "content": [
                {
                    "type": "file",
                    "file": {"filename": "a.png", "file_data": f"data:image/png;base64,{PIXEL}"},
                },
                {"type": "image_url", "image_url": {"url": f"data:application/pdf;base64,{PDF}"}},
                {"type": "image_url", "image_url": {"url": f"data:;base64,{PIXEL}"}},
                {"type": "file", "file": {"file_data": f"data:text/plain;charset=utf-8;base64,{PDF}"}},
                {"type": "image_url", "image_url": {"url": "data:image/png,not%20base64"}},
            ],
        },
    ],
    "a result is a list of texts": [
        ASK,
        chat_calls(chat_call("a")),
        chat_answer("a", [{"type": "text", "text": "fog"}, {"type": "text", "text": "rain"}]),
    ],
    "fields and parts that nobody knows yet": {
        "model": "gpt-9",
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}],
        "dream": {"depth": 1.0},
        "messages": [
            {"role": "user", "name": "ada", "content": [{"type": "scent", "scent": {"of": "sea"}}]},
            chat_calls(chat_call("a", color="red"), reasoning_content="Hm."),
            chat_answer("a", name="look"),
            {"role": "assistant", "content": "Fog.", "weight": 1},
        ],
    },
    "the assistant speaks first": [SAY, ASK, SAY],
    "the assistant speaks twice in a row": [ASK, SAY, {"role": "assistant", "content": "Rain, too."}],
    "a message says [empty], another says nothing": [
        {"role": "user", "content": "[empty]"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": " \n"},
        {"role": "assistant", "content": [{"type": "text", "text": ""}]},
    ],
    "only the system speaks": [{"role": "system", "content": "You keep a lighthouse."}, ASK],
    "texts with NUL, astral and combining characters": [
        {"role": "user", "content": "a\x00b \U0001f3d4 e\u0301 \u202e\u2028\ufeff \x1b[0m"},
        SAY,
    ],
    "ids that others refuse": [
        ASK,
        chat_calls(chat_call("look:0/通話 ="), chat_call("b" * 40)),
        chat_answer("b" * 40),
        chat_answer("look:0/通話 ="),
    ],
}


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


def function_call(call_id: str, name: str = "look", arguments: str = "{}", **rest: Any) -> dict[str, Any]:
    return item("function_call", call_id=call_id, name=name, arguments=arguments, **rest)


def output(call_id: str, output: Any = "fog", **rest: Any) -> dict[str, Any]:
    return item("function_call_output", call_id=call_id, output=output, **rest)


def spoken(text: str, **rest: Any) -> dict[str, Any]:
    parts = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return item("message", role="assistant", content=parts, status="completed", **rest)


RESPONSES: dict[str, Any] = {
    "the input is a plain string": {"input": "Look outside.", "model": "gpt-5"},
    "instructions are null": {"input": [ASK, SAY], "instructions": None, "previous_response_id": None},
    "instructions and a developer message": {
        "instructions": "You keep a lighthouse.",
        "input": [{"role": "developer", "content": "Be brief."}, ASK, SAY],
    },
    "reasoning, encrypted and stored": [
        ASK,
        item(
            "reasoning",
            id="rs_1",
            summary=[{"type": "summary_text", "text": "Hm."}],
            encrypted_content="gAAA",
        ),
        function_call("a", id="fc_1", status="completed"),
        output("a"),
        item("reasoning", id="rs_2", summary=[]),
        spoken("Fog.", id="msg_1"),
    ],
    "reasoning stands between parallel calls": [
        ASK,
        item("reasoning", id="rs_1", summary=[]),
        function_call("a"),
        item("reasoning", id="rs_2", summary=[{"type": "summary_text", "text": "And?"}]),
        function_call("b", "hear"),
        output("b", "gulls"),
        output("a"),
        spoken("Fog and gulls."),
    ],
    "answers come late and out of order": [
        ASK,
        function_call("a"),
        function_call("b"),
        spoken("Working on it."),
        {"role": "user", "content": "Hurry."},
        output("b", "2"),
        output("a", "1"),
    ],
    "hosted tools and their outputs": [
        ASK,
        item("web_search_call", id="ws_1", status="completed", action={"type": "search", "query": "fog"}),
        item("file_search_call", id="fs_1", queries=["fog"], results=None),
        spoken("Fog."),
        item("custom_tool_call", call_id="k", name="sh", input="ls"),
        item("custom_tool_call_output", call_id="k", output="total 0"),
        item("mcp_list_tools", id="mcpl_1", server_label="sea", tools=[]),
    ],
    "calls of every kind": [
        ASK,
        item("reasoning", id="rs_1", summary=[]),
        item("custom_tool_call", call_id="a", name="sh", input="ls", id="ctc_1"),
        item("shell_call", call_id="b", action={"commands": ["ls"]}, status="completed", environment=None),
        item("local_shell_call", call_id="c", id="lsh_1", action={"type": "exec", "command": ["ls"]}),
        item(
            "apply_patch_call",
            call_id="d",
            operation={"type": "delete_file", "path": "a"},
            status="completed",
        ),
        item("computer_call", call_id="e", id="cu_1", actions=[{"type": "wait"}], pending_safety_checks=[]),
        item("mcp_approval_request", id="mcpr_1", server_label="sea", name="drop", arguments="{ }"),
        item("mcp_approval_response", approval_request_id="mcpr_1", approve=False, id=None),
        item(
            "computer_call_output", call_id="e", output={"type": "computer_screenshot", "file_id": "file-1"}
        ),
        item("apply_patch_call_output", call_id="d", status="failed", output=None),
        item("local_shell_call_output", id="c", output='{"exit": 0}'),
        item("shell_call_output", call_id="b", output=[], max_output_length=None),
        item("custom_tool_call_output", call_id="a", output=[{"type": "input_text", "text": "fog"}]),
        {"id": "msg_1"},
        spoken("Fog."),
    ],
    "pictures and files, in what the user says and in what a tool gives": [
        item(
            "message",
            role="user",
            content=[
                {"type": "input_text", "text": "What is this?"},
                {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"},
                {"type": "input_image", "file_id": "file-1", "detail": "low"},
                {
                    "type": "input_file",
                    "filename": "a.pdf",
                    "file_data": f"data:application/pdf;base64,{PDF}",
                },
                {"type": "input_file", "file_url": "https://example.com/a.pdf"},
                {"type": "input_audio", "input_audio": {"data": PDF, "format": "mp3"}},
            ],
        ),
        function_call("a"),
        output("a", [{"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}]),
        spoken("A picture."),
    ],
    "a result is empty": [ASK, function_call("a"), output("a", ""), function_call("b"), output("b", [])],
    "the assistant refuses, then speaks twice": [
        ASK,
        item("message", role="assistant", content=[{"type": "refusal", "refusal": "No."}], id="msg_1"),
        spoken("Well."),
        {"role": "assistant", "content": "Fog."},
    ],
    "fields and items that nobody knows yet": {
        "input": [ASK, item("dream", depth=1.0), spoken("Fog.", phase="final"), {**ASK, "mood": None}],
        "tools": [
            {"type": "function", "name": "look", "parameters": {"type": "object"}},
            {"type": "web_search"},
        ],
        "store": False,
    },
}


def user(*blocks: Any, **rest: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks), **rest}


def assistant(*blocks: Any, **rest: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks), **rest}


def words(text: str = "Fog.", **rest: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **rest}


def tool_use(id: str, name: str = "look", input: Any = None, **rest: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": input or {}, **rest}


def tool_result(id: str, **rest: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, **rest}


CACHED = {"cache_control": {"type": "ephemeral"}}
THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
REDACTED = {"type": "redacted_thinking", "data": "EmwK"}

ANTHROPIC: dict[str, Any] = {
    "parallel calls are answered out of order": [
        ASK,
        assistant(tool_use("a"), tool_use("b")),
        user(tool_result("b", content="2"), tool_result("a", content="1")),
    ],
    "results are split over two neighbors": [
        ASK,
        assistant(tool_use("a"), tool_use("b")),
        user(tool_result("a", content="1")),
        user(tool_result("b", content="2"), words("And?")),
        SAY,
    ],
    "calls are split over two neighbors": [
        ASK,
        assistant(words("First."), tool_use("a")),
        assistant(words("Then."), tool_use("b")),
        user(tool_result("b", content="2"), tool_result("a", content="1")),
    ],
    "the user speaks twice in a row, and so does the assistant": [
        ASK,
        user(words("And hear.")),
        SAY,
        SAY,
        ASK,
    ],
    "words follow results, calls precede words": [
        ASK,
        assistant(tool_use("a"), words("I looked.")),
        user(tool_result("a"), words("Thanks."), words("And now?")),
    ],
    "results that are empty, absent, null, in blocks, in error": [
        ASK,
        assistant(*(tool_use(id) for id in "abcdef")),
        user(
            tool_result("a", content=""),
            tool_result("b"),
            tool_result("c", content=[]),
            tool_result("d", content=[words("fog"), words("rain")]),
            tool_result("e", content="no such file", is_error=True),
            tool_result("f", content="fine", is_error=False),
        ),
    ],
    "thinking, redacted and signed": {
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "messages": [
            ASK,
            assistant(THINKING, REDACTED, words("Let me look."), tool_use("a")),
            user(tool_result("a", content="fog")),
            assistant({"type": "thinking", "thinking": "", "signature": "c2ln"}, words()),
        ],
    },
    "thinking between the service's own tools, words and calls": {
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "messages": [
            ASK,
            assistant(
                THINKING,
                {
                    "type": "server_tool_use",
                    "id": "srvtoolu_1",
                    "name": "web_search",
                    "input": {"query": "fog"},
                },
                {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
                THINKING,
                words("Let me look."),
                tool_use("a"),
                THINKING,
                tool_use("b"),
            ),
            user(tool_result("a", content="fog"), tool_result("b", content="rain")),
        ],
    },
    "system messages among the others": {
        "system": "You keep a lighthouse.",
        "messages": [
            ASK,
            {"role": "system", "content": "Hurry."},
            SAY,
            ASK,
            {"role": "system", "content": [words("Slowly.", **CACHED)], "clear_at": "next_user_message"},
        ],
    },
    "cache marks on prompt, words, tools and results": {
        "model": "claude",
        "max_tokens": 100,
        "system": [words("You keep a lighthouse."), words("Be brief.", **CACHED)],
        "tools": [{"name": "look", "input_schema": {"type": "object"}, **CACHED}],
        "messages": [
            user(words("Look.", **CACHED)),
            assistant(tool_use("a", **CACHED)),
            user(tool_result("a", content=[words("fog", **CACHED)], **CACHED)),
        ],
    },
    "the system prompt is null": {"system": None, "messages": [ASK]},
    "the system prompt is empty": {"system": "", "messages": [ASK, SAY]},
    "the system prompt is an empty list": {"system": [], "messages": [ASK, SAY]},
    "pictures and documents, in what the user says and in what a tool gives": [
        user(
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a"}},
            {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}},
            {
                "type": "document",
                "title": "a",
                "source": {"type": "text", "media_type": "text/plain", "data": "Ü"},
            },
            {
                "type": "document",
                "source": {"type": "content", "content": [words()]},
                "citations": {"enabled": True},
            },
        ),
        assistant(tool_use("a")),
        user(
            tool_result(
                "a",
                content=[
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
                    words(),
                ],
            )
        ),
    ],
    "the service's own tools": [
        ASK,
        assistant(
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "fog"}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
            words("Fog.", citations=[{"type": "char_location", "start_char_index": 0}]),
            tool_use("a"),
        ),
        user(tool_result("a", content=[{"type": "tool_reference", "tool_name": "hear"}])),
    ],
    "fields and blocks that nobody knows yet": {
        "dream": 1.0,
        "messages": [
            user({"type": "scent", "of": "sea"}, mood="calm"),
            assistant(tool_use("a", input={"deep": {"n": [1, 1.0, True, None]}}), stop="tool_use"),
            user(tool_result("a", content="fog", weight=1), words(), mood=None),
        ],
    },
    "a tool's name has 128 characters": [
        ASK,
        assistant(tool_use("a", "n" * 128), tool_use("b", "n" * 127)),
        user(tool_result("a"), tool_result("b")),
    ],
    "texts that begin and end with white space": [
        {"role": "user", "content": " look "},
        assistant(words("\n\nFog.\n")),
        user(words("[empty]")),
    ],
}


def text(text: str = "Fog.") -> dict[str, Any]:
    return {"text": text}


def tool_use_block(id: str, name: str = "look", input: Any = None) -> dict[str, Any]:
    return {"toolUse": {"toolUseId": id, "name": name, "input": input or {}}}


def tool_result_block(id: str, *content: Any, **rest: Any) -> dict[str, Any]:
    return {"toolResult": {"toolUseId": id, "content": list(content), **rest}}


CONFIG = {"tools": [{"toolSpec": {"name": "look", "inputSchema": {"json": {"type": "object"}}}}]}


def converse(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"messages": list(messages), "toolConfig": CONFIG, **fields}


UASK, USAY = user(text("Look outside.")), assistant(text("Fog."))

BEDROCK: dict[str, Any] = {
    "parallel calls are answered out of order, with words behind": converse(
        UASK,
        assistant(text("Let me look."), tool_use_block("a"), tool_use_block("b")),
        user(tool_result_block("b", text("2")), tool_result_block("a", text("1")), text("And?")),
        USAY,
    ),
    "results between words": converse(
        UASK,
        assistant(tool_use_block("a"), tool_use_block("b")),
        user(
            text("Here:"), tool_result_block("a", text("1")), text("and"), tool_result_block("b", text("2"))
        ),
    ),
    "results of every kind": converse(
        UASK,
        assistant(*(tool_use_block(id) for id in "abcdefg")),
        user(
            tool_result_block("a"),
            tool_result_block("b", {"json": {"sea": {"calm": True, "waves": 0.5}}}),
            tool_result_block("c", {"json": {}}),
            tool_result_block("d", text("fog"), text("rain")),
            tool_result_block("e", text("no such file"), status="error"),
            tool_result_block("f", text("fine"), status="success"),
            tool_result_block(
                "g", {"image": {"format": "png", "source": {"bytes": PIXEL}}}, {"json": {"n": 1}}
            ),
        ),
    ),
    "cache points in prompt, words and tools": converse(
        user(text("Look."), {"cachePoint": {"type": "default"}}),
        assistant(tool_use_block("a"), {"cachePoint": {"type": "default"}}),
        user(tool_result_block("a", text("fog")), {"cachePoint": {"type": "default"}}),
        system=[text("You keep a lighthouse."), {"cachePoint": {"type": "default"}}, text("Be brief.")],
        modelId="m",
        inferenceConfig={"temperature": 1.0},
    ),
    "reasoning, signed and redacted": converse(
        UASK,
        assistant(
            {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}},
            {"reasoningContent": {"redactedContent": PIXEL}},
            tool_use_block("a"),
        ),
        user(tool_result_block("a", text("fog"))),
    ),
    "pictures, documents, videos and guarded words": {
        "messages": [
            user(
                {"image": {"format": "png", "source": {"bytes": PIXEL}}},
                {"image": {"format": "jpeg", "source": {"s3Location": {"uri": "s3://bucket/a.jpg"}}}},
                {
                    "document": {
                        "format": "pdf",
                        "name": "a",
                        "source": {"bytes": PDF},
                        "citations": {"enabled": True},
                    }
                },
                {
                    "document": {
                        "format": "csv",
                        "name": "b",
                        "source": {"s3Location": {"uri": "s3://bucket/b.csv"}},
                    }
                },
                {"video": {"format": "mp4", "source": {"bytes": PIXEL}}},
                {"guardContent": {"text": {"text": "Is this fine?"}}},
            ),
            USAY,
        ]
    },
    "the system prompt is null": {"system": None, "messages": [UASK]},
    "the system prompt is an empty list": {"system": [], "messages": [UASK]},
    "ids with dots and colons": converse(
        UASK,
        assistant(tool_use_block("functions.look:0")),
        user(tool_result_block("functions.look:0", text("fog"))),
    ),
    "a result is a video, a search result": converse(
        UASK,
        assistant(tool_use_block("a"), tool_use_block("b")),
        user(
            tool_result_block("a", {"video": {"format": "mp4", "source": {"bytes": PIXEL}}}),
            tool_result_block("b", {"searchResult": {"source": "s", "title": "t", "content": [text()]}}),
        ),
    ),
    "fields and blocks that nobody knows yet": converse(
        user(text("Look."), {"scent": {"of": "sea"}}), {**USAY, "mood": "calm"}, dream={"depth": 1.0}
    ),
    "a bare list": [UASK, assistant(tool_use_block("a")), user(tool_result_block("a", text("fog")))],
}


def content(role: str | None, *parts: Any, **rest: Any) -> dict[str, Any]:
    return {**({"role": role} if role else {}), "parts": list(parts), **rest}


def call(
    name: str = "look", args: Any = None, *, signature: str | None = None, **rest: Any
) -> dict[str, Any]:
    signed = {"thoughtSignature": signature} if signature else {}
    return {"functionCall": {"name": name, "args": args or {}, **rest}, **signed}


def response(name: str = "look", response: Any = None, **rest: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": response or {"sea": "calm"}, **rest}}


GASK, GSAY = content("user", text("Look outside.")), content("model", text("Fog."))

GEMINI: dict[str, Any] = {
    "calls without ids are answered out of order": {
        "contents": [
            GASK,
            content("model", call("look"), call("hear"), call("look", {"at": 2})),
            content(
                "user", response("hear", {"n": 2}), response("look", {"n": 1}), response("look", {"n": 3})
            ),
            GSAY,
        ]
    },
    "calls with ids are answered out of order": {
        "contents": [
            GASK,
            content("model", call(id="1"), call(id="2")),
            content("user", response(id="2", response={"n": 2}), response(id="1", response={"n": 1})),
        ]
    },
    "only the calls have ids, or only the answers": {
        "contents": [
            GASK,
            content("model", call(id="1"), call("hear")),
            content("user", response("look", {"n": 1}), response("hear", {"n": 2}, id="9")),
            GSAY,
        ]
    },
    "everything in snake case": {
        "system_instruction": {"parts": [text("You keep a lighthouse.")]},
        "contents": [
            content("user", {"inline_data": {"mime_type": "image/png", "data": PIXEL}}, text("Look.")),
            content("model", {"function_call": {"name": "look", "args": {}}, "thought_signature": "c2ln"}),
            content("user", {"function_response": {"name": "look", "response": {"output": "fog"}}}),
        ],
        "tools": [{"function_declarations": [{"name": "look", "parameters": {"type": "OBJECT"}}]}],
        "generation_config": {"temperature": 1.0},
    },
    "roles are absent": {"contents": [content(None, text("Look."))]},
    "roles are absent, responses and words in one content": {
        "contents": [GASK, content("model", call()), content(None, response(), text("And?"))]
    },
    "responses and words in one content": {
        "contents": [
            GASK,
            content("model", text("Let me."), call("look"), call("hear")),
            content("user", text("Here:"), response("look"), text("and"), response("hear"), text("Well?")),
            GSAY,
        ]
    },
    "responses and words in two contents": {
        "contents": [GASK, content("model", call()), content("user", response()), GASK]
    },
    "the user speaks twice in a row": {"contents": [GASK, GASK, GSAY]},
    "the model speaks twice in a row": {"contents": [GASK, GSAY, GSAY]},
    "thoughts and signatures": {
        "model": "gemini-3-pro",
        "contents": [
            GASK,
            content(
                "model",
                {"text": "Hm.", "thought": True, "thoughtSignature": "c2ln"},
                {"text": "Let me look.", "thoughtSignature": "c2ln"},
                call("look", signature="c2ln"),
                call("hear"),
            ),
            content("user", response("look"), response("hear")),
            content("model", text(), {"text": "", "thoughtSignature": "c2ln"}),
        ],
    },
    "responses that are wrapped, and errors": {
        "contents": [
            GASK,
            content("model", *(call(id=id) for id in "abcdef")),
            content(
                "user",
                response(id="a", response={"output": "fog"}),
                response(id="b", response={"error": "no such file"}),
                response(id="c", response={"output": {"error": 1}}),
                response(id="d", response={"error": "x", "code": 1}),
                response(id="e", response={"output": [1, None, ""]}),
                response(id="f", response={"output": ""}),
            ),
        ]
    },
    "files, code and pictures": {
        "contents": [
            content(
                "user",
                {"fileData": {"mimeType": "application/pdf", "fileUri": "https://example.com/a.pdf"}},
                {"fileData": {"fileUri": "gs://bucket/a"}},
                {"inlineData": {"mimeType": "image/png", "data": PIXEL}, "videoMetadata": {"fps": 1.0}},
                {"inlineData": {"mimeType": "audio/wav", "data": PDF}},
            ),
            content(
                "model",
                {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
                {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}},
                text(),
            ),
        ]
    },
    "the system instruction is text": {"systemInstruction": "You keep a lighthouse.", "contents": [GASK]},
    "the system instruction has a role": {
        "systemInstruction": {"role": "system", "parts": [text("You keep a lighthouse."), text("Be brief.")]},
        "contents": [GASK, GSAY],
    },
    "the system instruction is null": {"systemInstruction": None, "contents": [GASK]},
    "a bare list": [GASK, GSAY],
    "fields and parts that nobody knows yet": {
        "contents": [
            content("user", {"scent": {"of": "sea"}}, mood="calm"),
            content("model", text(), weight=1.0),
        ],
        "dream": 1,
    },
    "arguments are absent": {
        "contents": [
            GASK,
            content("model", {"functionCall": {"name": "look"}}),
            content("user", response()),
        ]
    },
}

_TABLES = {
    "openai-chat": CHAT,
    "openai-responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "bedrock": BEDROCK,
    "gemini": GEMINI,
}

ODD = [
    Odd(provider, says, document) for provider, table in _TABLES.items() for says, document in table.items()
]
