"""Check the links of the built site: each leads to a file and an id that exist; nothing loads from elsewhere.

    python tools/site_links.py site

The builder checks links between Markdown pages. This reads what it built: links in docstrings, navigation,
pictures and scripts are covered, too. Nothing is fetched: links to other sites are not followed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

LOADS = {"script": "src", "img": "src", "iframe": "src", "link": "href"}
"""Elements that a browser loads without a click, and where they name what they load."""


class Link(NamedTuple):
    """A link of a page, and whether a browser follows it by itself."""

    target: str
    loads: bool


class Page(HTMLParser):
    """The ids and links of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids = set[str]()
        self.links = list[Link]()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the id and the links of an element."""
        given = dict(attrs)
        for name in ("id", "name"):
            if value := given.get(name):
                self.ids.add(value)
        if tag in LOADS and (target := given.get(LOADS[tag])):
            self.links.append(Link(target, loads=given.get("rel") != "canonical"))
        elif tag == "a" and (target := given.get("href")):
            self.links.append(Link(target, loads=False))


def faults(site: Path) -> Iterator[str]:
    """Report each link that leads nowhere, and each element that is loaded from another site."""
    pages = {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}
    if not pages:
        yield f"{site} contains no pages"
    for path, page in pages.items():
        if path.name == "404.html":  # its links start at the root of a server
            continue
        for target, loads in page.links:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if loads and parts.scheme != "data":
                    yield f"{path.name} loads {target}"
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not file.exists():
                yield f"{path.name} links to {target}, which does not exist"
            elif (
                parts.fragment
                and file in pages
                and unquote(parts.fragment) not in pages[file].ids | {"__top"}
            ):
                yield f"{path.name} links to {target}, which has no such id"


def main() -> None:
    """Print the faults, and exit with 1 if there are any."""
    site = Path(sys.argv[1])
    found = list(faults(site))
    for fault in found:
        print(fault)
    count = sum(1 for _ in site.rglob("*.html"))
    print(f"{count} pages, {len(found)} broken links")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
