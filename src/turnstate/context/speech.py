"""Speech: what sentences of users and assistants say, judged by their words, in three languages.

A wish is a sentence of the user that limits or prefers something: it has a word such as *must*, *only*, *at
most*, *not*, *rather* or *before*. A message says nothing if it only greets, thanks, or agrees. An answer
tells something in its last sentence with a number or a decision, before the question whether anything else
is needed. Words decide and nothing is guessed, so a wish may be quoted that is none; it is always in the
speaker's words. Only the beginning of a text is read."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise

from .summary_text import line

SAID_CHARS = 200
"""Of a sentence that is quoted: a long one or two; what follows is mostly details."""

READ_CHARS = 4_000
_MOST_WISHES = 8  # of one message: more are a document that the user pasted
_REMEMBERED = 512  # texts whose reading is remembered: a cut is planned several times

_END = re.compile(r"[.!?](?=\s)|[。！？\n]")
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?|\d+")
_CAPITALIZED = re.compile(r"(?<=[a-z,;] )[A-Z]\w+")
_DIGITS = re.compile(r"\d")
_FIRST_CJK = 0x2E7F  # radicals and punctuation, kana, ideographs and hangul come after it

_STRONG = frozenset(
    """must mustn't only never always cannot maximum minimum budget deadline without avoid except unless
    exactly strictly required mandatory forbidden shouldn't limit allergic""".split()
)
_STRONG_PAIRS = frozenset(
    tuple(pair.split("_"))
    for pair in """at_most at_least no_more no_less not_more not_less more_than less_than up_to do_not
    not_to not_be make_sure as_long has_to have_to not_want not_use under_no don't_want don't_use
    please_don't and_don't but_don't so_don't""".split()
)
_CLEAR = frozenset(
    """prefer preferably preferred preference rather instead cheapest fastest earliest latest shortest
    smallest largest quickest simplest lowest highest nearest before after until within ideally willing
    flexible""".split()
)
_WEAK = frozenset("want need like not no don't doesn't won't possible best should keep".split())
"""Words that only tell a wish from other sentences if two of them come together."""

_CUES = _STRONG | _CLEAR | _WEAK
_NOT_KNOWING = frozenset(
    (no, verb)
    for no in ("don't", "not", "doesn't")
    for verb in "know have remember recall see think mind worry".split()
)

_EMPTY_WORDS = frozenset(
    """a about ahead all also am an and any anything appreciate are as assistance at be bye can could day
    did do does else everything fine for from give go going good great had has have having hello help
    helping here hey hi how i i'd i'll i'm i've if in is it it's just k kind know let let's like looks lot
    lovely many may me more much my n need needed next no nope not now of ok okay on one open or our
    patience perfect please problem proceed quick quickly right see so some soon sounds stop super support
    sure take thank thanks that that's the them then there these they thing things this those thx time to
    today today's very want wait was we we'll well will with wonderful would y yeah yep yes you you're
    you've your yours again awesome absolutely amazing cheers confirm confirmed continue correct do done
    everyone exactly excellent keep nice that'll up works work""".split()
)
_YES_NO = frozenset("ynk")  # any other single letter is the name of something
_EMPTY_CJK = re.compile(
    r"(?:(?:どうも|本当に|大変)?ありがとう(?:ございます|ございました)?|はい|いいえ|うん|了解(?:です|しました)?|承知(?:いたし|し)ました"
    r"|(?:よろしく)?お願い(?:いたし|し|致し)ます|続けて(?:ください)?|進めて(?:ください)?|わかりました|分かりました|大丈夫です"
    r"|問題ありません|助かり(?:ます|ました)|こんにちは|おはようございます|お疲れ様です|そうです|それで"
    r"|(?:非常|十分|太)?(?:谢谢|謝謝|感谢|感謝)(?:你|您|了)?|好+的?|是+的?|可以|继续|繼續|请继续|没问题|沒問題|行|嗯+|不用了?|不|明白了?"
    r"|知道了|收到|辛苦了|麻烦(?:你|您)了?|你好|您好|对|對|就这样|네|예|아니요|감사합니다|고마워요?|좋아요|吧|了|的)+"
)
_MARKS = re.compile(r"[\W_]+")

_STRONG_CJK = re.compile(
    r"必ず|絶対|だけ|のみ|しないで|ないでください|禁止|以内|以下|以上|超え|までに|必須|避け|せず|予算|不要|"
    r"必须|必須|一定要|只能|只要|只用|不能|不要|不可|不得|不想|别(?!的)|最多|最少|至少|以内|不超过|务必|禁止|避免|预算|不准"
)
_WEAK_CJK = re.compile(
    r"希望|優先|ほうが|方が|なるべく|できれば|好み|より前|前に|後に|代わり|ように|てほしい|苦手|"
    r"优先|喜欢|宁愿|而不是|之前|之后|尽量|最好|希望|偏好|除了|改成|换成"
)

