"""HTML that cannot be forgotten to be escaped: text is text, and only what `tag` returns is markup."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

# What no page may hold (https://html.spec.whatwg.org/#preprocessing-the-input-stream), half letters of file names
# that are no text, and what turns the direction of the letters after it.
UNFIT = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)


# Words of more letters than this are broken into lines; everything else in a table stands on one.
LONG = 40


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, *children: str, **attributes: object) -> Markup:
    """Return an element; children that are no markup are escaped, and so is every attribute.

    `class_` is the attribute `class`, `aria_label` is `aria-label`; an attribute of None is left out.
    """
    told = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    words = "".join(f' {key}="{_escaped(str(value))}"' for key, value in told.items())
    return Markup(f"<{name}{words}>{joined(children)}</{name}>")


def joined(children: Iterable[str]) -> Markup:
    """Return children beside each other."""
    return Markup("".join(each if isinstance(each, Markup) else _escaped(each) for each in children))


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[bool] | None = None) -> Markup:
    """Return a table that scrolls by itself where the page is narrow; columns that are not `left` hold numbers."""
    sides = [None if is_left else "n" for is_left in left or [True] * len(headings)]
    head = tag("tr", *(tag("th", name, class_=side, scope="col") for name, side in zip(headings, sides, strict=True)))
    body = (tag("tr", *(_data(text, side) for text, side in zip(row, sides, strict=True))) for row in rows)
    return scrolling(tag("table", tag("thead", head), tag("tbody", *body)))


def scrolling(wide: Markup) -> Markup:
    """Return what may be wider than the page in a box that scrolls, by keyboard too."""
    return tag("div", wide, class_="scroll", tabindex=0)


def folded(summary: str, *children: str, **attributes: object) -> Markup:
    """Return children that are shown when their summary is clicked."""
    return tag("details", tag("summary", summary), *children, **attributes)


def link(target: str, text: str, **attributes: object) -> Markup:
    """Return a link."""
    return tag("a", text, href=target, **attributes)


def address(path: Path, home: Path) -> str:
    """Return a file as a link in `home` names it: relative, and quoted, so that no name is taken for a protocol."""
    return quote(os.fsencode(os.path.relpath(path, home)))


def _data(text: str, side: str | None) -> Markup:
    prose = not isinstance(text, Markup) and len(text) > LONG and " " in text
    return tag("td", text, class_="prose" if prose else side)


def fit(text: str) -> str:
    """Return a text without the letters that no page may hold."""
    return UNFIT.sub("\N{REPLACEMENT CHARACTER}", text)


def _escaped(text: str) -> str:
    return html.escape(fit(text))
