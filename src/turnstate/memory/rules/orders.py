"""Detects orders to the assistant in what looks like a fact: they are never remembered.

A wish says how to answer ("always use metric units"). An order would act, or change who is obeyed: override
instructions, move money, give away or destroy something. A memory that repeated it in every session would give
it the weight of something that the user once said.
"""

from __future__ import annotations

import re

_ORDER = re.compile(
    r"\b(?:ignor(?:e|ing)|disregard|forget|overrid(?:e|ing)|bypass|circumvent|violate)\b.{0,40}"
    r"\b(?:instruct\w*|prompts?|rules?|polic(?:y|ies)|guidelines?|guardrails?|restrictions?|limits?|safety|said|above)\b"
    r"|\b(?:system prompt|developer mode|jailbreak\w*|no restrictions|without (?:any )?restrictions)\b"
    r"|\byou (?:are|will be) (?:now|no longer)\b|\byou (?:must|should|shall|have to|need to|are to|will) "
    r"|\b(?:transfer|wire|send|pay|refund|donate|withdraw)\b.{0,40}"
    r"(?:[$€£¥]|\b(?:money|funds?|cash|payments?|bitcoin|crypto\w*|dollars?|euros?|account|usd|eur|btc)\b)"
    r"|\b(?:reveal|disclose|leak|exfiltrate|forward|(?<!my )e-?mail(?! is| address)|send|upload|post)\b.{0,40}"
    r"\b(?:credentials?|secrets?|keys?|passwords?|tokens?|data|files?|history|conversations?|instructions?|(?:e-?)?mails?|messages?|contacts?)\b"
    r"|/etc/|\.env\b|\bpasswd\b|\b(?:delete|erase|wipe|drop|destroy)\b.{0,30}\b(?:all|every\w*|files?|databases?|tables?|accounts?|backups?)\b"
    r"|\b(?:execute|run|eval)\b.{0,30}\b(?:commands?|code|scripts?|shell|sudo|rm|curl)\b"
    r"|\b(?:approve|authori[sz]e|confirm|accept|grant)\b.{0,30}"
    r"\b(?:all|any|every\w*|requests?|access|permissions?|refunds?|transactions?|purchases?)\b"
    r"|(?:指示|命令|ルール|規則|プロンプト|制限).{0,12}(?:無視|忘れ|従わ|破)|(?:振り?込|送金)|(?:お金|金額|口座).{0,12}(?:送|移|払)"
    r"|(?:システムプロンプト|脱獄)|(?:削除|消去|承認|実行)して"
    r"|(?:忽略|无视|忘记|忘掉|违反|绕过|不要遵守).{0,12}(?:指令|指示|规则|提示|限制|要求)|(?:转账|汇款|打款)|把?钱.{0,12}(?:转|汇|打)"
    r"|系统提示|越狱|你(?:必须|应该|要|现在是|不再是)|(?:删除|清空|批准|执行)(?:所有|全部|一切|任何)",
    re.IGNORECASE,
)


def is_order(text: str) -> bool:
    """Return True if a text tells the assistant to do something beyond answering in a certain way."""
    return _ORDER.search(text) is not None
