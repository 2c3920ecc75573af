"""The text of summaries: phrases by language, the template around a summary, and quoted words in it.

A cut records the bare text; the template, such as ``[Memory Summary] … {summary}``, is added when a window
is made, so another wording needs no new cut. Texts from a model, or from an imported list of messages, may
already contain the template: it is removed before it is added, so it never appears twice. Words from outside
become one clean line, in quotation marks that they cannot close.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, get_args

from msgspec import Struct

from ..ids import UNKNOWN_TIME, derived_id
from ..message import Message
from ..tokens import Counter, message_cost
from ..tokens.cost import ExactCounter

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
    message: tuple[str, str]  # singular and plural
    turn: tuple[str, str]
    least: tuple[str, str]
    titles: dict[str, str]  # of the sections of a digest
    made: str
    on: str
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
        titles={
            "goal": "Goal",
            "wishes": "The user wants",
            "done": "Done, newest first",
            "failed": "Failed",
            "asked": "Asked since then",
            "tasks": "Open tasks",
            "decided": "Decided",
            "ids": "Ids",
            "told": "The user was told",
            "files": "Files",
            "said": "The user said",
            "tools": "Succeeded",
        },
        made=" → {}",
        on=" on {}",
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
        titles={
            "goal": "目的",
            "wishes": "ユーザーの条件",
            "done": "実行済み（新しい順）",
            "failed": "失敗",
            "asked": "その後の依頼",
            "tasks": "未完了のタスク",
            "decided": "決定事項",
            "ids": "ID",
            "told": "ユーザーへの説明",
            "files": "ファイル",
            "said": "ユーザーの発言",
            "tools": "成功",
        },
        made=" → {}",
        on="（{}）",
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
        titles={
            "goal": "目标",
            "wishes": "用户的要求",
            "done": "已完成（从新到旧）",
            "failed": "失败",
            "asked": "此后的请求",
            "tasks": "未完成的任务",
            "decided": "已决定",
            "ids": "ID",
            "told": "告知用户",
            "files": "文件",
            "said": "用户说过",
            "tools": "成功",
        },
        made=" → {}",
        on="（{}）",
        known="由日志得出：",
        sentence="{}：{}。",
        item="；",
        word="，",
        space="",
    ),
}


SLOT = "{summary}"

LEAST_LABEL = 8
"""In characters; a shorter label looks like ordinary words."""


def filled(template: str, text: str) -> str:
    """Put a summary's text into its template."""
    return template.replace(SLOT, text)


def label(template: str) -> str:
    """Return the text before the summary, on one line; empty if it is too short to be recognized."""
    before = " ".join(template.partition(SLOT)[0].split())
    return before if len(before) >= LEAST_LABEL else ""


def bare(template: str, text: str) -> str:
    """Return a text without the template or any of our own templates, however often it has them."""
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


def rendered(text: str, template: str) -> Message:
    """Return the message that shows a summary; the same text gives the same message."""
    content = filled(template, text)
    id = derived_id(0, b"summary", content.encode())
    return Message.system(content, kind="summary", id=id, timestamp=UNKNOWN_TIME)


def shown_summary(text: str, template: str, counter: Counter) -> tuple[Message, int]:
    """Return the message that shows a summary, and its tokens.

    Recent ones are cached: a session that is opened for each request shows the same summary every time.
    """
    if isinstance(counter, ExactCounter):
        return _remembered_summary(text, template, counter)
    message = rendered(text, template)
    return message, message_cost(message, counter).tokens


@lru_cache(maxsize=128)
def _remembered_summary(text: str, template: str, counter: ExactCounter) -> tuple[Message, int]:
    message = rendered(text, template)
    return message, message_cost(message, counter).tokens


# Foreign words in our own sentences: on one line, clean, quoted.


ELLIPSIS = "…"
_QUOTE_OPEN, _QUOTE_CLOSE = "“", "”"
_PLAIN_MARKS = str.maketrans({_QUOTE_OPEN: '"', _QUOTE_CLOSE: '"'})

_SPARE = 40  # characters read beyond the limit, since white space will collapse
_FAR = 4_000  # characters searched for the first word of a text that begins with white space

_INVISIBLE = re.compile(
    r"\x1b\[[0-9;?]*[A-Za-z]"  # a terminal's colors
    "|[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad]"  # controls other than white space, soft hyphens
    "|[\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"  # zero width, direction
    "|[\U000e0000-\U000e007f]"  # tags: a second, invisible alphabet
)
_SENTENCE_END = re.compile(r"[.!?](?= )|[。！？]")
_BARE = re.compile(r"[A-Za-z0-9_./\\:@#~+=%$*-]+")


def visible(text: str) -> str:
    """Remove invisible characters; white space stays."""
    return text if text.isprintable() else _INVISIBLE.sub("", text)


def line(text: str, most: int) -> str:
    """Return the beginning of a text as one clean line of at most `most` characters."""
    look = most + _SPARE
    if text[:look].isspace():
        text = text[:_FAR].lstrip()
    words = " ".join(text[:look].split())
    if not words.isprintable():
        words = " ".join(_INVISIBLE.sub("", words).split())
    return words if len(text) <= look and len(words) <= most else cut(words, most, more=len(text) > look)


def cut(words: str, most: int, *, more: bool = False) -> str:
    """Shorten a line: at the end of a sentence if one ends in its second half, else between words."""
    if len(words) <= most and not more:
        return words
    whole = len(words) < most
    end = max(0, most - 1)
    ends = [match.end() for match in _SENTENCE_END.finditer(words, most // 2, most) if match.end() <= end]
    edge = ends[-1] if ends else words.rfind(" ", most // 2, most)
    return words[: edge if edge > 0 and not whole else end].rstrip(f" {ELLIPSIS}") + ELLIPSIS


def quoted(text: str, most: int) -> str:
    """Return the beginning of a text in quotation marks that nothing inside can close."""
    return f"{_QUOTE_OPEN}{line(text, most).translate(_PLAIN_MARKS)}{_QUOTE_CLOSE}"


def word(text: str, most: int) -> str:
    """Return a name, a path or an id unchanged if it is one plain word, quoted if it is not.

    A long one keeps its end, which is where paths differ.
    """
    whole = line(text, len(text) or 1)
    if len(whole) > most:
        whole = ELLIPSIS + whole[1 - most :]
    return whole if _BARE.fullmatch(whole) else quoted(whole, most)
