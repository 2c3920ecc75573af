"""Generated conversations with a coding agent: six tasks in a row, as different as their seeds.

In a task the user describes a problem and says what to keep to; the agent reads files, edits some, runs the
tests, which fail at first and in some tasks to the end, decides something, and records its work. Names of
tools, forms of results and languages differ from conversation to conversation. The kinds of facts were chosen
before any digest was tuned on them, and half of the seeds is only used for the final figure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from turnstate.ids import CallId
from turnstate.message import Message, ToolCallRequest, ToolCallResult
from turnstate.testing.conversations import huge_output

from .digest_talks import Fact, Talk

TALKS, TASKS = 20, 6
OPEN = 0.3  # of the tasks end with a failing test

PROMPT = (
    "You are a coding agent in a repository of services. Read before you edit, keep changes small, run the "
    "tests after each change, and say what you decided. Never push to a protected branch. "
) * 6


class _Tools(NamedTuple):
    """How one program names its tools and writes their results."""

    read: str
    search: str
    edit: str
    test: str
    record: str
    path: str
    structured: bool


_PROGRAMS = (
    _Tools("read_file", "search_files", "edit_file", "run_tests", "create_commit", "path", False),
    _Tools("Read", "Grep", "Edit", "Bash", "OpenPullRequest", "file_path", True),
    _Tools("fs_read", "list_directory", "fs_write", "execute_bash", "github_create_issue", "path", True),
    _Tools("view_source", "find_symbol", "apply_patch", "run_command", "save_revision", "filename", False),
)

_PARTS = "ledger parser router scheduler mailer tokens exporter cache upload quota webhook session".split()
_WHERE = "core service http store worker shared client report".split()


class _Words(NamedTuple):
    """What the user and the agent say in one language."""

    goals: tuple[str, ...]
    constraints: tuple[str, ...]
    decisions: tuple[str, ...]
    chatter: tuple[str, ...]
    clipped: int  # characters of a sentence that must survive
    looking: str
    finished: str
    failing: str


_LANGUAGES = (
    _Words(
        (
            "The {part} drops the last record when the input has no newline at its end, see {path}.",
            "We need the {part} to survive a restart: today it forgets everything in {path}.",
            "Please make {path} handle time zones; the {part} is off by an hour twice a year.",
            "Customers complain that the {part} answers twice. Start with {path} and find out why.",
        ),
        (
            "Do not change the public signature of {name}_{part}.",
            "It must keep working with Python 3.{minor} and without new dependencies.",
            "Never write more than {count} rows in one transaction of the {part}.",
            "I would rather have {name} lines of plain code than another class in the {part}.",
            "Only touch files below {where}/{part}, nothing else.",
        ),
        (
            "I decided to store the {part} position as an integer of {count} bits.",
            "We will retry {count} times with a pause in the {part}, then give up with a {name} error.",
            "The {part} keeps its order by the column {name}_at from now on.",
        ),
        ("Thank you so much!", "Yes, please proceed.", "Sounds good, go ahead.", "Great, thanks!", "ok"),
        60,
        "Let me look at that first.",
        "The change in {path} is done and its tests pass. {decision} Let me know if you need anything else!",
        "The change in {path} is made, but {test} still fails. {decision} Shall I go on?",
    ),
    _Words(
        (
            "{path} の {part} が、末尾に改行のない入力で最後の行を落とします。原因を調べてください。",
            "{part} は再起動すると状態を失います。{path} を直して、続きから動くようにしてください。",
        ),
        (
            "公開関数 {name}_{part} の引数は変更しないでください。他のチームが直接呼び出しているためです。",
            "{part} の一回の処理で {count} 行を超えて書き込まないでください。負荷が高くなるためです。",
            "新しい依存パッケージは追加せず、必ず Python 3.{minor} でも {name} が動くようにしてください。",
        ),
        (
            "{part} の位置は {count} ビットの整数として {name} 列に保存することに決めました。",
            "{part} は {count} 回まで再試行し、その後 {name} エラーにします。",
        ),
        ("ありがとうございます！", "はい、進めてください。", "了解です。", "お願いします"),
        24,
        "まず確認します。",
        "{path} の変更が完了し、テストも通りました。{decision}",
        "{path} を変更しましたが、{test} がまだ失敗しています。{decision}",
    ),
    _Words(
        (
            "{path} 里的 {part} 在输入末尾没有换行时会丢掉最后一条记录，请找出原因并修复它。",
            "{part} 重启之后会丢失全部状态，请修改 {path}，让它重启后能从原来的位置继续。",
        ),
        (
            "不要修改公开函数 {name}_{part} 的参数，其他团队的代码直接调用了这个函数，改了会出问题。",
            "{part} 每个事务最多只能写入 {count} 行，超过的话数据库的负载会太高，上个月 {name} 出过事故。",
            "不能增加新的依赖，而且必须继续支持 Python 3.{minor}，部署 {name} 的机器暂时无法升级。",
        ),
        (
            "我决定把 {part} 的位置用 {count} 位整数保存在 {name} 列里。",
            "{part} 最多重试 {count} 次，之后报告 {name} 错误。",
        ),
        ("谢谢！", "好的，请继续。", "没问题，继续吧。", "可以"),
        24,
        "我先看一下。",
        "{path} 已经改好，测试也通过了。{decision}",
        "{path} 已经修改，但是 {test} 仍然失败。{decision}",
    ),
)


class _Task:
    """One task: its words, its files, and whether its tests pass in the end."""

    def __init__(self, rng: Random, words: _Words) -> None:
        part, where = rng.choice(_PARTS), rng.choice(_WHERE)
        name = "".join(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(3))
        self.path = f"{where}/{part}/{name}.py"
        self.test = f"tests/{where}/test_{part}_{name}.py"
        self.others = [f"{where}/{part}/{rng.choice(_WHERE)}_{rng.randrange(90)}.py" for _ in range(3)]
        named = {"part": part, "where": where, "name": name, "path": self.path}
        named |= {"count": str(rng.randrange(20, 900)), "minor": str(rng.randrange(9, 13))}
        self.goal, self.constraint, self.decision = (
            rng.choice(some).format(**named) for some in (words.goals, words.constraints, words.decisions)
        )
        self.record = f"{rng.randrange(16**7):07x}" if rng.random() < 0.5 else str(rng.randrange(100, 9_999))
        self.stays_open = rng.random() < OPEN
        ending = words.failing if self.stays_open else words.finished
        self.clipped = words.clipped
        self.ending = ending.format(path=self.path, test=self.test, decision=self.decision)


def talks(*, held_out: bool = False, count: int = TALKS) -> list[Talk]:
    """Return the conversations: those to look at, or those for the final figure."""
    return [_talk(2 * number + held_out) for number in range(count)]


def _talk(seed: int) -> Talk:
    rng = Random(seed)
    tools, words = rng.choice(_PROGRAMS), rng.choice((_LANGUAGES[0], *_LANGUAGES))
    tasks = [_Task(rng, words) for _ in range(TASKS)]
    messages = [
        message for number, task in enumerate(tasks) for message in _played(rng, task, tools, words, number)
    ]
    first, _, _, fourth, fifth, *_ = tasks
    mixed = (
        Fact("goal", (first.goal[: first.clipped],)),
        *(Fact("constraint", (one.constraint[: one.clipped],)) for one in tasks[:3]),
        *_changes(first, tools),
        _decision(first),
        *(fact for one in (fourth, fifth) for fact in (*_changes(one, tools), _decision(one))),
        *(Fact("open", (one.test,)) for one in tasks[:5] if one.stays_open),
    )
    spread = tuple(fact for one in tasks[:5] for fact in _changes(one, tools))
    return Talk(PROMPT, messages, mixed, spread)


def _changes(task: _Task, tools: _Tools) -> tuple[Fact, Fact]:
    return Fact("edited", (tools.edit,), task.path), Fact("recorded", (tools.record,), task.record)


def _decision(task: _Task) -> Fact:
    return Fact("decision", (task.decision[: task.clipped],))


def _played(rng: Random, task: _Task, tools: _Tools, words: _Words, number: int) -> Iterator[Message]:
    calls = _Calls(tools, number)
    yield Message.user(task.goal)
    yield from calls.ran(tools.search, {"pattern": task.path.split("/")[1]}, "\n".join(task.others))
    for path in (task.path, *task.others[: rng.randint(1, 3)]):
        yield from calls.ran(tools.read, {tools.path: path}, _source(rng))
    yield Message.assistant(words.looking)
    yield Message.user(task.constraint + " " + rng.choice(words.chatter))
    for attempt in range(rng.randint(1, 3)):
        old, new = _source(rng, 4), _source(rng, 5)
        yield from calls.ran(
            tools.edit, {tools.path: task.path, "old": old, "new": new}, calls.done(f"edited {task.path}")
        )
        if attempt == 0:
            yield from calls.tested(task.test, failures=rng.randint(1, 4))
    yield from calls.tested(task.test, failures=1 if task.stays_open else 0)
    yield Message.assistant(words.looking)
    yield Message.user(rng.choice(words.chatter))
    title = f"{task.path.split('/')[1]}: {task.others[0]}"
    yield from calls.ran(tools.record, {"title": title, "draft": False}, calls.made(task.record))
    yield Message.assistant(task.ending)
    yield Message.user(rng.choice(words.chatter))
    yield Message.assistant(words.looking)


class _Calls:
    """Calls of a task with their results, in the form that the program gives them."""

    def __init__(self, tools: _Tools, number: int) -> None:
        self._tools, self._number, self._count = tools, number, 0

    def ran(
        self, name: str, args: dict[str, Any], result: Any, *, is_error: bool = False
    ) -> Iterator[Message]:
        self._count += 1
        id = CallId(f"call_{self._number}_{self._count}")
        yield Message.assistant(tool_calls=[ToolCallRequest(id=id, name=name, args=args)])
        yield Message.tool([ToolCallResult(tool_call_id=id, result=result, is_error=is_error)])

    def tested(self, test: str, failures: int) -> Iterator[Message]:
        args = (
            {"path": test} if self._tools.test == "run_tests" else {"command": f"python -m pytest -q {test}"}
        )
        said = f"{failures} failed, {11 - failures} passed in 0.52s" if failures else "11 passed in 0.48s"
        output = "\n".join([f"FAILED {test}::test_{n} - AssertionError" for n in range(failures)] + [said])
        if self._tools.structured:
            result = json.dumps({"exit_code": int(failures > 0), "stdout": output, "stderr": ""})
            return self.ran(self._tools.test, args, result)
        return self.ran(self._tools.test, args, output, is_error=failures > 0)

    def done(self, text: str) -> str:
        return json.dumps({"ok": True, "message": text}) if self._tools.structured else text

    def made(self, id: str) -> str:
        return (
            json.dumps({"data": {"id": id, "state": "open"}}) if self._tools.structured else f"created {id}"
        )


def _source(rng: Random, lines: int = 45) -> str:
    log = huge_output(400).split("\n")
    start = rng.randrange(len(log) - lines)
    return "\n".join(log[start : start + lines])
