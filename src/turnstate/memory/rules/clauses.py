"""Which parts of a message the user states about themselves: clauses are judged before any rule sees them.

Left out are quotations, code and pasted text; what follows a request to translate, write or imagine
something; questions; what is said of somebody else; and what is imagined, wished for, uncertain or ironic.
A correction ("no wait, it's Tuesday, not Monday") is taken apart into what is right and what was wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from .chinese import CHINESE
from .english import ENGLISH
from .japanese import JAPANESE
from .language import Language
from .rule import BOUNDARY, compiled

MAX_SENTENCE = 400
"""The most characters of a sentence; anything longer is a list or a log."""

_KANA = range(0x3041, 0x30FF)
_HAN = range(0x3400, 0xA000)

_FENCE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|<(\w+)[^<>]*>.*?</\1>", re.DOTALL)
_PASTED = re.compile(r"^\s*(?:>|\||#!|\$ |\+\+\+|---).*$", re.MULTILINE)
_SPEAKER = re.compile(r"^\s*[A-Z][\w ]{1,20}: .*$", re.MULTILINE)
_LETTER = re.compile(
    r"^\s*(?:dear (?-i:[A-Z])|to whom it may|拝啓|尊敬的|亲爱的).*", re.DOTALL | re.IGNORECASE | re.MULTILINE
)
_SIGNED = re.compile(
    r"\A.*^\s*(?:best|kind|warm)?[ \w]{0,10}(?:best|regards|wishes|sincerely|cheers|yours)[ \w]{0,12},\s*\n\s*[A-Z][^\n]{0,40}\s*\Z",
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)
_QUOTED = re.compile(
    r"“([^“”]*)(?:”|$)|「([^「」]*)(?:」|$)|『([^『』]*)(?:』|$)|«([^«»]*)(?:»|$)|(?<![\w\d])\"([^\"]*)(?:\"|$)"
    r"|(?<!\w)['‘]((?:[^'’\n]|(?<=\w)['’](?=\w))+)['’](?!\w)|`([^`\n]*)`"
)
_WORDS = re.compile(r"\w+")
_BLANK = re.compile(
    r"\[[^\[\]\n]{1,40}\]|\{[^{}\n]{1,40}\}|<[^<>\n]{1,40}>|_{3,}|\bX{3,}\b|[〇○×]{2,}|\b(?:jane|john) (?:doe|roe)\b|山田太郎|张三|李四",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[.!?]+[\"”’)]*(?=\s)|[。！？]+[」』”）]*|\n+")
_ABBREVIATION = re.compile(
    r"\b(?:Dr|Mr|Mrs|Ms|St|Mt|Ft|Prof|Jr|Sr|No|vs|etc|approx|e\.g|i\.e|a\.m|p\.m|[A-Z])$"
)
_BULLET = re.compile(r"^(?:[-*•]|\d{1,2}[.)])\s+")
_REMARK = re.compile(r"[(（][^()（）]{0,80}[)）]")

_TONE = re.compile(r"sarcas|kidding|joking|irony|/s\b|反话|讽刺|玩笑|棒読み|皮肉|冗談|嘘", re.IGNORECASE)

_SPOKEN = re.compile(r"[.!?。！？、，]|\b(?:I|my|we|our)\b|我|私|僕", re.IGNORECASE)

SHORT_QUOTE = 3
"""The most words in quotation marks that are a name or an emphasis, and not something somebody said."""
SHORT_DENSE_QUOTE = 10
"""The same in characters, for languages without spaces."""


class Clause(NamedTuple):
    """A clause that the user states, followed by the rest of its sentence."""

    text: str
    told: str
    """The same with the words before it that say when."""
    sentence: str
    language: Language
    is_own: bool
    is_negated: bool
    wrong: str
    """The value that the sentence says is wrong; empty if it says none."""


class Correction(NamedTuple):
    """A sentence that only corrects: the right value, and the wrong one if it is named."""

    value: str
    wrong: str
    sentence: str


class Retraction(NamedTuple):
    """A sentence that takes back what was said before it."""

    sentence: str


def judged(text: str) -> Iterator[Clause | Correction | Retraction]:
    """Yield what a user states in a message, in order."""
    announced = ""
    for part in sentences(_without_others_words(text)):
        sentence, announced = announced + part, ""
        language = language_of(sentence)
        if compiled(language.correction).fullmatch(sentence):
            announced = f"{sentence} "
            continue
        if compiled(language.jest).search(sentence):
            yield Retraction(sentence)
            continue
        if compiled(language.frame).search(sentence) or compiled(language.material).search(sentence):
            return
        stated = list(_sentence(sentence, language))
        if stated and not (compiled(language.unreal).search(sentence) or _BLANK.search(sentence)):
            yield from stated


def _sentence(sentence: str, language: Language) -> Iterator[Clause | Correction]:
    asks = sentence.endswith(("?", "？"))
    if asks and compiled(language.asks).search(sentence):
        return
    rest, wrong = _contrasted(sentence, language)
    begins = compiled(language.correction).match(rest)
    if begins:
        rest = rest[begins.end() :]
    parts = compiled(language.boundary).sub(lambda found: BOUNDARY + found[0], rest).split(BOUNDARY)
    if asks:
        parts.pop()
    persists, is_subject = True, False
    for number, part in enumerate(parts):
        clause = compiled(f"^(?:{language.lead})").sub("", part, count=1)
        if is_subject and compiled(language.ellipsis).match(clause):
            clause = language.subject + clause
        other = compiled(language.others).match(clause)
        is_subject = not other and compiled(language.own).match(clause) is not None
        is_own = is_subject or (persists and not other)
        persists = is_own or (other is not None and "here" in other.groupdict() and bool(other["here"]))
        if not compiled(language.opens).match(clause) or compiled(language.unsure).search(clause):
            continue
        yield Clause(
            text=BOUNDARY.join([clause, *parts[number + 1 :]]),
            told="".join(parts[number:]),
            sentence=sentence,
            language=language,
            is_own=is_own,
            is_negated=bool(language.negated) and bool(compiled(language.negated).search(clause)),
            wrong=wrong,
        )
    restated = compiled(language.restated).match(rest) if begins or wrong else None
    if restated:
        yield Correction(restated["value"].strip(), wrong, sentence)


def _contrasted(sentence: str, language: Language) -> tuple[str, str]:
    """Split a sentence into what it says, and the value of which it says that it is wrong."""
    found = compiled(language.contrast).search(sentence)
    if found is None:
        return sentence, ""
    return sentence[: found.start()] + sentence[found.end() :], found["old"].strip()


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, except those that are too short or too long to be one."""
    found, start = list[str](), 0
    for end in _SENTENCE.finditer(text):
        if end[0] == "." and _ABBREVIATION.search(text[start : end.start()]):
            continue
        found.append(text[start : end.end()])
        start = end.end()
    stripped = (_BULLET.sub("", sentence.strip()) for sentence in [*found, text[start:]])
    return [sentence for sentence in stripped if 2 <= len(sentence) <= MAX_SENTENCE]


