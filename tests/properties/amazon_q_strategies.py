"""Amazon Q documents for Hypothesis: every variant, odd ids, tangents, unknown fields."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from tests.properties.conversation_strategies import json_values, texts

__all__ = ["damaged", "documents"]

Document = dict[str, Any]

IDS = ["tooluse_1", "tooluse_2", "tooluse_3", "", "a b"]
NAMES = ["fs_read", "fs_write", "srv___tool", "gone", "", "日本"]

sizes = st.integers(0, 2**53)
flags = st.booleans()
optional_texts = st.none() | texts
objects = st.dictionaries(texts, json_values, max_size=2)
durations = st.fixed_dictionaries({"secs": sizes, "nanos": st.integers(0, 999_999_999)})
moments = st.sampled_from(
    [
        "2025-10-25T14:03:11.482913377+09:00",
        "2025-10-25T05:03:11Z",
        "2025-10-25T05:03:11.5-03:30",
        "1970-01-01T00:00:00Z",
        "0999-12-31T23:59:60.123456789012Z",
    ]
)
starts = st.sampled_from(
    [
        [2025, 298, 5, 3, 11, 482_000_000, 0, 0, 0],
        [2024, 366, 23, 59, 59, 999_999_999, -3, -30, 0],
        "2025-10-25 05:03:11.0 +00:00:00",
        "2025-10-25 5:03:11.25 -09:30:00",
        "2025-10-25T14:03:11.482913377+09:00",
        [1, 1, 0, 0, 0, 0, 0, 0, 0],
    ]
)


@st.composite
def structs(draw: st.DrawFn, required: Document, optional: Document | None = None) -> Document:
    """Draw an object with the given fields, sometimes without some or with an unknown one."""
    found = draw(st.fixed_dictionaries(required))
    for name, strategy in (optional or {}).items():
        if draw(st.integers(0, 7)):
            found[name] = draw(strategy)
    if draw(st.integers(0, 11)) == 0:
        found["unheard_of"] = draw(json_values)
    return found


metadata = structs(
    {
        "message_id": texts,
        "request_start_timestamp_ms": st.integers(0, 2**63),
        "stream_end_timestamp_ms": st.integers(1_700_000_000_000, 1_800_000_000_000),
        "time_between_chunks": st.lists(durations, max_size=2),
        "user_prompt_length": sizes,
        "response_size": sizes,
        "tool_use_ids_and_names": st.lists(st.tuples(texts, texts).map(list), max_size=2),
        "message_meta_tags": st.lists(
            st.sampled_from(["Compact", "GenerateAgent", "TangentMode"]), max_size=2
        ),
    },
    {
        "request_id": optional_texts,
        "time_to_first_chunk": st.none() | durations,
        "chat_conversation_type": st.sampled_from([None, "NotToolUse", "ToolUse"]),
        "model_id": st.sampled_from([None, "", "claude-sonnet-4"]),
    },
)

blocks = st.builds(lambda text: {"Text": text}, texts) | st.builds(lambda value: {"Json": value}, json_values)
results = structs(
    {
        "tool_use_id": st.sampled_from(IDS),
        "content": st.lists(blocks, max_size=3),
        "status": st.sampled_from(["Error", "Success"]),
    }
)
contents = (
    structs({"prompt": texts}).map(lambda body: {"Prompt": body})
    | structs({"tool_use_results": st.lists(results, max_size=3)}).map(lambda body: {"ToolUseResults": body})
    | structs({"tool_use_results": st.lists(results, max_size=2)}, {"prompt": optional_texts}).map(
        lambda body: {"CancelledToolUses": body}
    )
)
environments = st.none() | structs(
    {"environment_variables": st.lists(st.fixed_dictionaries({"key": texts, "value": texts}), max_size=1)},
    {"operating_system": optional_texts, "current_working_directory": optional_texts},
)
images = structs(
    {
        "format": st.sampled_from(["Gif", "Jpeg", "Png", "Webp"]),
        "source": st.binary(max_size=8).map(lambda data: {"Bytes": list(data)}),
    }
)
users = structs(
    {
        "additional_context": st.just("") | texts,
        "env_context": structs({}, {"env_state": environments}),
        "content": contents,
    },
    {"timestamp": st.none() | moments, "images": st.none() | st.lists(images, max_size=2)},
)


@st.composite
def tool_uses(draw: st.DrawFn) -> Document:
    name, args = draw(st.sampled_from(NAMES)), draw(objects | json_values)
    changed = draw(st.integers(0, 3)) == 0
    return draw(
        structs(
            {
                "id": st.sampled_from(IDS),
                "name": st.just(name),
                "orig_name": st.sampled_from(NAMES) if changed else st.just(name),
                "args": st.just(args),
                "orig_args": json_values if changed else st.just(copy.deepcopy(args)),
            }
        )
    )


said = {"message_id": optional_texts}
assistants = structs({"content": texts}, said).map(lambda body: {"Response": body}) | structs(
    {"content": texts, "tool_uses": st.lists(tool_uses(), max_size=3)}, said
).map(lambda body: {"ToolUse": body})
exchanges = structs({"user": users, "assistant": assistants}, {"request_metadata": st.none() | metadata})
histories = st.lists(exchanges, max_size=4)
summaries = st.none() | st.tuples(texts, metadata).map(list)
transcripts = st.lists(texts, max_size=3)

tools = structs(
    {
        "name": st.sampled_from(["fs_read", "fs_write", "dummy", "tool"]),
        "description": texts,
        "input_schema": st.sampled_from(
            [{"json": None}, {"json": {}}, {"json": {"type": "object", "properties": {}}}]
        ),
    }
).map(lambda body: {"ToolSpecification": body})
toolboxes = st.dictionaries(
    st.sampled_from(["native___", "custom___", "srv", "other server"]),
    st.lists(tools, max_size=2),
    max_size=3,
)
trackers = structs(
    {
        "prev_fswrite_lines": sizes,
        "before_fswrite_lines": sizes,
        "after_fswrite_lines": sizes,
        "lines_added_by_agent": sizes,
        "lines_removed_by_agent": sizes,
        "is_first_write": flags,
    }
)
contexts = structs(
    {
        "max_context_files_size": sizes,
        "current_profile": texts,
        "paths": st.lists(st.sampled_from(["AGENTS.md", "docs/**/*.md", "a b", ""]), max_size=2),
        "hooks": objects,
    }
)
models = structs(
    {"model_id": st.sampled_from(["claude-sonnet-4", "nobody-knows"])},
    {
        "model_name": optional_texts,
        "description": optional_texts,
        "context_window_tokens": st.integers(50_000, 300_000),
    },
)


@st.composite
def checkpoints(draw: st.DrawFn, history: list[Document]) -> Document:
    """Draw a checkpoint manager with prefixes of a history, and some that differ from it."""
    copies = [
        copy.deepcopy(history[: draw(st.integers(0, len(history)))]) for _ in range(draw(st.integers(0, 2)))
    ]
    others = draw(st.lists(exchanges, max_size=1))
    return {
        "shadow_repo_path": "/tmp/shadow",
        "checkpoints": [
            {"tag": str(number), "description": "", "history_snapshot": [*one, *others], "is_turn": True}
            for number, one in enumerate(copies)
        ],
        "tag_index": {},
        "current_turn": len(copies),
    }


@st.composite
def tangents(draw: st.DrawFn, history: list[Document]) -> Document:
    """Draw the main conversation of a tangent: the prefix they share, and what follows."""
    common = copy.deepcopy(history[: draw(st.integers(0, len(history)))])
    return draw(
        structs(
            {
                "main_history": histories.map(lambda more: common + more),
                "main_transcript": transcripts,
            },
            {
                "main_next_message": st.none() | users,
                "main_latest_summary": summaries,
                "tangent_start_time": starts,
            },
        )
    )


@st.composite
def documents(draw: st.DrawFn) -> Document:
    """Draw a document whose valid range is the whole history, as Amazon Q saves it."""
    history = draw(histories)
    document = draw(
        structs(
            {
                "conversation_id": st.sampled_from(["0d0f6a52-6a57-4f0e-9a52-2f4f5b0c9d11", "x", "é"]),
                "history": st.just(history),
                "valid_history_range": st.just([0, len(history)]),
                "transcript": transcripts,
                "tools": toolboxes,
            },
            {
                "next_message": st.none() | users,
                "context_manager": st.none() | contexts,
                "context_message_length": st.none() | sizes,
                "latest_summary": summaries,
                "model": st.none() | st.sampled_from(["claude-sonnet-4", "nobody-knows"]),
                "model_info": st.none() | models,
                "file_line_tracker": st.dictionaries(texts, trackers, max_size=2),
                "mcp_enabled": flags,
            },
        )
    )
    if draw(st.integers(0, 2)) == 0:
        document["tangent_state"] = draw(st.none() | tangents(history))
    if draw(st.integers(0, 2)) == 0:
        document["checkpoint_manager"] = draw(st.none() | checkpoints(history))
    return document


@st.composite
def damaged(draw: st.DrawFn) -> Document:
    """Draw a document in which something was removed, or replaced by something else."""
    document = copy.deepcopy(draw(documents()))
    for _ in range(draw(st.integers(1, 2))):
        holder, step = draw(st.sampled_from(list(_nodes(document))))
        if draw(flags):
            del holder[step]
        else:
            holder[step] = draw(json_values)
        if not document:
            break
    return document


def _nodes(value: Any) -> Iterator[tuple[Any, Any]]:
    steps = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for step in steps:
        yield value, step
        yield from _nodes(value[step])
