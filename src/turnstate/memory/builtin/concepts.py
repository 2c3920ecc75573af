"""Words that ask for a kind of fact, even if the turn with the fact does not contain them.

"Which city do I live in?" shares no word with "We finally got to Porto". When a fact is found in a turn,
the turn can also be found by the words of its kind. They are words that questions use, in three languages.
"""

from __future__ import annotations

from functools import cache

from ..facts import FactKind
from .terms import terms

_WORDS: dict[FactKind, str] = {
    "name": "name called 名前 お名前 名字",
    "home": "city town live home address move country 住所 住んで 引っ越し 都市 街 町 家 城市 住在 搬家 地址",
    "work": "job work profession employer company career 仕事 職業 勤務 会社 工作 职业 公司",
    "relation": "family pet child children kid 家族 ペット 子供 家人 宠物 孩子",
    "date": "date day 日付 日程 日期 日子",
    "preference": "like prefer preference favorite 好み 好き 好物 喜好 喜欢 偏好",
    "health": "health allergy allergic diet eat illness アレルギー 健康 病気 过敏 健康 忌口",
    "wish": "want wish prefer always 希望 要望 要求",
    "decision": "decide decision plan agree 決定 決めた 決まった 决定 方案",
    "note": "remember note 覚え メモ 记住 记得",
    "task": "task todo open remind 課題 宿題 やること 任务 待办",
}


@cache
def concept_terms(kind: FactKind) -> tuple[str, ...]:
    """Return the terms that ask for a kind of fact."""
    return tuple(dict.fromkeys(terms(_WORDS.get(kind, ""))))


@cache
def all_concept_terms() -> frozenset[str]:
    """Return the terms that ask for any kind of fact."""
    return frozenset(term for kind in _WORDS for term in concept_terms(kind))