def language_of(sentence: str) -> Language:
    """Return the language of a sentence: kana is Japanese, Han without kana is Chinese."""
    codes = [ord(character) for character in sentence if character >= "\u3041"]
    if any(code in _KANA for code in codes):
        return JAPANESE
    return CHINESE if any(code in _HAN for code in codes) else ENGLISH


def _without_others_words(text: str) -> str:
    text = _PASTED.sub("", _FENCE.sub(" ", text.replace("\x1f", " ")))
    if len(set(_SPEAKER.findall(text))) > 1:
        text = _SPEAKER.sub("", text)
    return _REMARK.sub(_remark, _QUOTED.sub(_unquoted, _SIGNED.sub("", _LETTER.sub("", text))))


def _remark(found: re.Match[str]) -> str:
    """Return a remark in parentheses only if it tells how the sentence is meant."""
    return found[0] if _TONE.search(found[0]) else " "


def _unquoted(found: re.Match[str]) -> str:
    """Return a name or an emphasis without its marks, and nothing for what somebody said."""
    said = next((group for group in found.groups() if group is not None), "")
    words = len(_WORDS.findall(said))
    is_dense = any(character >= "\u3041" for character in said)
    is_short = len(said) <= SHORT_DENSE_QUOTE if is_dense else words <= SHORT_QUOTE
    return said if is_short and not _SPOKEN.search(said) else " … "
