"""Deeds: what a call did, to what, and with which outcome, read from its name, arguments and result.

A call changed something unless its name reads like reading (`get_user`, `fs_read`, `run_tests`), or the
command that it ran does. It failed if its result says so: by its flag, by an ``error`` or ``exit_code`` in
it, by the word that programs begin errors with, or by the count of failures if it ran tests. What it was
done to is the first argument that names an id or a path, else the first short one. Results that are JSON
texts are read like objects, two levels deep."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from ..message import ToolCallRequest, ToolCallResult
from .summary_text import line

NAME_CHARS = 64  # the longest tool name that a provider accepts
PATH_CHARS = 160  # longer values under these keys are contents, not names
ID_CHARS = 64  # as long as a digest in hex
WHY_CHARS = 100  # the line of an error that names the cause
VALUE_CHARS = 80  # of an argument; longer ones are contents
MOST_VALUES = 8  # arguments of one call
MADE_CHARS = 80  # of a result that is a line

_NUMBERED = re.compile(r"[\w-]*\d[\w-]{2,}|[\w-]{2,}\d")  # words that look like ids
_AT_MOST = 16  # items of a list
_MOST_IDS = 24  # of one result
_DEEPEST = 4  # levels of a structured error that are searched for its message
_ID_DEPTH = 2  # levels below a result's own fields that are searched for ids
_JSON_CHARS = 20_000  # of a text that is read as JSON: longer ones are data, not answers

_PATH_KEYS = frozenset(
    "path paths file files file_path file_paths filepath filename file_name filePath fileName "
    "target target_file notebook_path old_path new_path".split()
)
_DOUBTFUL_KEY = "target"  # names a path only if its value looks like one
_ID_ENDINGS = ("_id", "_ids", "Id", "Ids")

_TRACEBACK = "Traceback (most recent call last)"
_ERROR_STARTS = ("Error:", "error:", _TRACEBACK)
_REASON_KEYS = ("message", "error", "detail", "reason", "stderr", "text", "stdout", "output")
_EXIT_KEYS = ("exit_code", "exit_status", "exitCode", "returncode", "return_code")
_DOUBTFUL = ('"error"', '"success"', '"ok"', '"exit', '"return')
"""What a JSON text contains if its fields may say that it is a failure."""

_TESTS_FAILED = re.compile(
    r"^.*\b(?:[1-9]\d* fail(?:ed|ures?|ing)?|failures=[1-9]\d*)\b.*$|^FAIL(?:ED)?\b.*$", re.MULTILINE
)
_END_CHARS = 600  # of a test run's output: its summary

# Names: which calls only read.

_READING = frozenset(
    """get list ls search find read view show look lookup fetch query check calculate calculator compute
    think thought count describe inspect grep glob cat head tail stat stats diff status log logs info
    details detail history retrieve browse select explain analyze analyse validate verify test tests pytest
    unittest lint mypy ask wait help preview compare estimate recall exists whoami print echo pwd which wc
    tree du df ps rg date time weather web""".split()
)
_CHANGING = frozenset(
    """create update delete remove add set write edit insert replace append move rename apply put post patch
    send book cancel buy pay reserve commit push merge deploy install publish submit upload save store
    record register assign approve reject close reopen start stop restart mark enable disable schedule
    transfer refund modify change make build drop open rm mv cp mkdir touch tee chmod""".split()
)
_RUNNERS = frozenset("bash shell run execute exec command terminal cmd sh".split())
_COMMAND_KEYS = ("command", "commands", "cmd", "script")
_NAME_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_COMMANDS = re.compile(r"&&|\|\||[;|\n]")
_COMMAND_WORDS = 3  # of each command: `python -m pytest`, `git commit`


@lru_cache(maxsize=256)
def only_reads(name: str, command: str = "") -> bool:
    """Return True if the name of a tool, or the command that it runs, says that it changes nothing."""
    words = [word.lower() for word in _NAME_WORD.findall(name)]
    if command and not _RUNNERS.isdisjoint(words):
        parts = [one for one in _COMMANDS.split(command) if one.strip() and not one.strip().startswith("cd ")]
        return ">" not in command and all(map(_command_reads, parts))
    if words and words[0] in _READING:
        return True
    return _CHANGING.isdisjoint(words) and not _READING.isdisjoint(words)


def _command_reads(command: str) -> bool:
    words = re.findall(r"[a-z]+", command.lower())[:_COMMAND_WORDS]
    return _CHANGING.isdisjoint(words) and not _READING.isdisjoint(words)


def command_of(call: ToolCallRequest) -> str:
    """Return the command that a call runs, if it runs one."""
    for key in _COMMAND_KEYS:
        if key in call.args:
            return _short(key, call.args[key])
    return ""


# Arguments: what a call was done to.


class Deed(NamedTuple):
    """A call's name, what it made, and its short arguments: what it was done to comes first."""

    name: str
    made: str
    args: tuple[tuple[str, str], ...]

    @property
    def on(self) -> str:
        """What it was done to; empty if its arguments do not say."""
        return self.args[0][1] if self.args else ""

    @property
    def words(self) -> tuple[str, ...]:
        """All of it as one tuple of words."""
        return (self.name, self.made, *(word for pair in self.args for word in pair))


