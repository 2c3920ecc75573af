"""The template: the sentence that a summary stands in, such as ``[Memory Summary] … {summary}``.

A cut records the bare text; the template is put around it when a window is made, so that a change
of wording needs no new cut. Texts that come back from a model, or from a list that somebody else
kept, may bring the template along: it is taken off before it is put on, and never doubled.
"""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct

__all__ = ["LANGUAGES", "TEMPLATES", "WORDINGS", "Language", "Wording", "bare", "filled", "label"]

# The wording of digests in each language that a policy may ask for.


Language = Literal["en", "ja", "zh"]
"""The languages of digests: English, Japanese, Chinese."""

LANGUAGES: tuple[Language, ...] = get_args(Language)

TEMPLATES: dict[Language, str] = {
    "en": "[Memory Summary] Previous conversation context: {summary}",
    "ja": "[Memory Summary] 前文の要約：{summary}",
    "zh": "[Memory Summary] 前文摘要：{summary}",
}


class Wording(Struct, frozen=True, kw_only=True):
    """The phrases of one language."""

    earlier: str
    left_out: str
    left_out_turns: str
    some_left_out: str
    message: tuple[str, str]  # one, and any other number
    turn: tuple[str, str]
    least: tuple[str, str]
    said: str
    more: str
    failed: str
    on: str
    tasks: str
    decided: str
    files: str
    ids: str
    succeeded: str
    others: str
    known: str  # before the facts beside a model's words
    sentence: str
    item: str  # between the items of a list
    word: str  # between the words of an item
    space: str  # between sentences


WORDINGS: dict[Language, Wording] = {
    "en": Wording(
        earlier="Earlier summary: {}.",
        left_out="{} left out.",
        left_out_turns="{} ({}) left out.",
        some_left_out="Earlier messages are left out.",
        message=("{} earlier message", "{} earlier messages"),
        turn=("{} turn", "{} turns"),
        least=("{} message.", "{} messages."),
        said="The user said",
        more="and {} more",
        failed="Failed",
        on=" on {}",
        tasks="Open tasks",
        decided="Decided",
        files="Files",
        ids="Ids",
        succeeded="Succeeded",
        others="others",
        known="Computed from the log: ",
        sentence="{}: {}.",
        item="; ",
        word=", ",
        space=" ",
    ),
    "ja": Wording(
        earlier="以前の要約：{}。",
        left_out="{}を省略。",
        left_out_turns="{}（{}）を省略。",
        some_left_out="以前のメッセージを省略。",
        message=("以前のメッセージ{}件", "以前のメッセージ{}件"),
        turn=("{}ターン", "{}ターン"),
        least=("メッセージ{}件。", "メッセージ{}件。"),
        said="ユーザーの発言",
        more="ほか{}件",
        failed="失敗",
        on="（{}）",
        tasks="未完了のタスク",
        decided="決定事項",
        files="ファイル",
        ids="ID",
        succeeded="成功",
        others="その他",
        known="ログから算出：",
        sentence="{}：{}。",
        item="；",
        word="、",
        space="",
    ),
    "zh": Wording(
        earlier="更早的摘要：{}。",
        left_out="省略了{}。",
        left_out_turns="省略了{}（{}）。",
        some_left_out="省略了更早的消息。",
        message=("更早的{}条消息", "更早的{}条消息"),
        turn=("{}轮", "{}轮"),
        least=("{}条消息。", "{}条消息。"),
        said="用户说过",
        more="另有{}条",
        failed="失败",
        on="（{}）",
        tasks="未完成的任务",
        decided="已决定",
        files="文件",
        ids="ID",
        succeeded="成功",
        others="其他",
        known="由日志得出：",
        sentence="{}：{}。",
        item="；",
        word="，",
        space="",
    ),
}


SLOT = "{summary}"

LEAST_LABEL = 8
"""Characters; a shorter label cannot be told from ordinary words."""


def filled(template: str, text: str) -> str:
    """Put a summary's text into its template."""
    return template.replace(SLOT, text)


def label(template: str) -> str:
    """Give what stands before the summary, on one line; nothing where that is too short to tell."""
    before = " ".join(template.partition(SLOT)[0].split())
    return before if len(before) >= LEAST_LABEL else ""


def bare(template: str, text: str) -> str:
    """Take the template, and any of ours, off a text that has it already, however often."""
    text, before = text.strip(), None
    while text != before:
        before = text
        for one in dict.fromkeys((template, *TEMPLATES.values())):
            text = _without(one, text)
    return text


def _without(template: str, text: str) -> str:
    before, _, after = (piece.strip() for piece in template.partition(SLOT))
    if not before or not text.startswith(before):
        return text
    text = text[len(before) :].strip()
    return text.removesuffix(after).strip() if after else text
