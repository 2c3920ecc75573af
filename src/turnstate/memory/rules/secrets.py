"""Detects text that looks like a secret: keys, tokens, passwords, card numbers. It never becomes a fact."""

from __future__ import annotations

import re

_NAMED = re.compile(
    r"\b(?:pass(?:word|phrase|code)?|pwd|pin(?: code)?|secret|api[ _-]?key|access[ _-]?key|token|credential|cvv|cvc|"
    r"ssn|social security|private key|seed phrase|recovery code)s?\b"
    r"|パスワード|暗証番号|秘密鍵|アクセスキー|トークン|マイナンバー|密码|口令|私钥|密钥|令牌|身份证号|验证码",
    re.IGNORECASE,
)
_SHAPED = re.compile(
    r"\b(?:(?:sk|pk|rk|ghp|gho|ghs|xox[abprs]|glpat|npm|pypi|hf)[-_]|AKIA|ASIA|AIza|eyJ)[-_A-Za-z0-9]{8,}"
    r"|-----BEGIN|\b[0-9a-fA-F]{32,}\b|\b(?=[A-Za-z0-9+/_-]*[A-Z])(?=[A-Za-z0-9+/_-]*[a-z])"
    r"(?=[A-Za-z0-9+/_-]*[0-9])[A-Za-z0-9+/_-]{24,}\b|://[^/\s:@]+:[^/\s@]+@"
)
_DIGITS = re.compile(r"(?<!\d)\d(?:[ -]?\d){12,18}(?!\d)")


def is_secret(text: str) -> bool:
    """Return True if a text names or contains something that looks like a secret."""
    if _NAMED.search(text) or _SHAPED.search(text):
        return True
    return any(_is_card(re.sub(r"\D", "", found)) for found in _DIGITS.findall(text))


def _is_card(digits: str) -> bool:
    """Return True if the last digit is the checksum (Luhn) of the others, as on a card."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        number = int(digit) * (2 if place % 2 else 1)
        total += number - 9 if number > 9 else number
    return total % 10 == 0