def deed(call: ToolCallRequest) -> Deed:
    """Return what a call does, before anything is known of its result."""
    args = call.args
    named = next((key for key in fields(tuple(args)).named if _names(key, args[key])), None)
    if named is None:  # a name says more than a number
        named = next((key for key in args if type(args[key]) is str and _short(key, args[key])), None)
    keys = args if named is None else (named, *(key for key in args if key != named))
    pairs = [(key[:ID_CHARS], text) for key in keys if (text := _short(key, args[key]))]
    return Deed(call.name[:NAME_CHARS], "", tuple(pairs[:MOST_VALUES]))


def _names(key: str, value: Any) -> bool:
    """Return True if an argument with a telling key names what a call was done to."""
    return bool(_short(key, value)) and (key != _DOUBTFUL_KEY or _looks_like_path(str(value)))


class CallFields(NamedTuple):
    """The keys of an object that name paths and ids, and those of either that say what a call is about."""

    paths: tuple[str, ...]
    ids: tuple[str, ...]
    named: tuple[str, ...]


@lru_cache(maxsize=256)
def fields(keys: tuple[str, ...]) -> CallFields:
    """Return what the keys of an object mean: the tools of a conversation use only a few sets of keys."""
    paths = tuple(key for key in keys if key in _PATH_KEYS)
    ids = tuple(key for key in keys if key == "id" or key.endswith(_ID_ENDINGS))
    return CallFields(
        paths, ids, tuple(key for key in keys if key in paths or key in ids or key in _COMMAND_KEYS)
    )


def made(call: ToolCallRequest, value: Any, found: Sequence[tuple[str, str]], known: Collection[str]) -> str:
    """Return what a successful call returned: its first new id, or a line that names something new."""
    for key, id in found:
        if id not in known:
            return f"{key} {id}"
    if type(value) is not str or len(value) > MADE_CHARS or found:
        return ""
    given = " ".join(one for one in call.args.values() if type(one) is str)
    named = (one for one in _NUMBERED.findall(value) if one not in given)
    return next(named, "")


def _short(key: str, value: Any) -> str:
    """Return a scalar argument as text; empty if it is a content, a structure, or says nothing."""
    if type(value) is list and value:
        if key in _PATH_KEYS:
            value = value[0]
        elif key in _COMMAND_KEYS and all(type(one) is str for one in value[:_AT_MOST]):
            value = " ".join(value[:_AT_MOST])
    if type(value) is str:
        most = PATH_CHARS if key in _PATH_KEYS or key in _COMMAND_KEYS else VALUE_CHARS
        return value.strip() if len(value) <= most and "\n" not in value else ""
    if type(value) is bool:
        return str(value).lower()
    return str(value)[:VALUE_CHARS] if type(value) is float or is_short(value) else ""


def is_short(value: Any) -> bool:
    """Return True if a value is a number that can be an id."""
    return type(value) is int and abs(value) < 10**ID_CHARS


