from __future__ import annotations

import asyncio
import re
from collections import Counter
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstate import Budget, Message, SessionManager, ToolCallRequest, ToolCallResult
from turnstate.plain_text import harmless
from turnstate.report.html import _resource, html_page, read_page
from turnstate.stores.memory import MemoryStore

pytestmark = pytest.mark.req("P3")

HOSTILE = (
    "<script>document.title='hacked'</script>",
    "</script><script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    "<svg onload=alert(1)><a href='javascript:alert(1)'>",
    '"\' onmouseover=alert(1) x="',
    "</details></section></main>--><!--",
    "&lt;b&gt; &amp; &#x3c;",
    "abc\u202edcba\u2066\u200f\u061c",
    "nul\x00 bell\x07 esc\x1b[31m del\x7f c1\x9b return\rend\u2028\u2029\ufeff",
    "<meta http-equiv=refresh content='0;url=http://example.com'><base href=//example.com>",
)


class Seen(HTMLParser):
    """Collects what a browser would make of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags = Counter[str]()
        self.links, self.scripts, self.texts = list[str](), list[str](), list[str]()
        self.attributes = set[str]()
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes |= {name for name, _ in attrs}
        self.links += [
            value or "" for name, value in attrs if name in ("href", "src", "action", "xlink:href")
        ]
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        (self.scripts if self._inside in ("script", "style") else self.texts).append(data)


def seen(text: str) -> Seen:
    parser = Seen()
    parser.feed(text)
    parser.close()
    return parser


async def _written(*texts: str) -> str:
    """Return the page of a session that has these texts wherever a session has text."""
    first = texts[0]
    async with SessionManager(MemoryStore()) as sessions:
        session = await sessions.create(
            title=first.replace("\0", ""), system=first, tags=["<b>"], user="<i>anna"
        )
        for text in texts:
            call = ToolCallRequest(name=f"read{text}", args={text: [text]})
            await session.append(Message.user(text), Message.assistant(text, tool_calls=[call]))
            result = ToolCallResult(tool_call_id=call.id, result=text, is_error=True)
            await session.append(Message.tool([result]), Message.assistant(text * 30))
        await session.fork(name=first.replace("\0", ""))
        await session.append(Message.user("on another branch"))
        await session.undo()
        await session.append(Message.user("again"), Message.assistant("well"))
        await session.compact(Budget(20_000))
        row = await sessions.store.get(session._row.address)
        return "".join(html_page(await read_page(sessions, row)))


def written(*texts: str) -> str:
    return asyncio.run(_written(*texts))


def check_inert(text: str) -> Seen:
    found = seen(text)
    assert (found.tags["script"], found.tags["style"]) == (1, 1)
    assert found.scripts == [_resource("page.css"), _resource("page.js")]
    assert all(link.startswith("#") for link in found.links)
    assert not any(name.startswith("on") or name == "style" for name in found.attributes)
    assert not {"img", "iframe", "object", "embed", "link", "base", "video", "audio"} & found.tags.keys()
    assert harmless(text) == text
    assert text.count('http-equiv="Content-Security-Policy"') == found.tags["meta"] - 3 == 1
    for tag in ("details", "section", "article", "ul", "main", "nav", "table", "svg", "pre", "div"):
        assert text.count(f"<{tag}") == text.count(f"</{tag}>"), tag
    return found


def test_whatever_is_said_in_a_session_is_only_text_on_its_page() -> None:
    found = check_inert(written(*HOSTILE))
    texts = "".join(found.texts)
    for text in HOSTILE:
        assert texts.count(harmless(text)) >= 5, text


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=3))
def test_any_text_is_inert(texts: list[str]) -> None:
    check_inert(written(*texts))


def test_the_policy_allows_exactly_the_style_and_the_script_of_the_page() -> None:
    text = written("hello")
    (policy,) = re.findall(r'Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert not re.findall(r"https?://|url\(|@import|fetch\(|XMLHttp|innerHTML|eval\(", text)


def test_turns_are_folded_and_branches_are_linked_both_ways() -> None:
    text = written("hello", "world")
    found = seen(text)
    assert text.count("<details class=turn") == 4
    assert text.count("<details class=turn open>") == 2
    targets = set(re.findall(r" id=([be][\d-]+)", text))
    assert {link[1:] for link in found.links} <= targets
    assert "b2" in targets
    assert '<div class="mark cut"' in text
    assert "<polyline" in text