_DECIDED = frozenset(
    """decided decide decision will won't cannot total costs cost price charged changed booked
    canceled cancelled created added removed updated sent agreed promise keeps always never instead
    because""".split()
)
_DECIDED_CJK = re.compile(
    r"決め|決定|します|しました|合計|円|决定|將|将|已经|最多|之后|之後|一共|总共|元|改为|改成"
)
_OFFERS = frozenset(
    tuple(pair.split("_"))
    for pair in """let_me feel_free anything_else any_other further_assistance happy_to here_to please_let
    assist_you help_you any_questions more_questions great_day nice_day""".split()
)
_OFFERS_CJK = re.compile(
    r"お気軽|ご不明|他に|ほかに|お知らせください|请告诉我|請告訴我|还有什么|還有什麼|随时|隨時|请确认"
)
_ENDS = (".", "!", "。", "！")
_LIST_ITEM = re.compile(r"\s*(?:[-*+#>|]|\d+[.)])\s")


def sentences(text: str) -> list[str]:
    """Return the sentences at the beginning of a text."""
    text = text[:READ_CHARS]
    ends = [found.end() for found in _END.finditer(text)]
    pieces = (text[start:end].strip() for start, end in pairwise([0, *ends, len(text)]))
    return [one for one in pieces if one]


@lru_cache(maxsize=_REMEMBERED)
def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text[:READ_CHARS].replace("’", "'").lower()))


@lru_cache(maxsize=_REMEMBERED)
def wishes(text: str) -> tuple[str, ...]:
    """Return the sentences of a user message that limit or prefer something, each as one line."""
    words = _words(text)
    if text.isascii() and _CUES.isdisjoint(words) and _STRONG_PAIRS.isdisjoint(pairwise(words)):
        return ()
    found = [line(one, SAID_CHARS) for one in sentences(text) if wish_strength(one)]
    return tuple(found[:_MOST_WISHES])


@lru_cache(maxsize=_REMEMBERED)
def wish_strength(sentence: str) -> int:
    """Return how much a sentence looks like a constraint; 0 if not at all."""
    words = _words(sentence)
    pairs = list(pairwise(words))
    strong = len(_STRONG.intersection(words)) + len(_STRONG_PAIRS.intersection(pairs))
    strong += words[:1] == ("don't",) and _NOT_KNOWING.isdisjoint(pairs)
    weak, clear = len(_WEAK.intersection(words)), len(_CLEAR.intersection(words))
    if not sentence.isascii():
        strong += len(_STRONG_CJK.findall(sentence))
        clear += len(_WEAK_CJK.findall(sentence))
    if not strong and not clear and (weak < 2 or not _NOT_KNOWING.isdisjoint(pairs)):
        return 0
    if sentence.rstrip().endswith(("?", "？")):
        return 1
    return 4 * min(strong, 2) + min(weak + clear, 3) + 2 * any(map(str.isdigit, words))


@lru_cache(maxsize=_REMEMBERED)
def says_nothing(text: str) -> bool:
    """Return True if a message only greets, thanks or agrees."""
    if text.isascii():
        words = _words(text)
        is_letter = len(words) == 1 and len(words[0]) == 1 and words[0] not in _YES_NO
        return _EMPTY_WORDS.issuperset(words) and not is_letter
    squeezed = _MARKS.sub("", text[:READ_CHARS].lower())
    return not squeezed or bool(_EMPTY_CJK.fullmatch(squeezed))


@lru_cache(maxsize=_REMEMBERED)
def weight(text: str) -> int:
    """Return how much a message says: by its numbers, names, wishes, and words with a meaning."""
    if says_nothing(text):
        return 0
    words = _words(text)
    meaning = len(set(words) - _EMPTY_WORDS)
    wide = 0 if text.isascii() else sum(ord(character) > _FIRST_CJK for character in text[:SAID_CHARS]) // 4
    numbers, names = sum(map(str.isdigit, words)), len(_CAPITALIZED.findall(text[:READ_CHARS]))
    return min(meaning + wide, 12) + 2 * min(numbers, 4) + min(names, 4) + wish_strength(text)


@lru_cache(maxsize=_REMEMBERED)
def told(answer: str) -> tuple[str, ...]:
    """Return the last sentence of an answer that states a number or a decision, as one line; else nothing."""
    for sentence in reversed(sentences(answer[-READ_CHARS:])):
        if not sentence.endswith(_ENDS) or _LIST_ITEM.match(sentence):
            continue
        words = _words(sentence)
        if _OFFERS.intersection(pairwise(words)) or _OFFERS_CJK.search(sentence):
            continue
        if _DECIDED.intersection(words) or _DIGITS.search(sentence) or _DECIDED_CJK.search(sentence):
            return (line(sentence, SAID_CHARS),)
    return ()