def paths(args: Mapping[str, Any]) -> list[str]:
    """Return the paths that the arguments of a call name."""
    return [
        one
        for key in fields(tuple(args)).paths
        for one in (args[key][:_AT_MOST] if type(args[key]) is list else (args[key],))
        if type(one) is str and 0 < len(one) <= PATH_CHARS and (key != _DOUBTFUL_KEY or _looks_like_path(one))
    ]


def _looks_like_path(text: str) -> bool:
    return "://" not in text and any(mark in text for mark in "/\\.")


# Ids.


def ids(value: Any) -> Sequence[tuple[str, str]]:
    """Return the ids in arguments or a result, each with its key; a JSON text is read like the object."""
    if type(value) is str:
        return _ids_in_text(value) if is_json(value) else ()
    return _ids(value, _ID_DEPTH)[:_MOST_IDS]


@lru_cache(maxsize=256)
def _ids_in_text(text: str) -> Sequence[tuple[str, str]]:
    return _ids(_read(text), _ID_DEPTH)[:_MOST_IDS]


def _ids(value: Any, depth: int) -> list[tuple[str, str]]:
    """Return ids in their order, those of an object before those of what is in it."""
    if type(value) is list:
        return [pair for one in value[:_AT_MOST] if type(one) is dict for pair in _ids(one, depth)]
    if type(value) is not dict:
        return []
    found = [
        (key[:ID_CHARS], str(one))
        for key in fields(tuple(value)).ids
        for one in (value[key][:_AT_MOST] if type(value[key]) is list else (value[key],))
        if is_short(one) or (type(one) is str and 0 < len(one) <= ID_CHARS)
    ]
    for one in value.values() if depth else ():
        if type(one) is dict or type(one) is list:
            found += _ids(one, depth - 1)
    return found


def is_json(text: str) -> bool:
    """Return True if a text looks like an object or a list that is worth reading."""
    return text.startswith(("{", "[")) and len(text) <= _JSON_CHARS


def _read(text: str) -> Any:
    """Read a JSON text; return None if it is none."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None


# Failures.


def failed(call: ToolCallRequest, result: ToolCallResult) -> bool:
    """Return True if a result says that its call failed."""
    value = result.result
    if result.is_error:
        return True
    if type(value) is str:
        if value.startswith(_ERROR_STARTS):
            return True
        if _runs_tests(call.name, command_of(call)) and _TESTS_FAILED.search(value[-_END_CHARS:]):
            return True
        if not value.startswith("{") or not any(mark in value for mark in _DOUBTFUL) or not is_json(value):
            return False
        value = _read(value)
    return type(value) is dict and _says_failure(value)


@lru_cache(maxsize=256)
def _runs_tests(name: str, command: str) -> bool:
    return "test" in f"{name} {command}".lower()


def _says_failure(fields: Mapping[str, Any]) -> bool:
    if fields.get("error") or fields.get("success") is False or fields.get("ok") is False:
        return True
    codes = (fields[key] for key in _EXIT_KEYS if key in fields)
    return any(code not in (0, "0", None, "", False) for code in codes)


def reason(result: ToolCallResult) -> str:
    """Return why a call failed, as one line from its result, searched at most a few levels deep."""
    value = result.result
    if type(value) is str and is_json(value):
        value = _read(value) or value
    for _ in range(_DEEPEST):
        if isinstance(value, dict):
            value = next((value[key] for key in _REASON_KEYS if value.get(key)), "")
        elif isinstance(value, list | tuple):
            value = next(iter(value), "")
    if not isinstance(value, str):
        return "" if value is None or isinstance(value, dict | list | tuple) else str(value)[:WHY_CHARS]
    if value.startswith(_TRACEBACK):
        return _first_line(value[-2 * WHY_CHARS :].strip().rpartition("\n")[2])
    if counted := list(_TESTS_FAILED.finditer(value[-_END_CHARS:])):
        return _first_line(counted[-1][0][: 2 * WHY_CHARS])
    return _first_line(value[: 2 * WHY_CHARS])


@lru_cache(maxsize=256)
def _first_line(beginning: str) -> str:
    """Return the first line; cached, since agents tend to fail the same way again and again."""
    return line(beginning.strip().partition("\n")[0], WHY_CHARS)
