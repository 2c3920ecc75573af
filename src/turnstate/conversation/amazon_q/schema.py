"""The schema of an Amazon Q conversation document, and the check of a document against it.

An enum is an object with one key, the name of its variant; a struct is an object that may have extra
keys. Fields that Amazon Q requires are required here; fields that it has defaults for are optional.
This module only checks: a document that passes can be read without further type checks.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ...errors import InvalidPayload

Size = Annotated[int, Meta(ge=0)]
Byte = Annotated[int, Meta(ge=0, le=255)]
Name = Annotated[str, Meta(min_length=1)]

_PLACE = re.compile(r"(?P<text>.*) - at `(?P<path>[^`]*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]*)`")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST = 200  # characters of an error message, which a document may influence


class _Enum(Struct, forbid_unknown_fields=True):
    """One of several variants."""

    def __post_init__(self) -> None:
        names = self.__struct_fields__
        if sum(getattr(self, name) is not UNSET for name in names) != 1:
            raise ValueError(f"Expected one of {', '.join(names)}")


class _Duration(Struct):
    secs: Size
    nanos: Size


class _Metadata(Struct):
    message_id: str
    request_start_timestamp_ms: Size
    stream_end_timestamp_ms: Size
    time_between_chunks: list[_Duration]
    user_prompt_length: Size
    response_size: Size
    tool_use_ids_and_names: list[tuple[str, str]]
    message_meta_tags: list[str]
    request_id: str | None = None
    time_to_first_chunk: _Duration | None = None
    chat_conversation_type: str | None = None
    model_id: str | None = None


class _Block(_Enum):
    Json: Any = UNSET
    Text: str | UnsetType = UNSET


class _Result(Struct):
    tool_use_id: str
    content: list[_Block]
    status: Literal["Error", "Success"]


class _Prompt(Struct):
    prompt: str


class _Cancelled(Struct):
    tool_use_results: list[_Result]
    prompt: str | None = None


class _Results(Struct):
    tool_use_results: list[_Result]


class _Content(_Enum):
    Prompt: _Prompt | UnsetType = UNSET
    CancelledToolUses: _Cancelled | UnsetType = UNSET
    ToolUseResults: _Results | UnsetType = UNSET


class _Variable(Struct):
    key: str
    value: str


class _EnvState(Struct):
    environment_variables: list[_Variable]
    operating_system: str | None = None
    current_working_directory: str | None = None


class _EnvContext(Struct):
    env_state: _EnvState | None = None


class _Source(_Enum):
    Bytes: list[Byte] | UnsetType = UNSET


class _Image(Struct):
    format: Literal["Gif", "Jpeg", "Png", "Webp"]
    source: _Source


class _User(Struct):
    additional_context: str
    env_context: _EnvContext
    content: _Content
    timestamp: str | None = None
    images: list[_Image] | None = None


class _ToolUse(Struct):
    id: str
    name: str
    orig_name: str
    args: Any
    orig_args: Any


class _Response(Struct):
    content: str
    message_id: str | None = None


class _ToolUses(Struct):
    content: str
    tool_uses: list[_ToolUse]
    message_id: str | None = None


class _Assistant(_Enum):
    Response: _Response | UnsetType = UNSET
    ToolUse: _ToolUses | UnsetType = UNSET


class _Entry(Struct):
    user: _User
    assistant: _Assistant
    request_metadata: _Metadata | None = None


class _Schema(Struct):
    json: dict[str, Any] | None


class _Specification(Struct):
    name: Name
    description: str
    input_schema: _Schema


class _Tool(_Enum):
    ToolSpecification: _Specification | UnsetType = UNSET


class _Context(Struct):
    max_context_files_size: Size
    current_profile: str
    paths: list[str]
    hooks: dict[str, Any]


class _Model(Struct):
    model_id: str
    model_name: str | None = None
    description: str | None = None
    context_window_tokens: Size = 200_000


class _Tracker(Struct):
    prev_fswrite_lines: Size
    before_fswrite_lines: Size
    after_fswrite_lines: Size
    lines_added_by_agent: Size
    lines_removed_by_agent: Size
    is_first_write: bool


class _Tangent(Struct):
    main_history: list[_Entry]
    main_transcript: list[str]
    main_next_message: _User | None = None
    main_latest_summary: tuple[str, _Metadata] | None = None


class _Conversation(Struct):
    conversation_id: Name
    history: list[_Entry]
    valid_history_range: tuple[Size, Size]
    transcript: list[str]
    tools: dict[str, Any]
    next_message: _User | None = None
    context_manager: _Context | None = None
    context_message_length: Size | None = None
    latest_summary: tuple[str, _Metadata] | None = None
    model: str | None = None
    model_info: _Model | None = None
    file_line_tracker: dict[str, Any] = {}
    checkpoint_manager: dict[str, Any] | None = None
    mcp_enabled: bool = True
    tangent_state: _Tangent | None = None


def check(document: Any) -> None:
    """Raise `InvalidPayload` with the path to the first fault if a document does not match the schema."""
    _check(document, _Conversation, "$")
    for server, tools in document["tools"].items():
        _check(tools, list[_Tool], f"$.tools{_step(server)}")
    for file, tracker in document.get("file_line_tracker", {}).items():
        _check(tracker, _Tracker, f"$.file_line_tracker{_step(file)}")


def _check(value: Any, kind: Any, at: str) -> None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        text, path = str(error), "$"
        if place := _PLACE.fullmatch(text):
            text, path = place["text"], place["path"]
        if missing := _MISSING.fullmatch(text):
            text, path = "a required field is missing", f"{path}.{missing['field']}"
        raise InvalidPayload(text[:_LONGEST], path=at + path.removeprefix("$")) from None


def _step(key: str) -> str:
    return f".{key}" if len(key) <= 40 and _IDENTIFIER.fullmatch(key) else f"[{key!r:.42}]"
