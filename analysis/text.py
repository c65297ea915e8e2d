"""Numbers, words and links as a reader gets them: plain, in Markdown and in HTML; and the signs in use."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

DASH = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"
MINUS, PLUS_MINUS = "\N{MINUS SIGN}", "\N{PLUS-MINUS SIGN}"
DAGGER, DOUBLE_DAGGER = "\N{DAGGER}", "\N{DOUBLE DAGGER}"
UP = "\N{UPWARDS ARROW}"
# Joins a word and its number where lines are wrapped.
JOINT = "\N{NO-BREAK SPACE}"
SPACES = f"\t{JOINT}"
# A spreadsheet reads a text that begins with one of these as a formula.
ACTIVE = ("=", "+", "-", "@", "\t", "\r")
# The beginning of an HTML tag; a plain "less than" does not match.
TAG = re.compile("<(?=[A-Za-z/!?])")
# The text for a missing number.
NONE = DASH


def visible(text: str) -> str:
    """Return a text that cannot act on a terminal: each unprintable character except spaces becomes its escape."""
    if text.isprintable():
        return text
    shown = (each if each.isprintable() or each in SPACES else each.encode("unicode_escape").decode() for each in text)
    return "".join(shown)


def one_line(text: str) -> str:
    """Return a text without line breaks, with control characters as escapes."""
    return visible(" ".join(text.split()))


def escape_markdown(text: str) -> str:
    """Return a text that is safe in a cell of a Markdown table: it is no HTML and no link there."""
    return TAG.sub("&lt;", one_line(text)).replace("|", "\\|").replace("](", "]\\(")


def code(text: str) -> str:
    """Return a text as Markdown code that is also safe in a table."""
    line = escape_markdown(text).replace("`", "'")
    return f"`{line}`"


def join_values(values: Iterable[Any]) -> str:
    """Return the distinct values as text, joined by commas."""
    return ", ".join(str(each) for each in dict.fromkeys(values))


def as_typed_by_user(value: Any) -> str:
    """Return the value of a setting as the user types it on the command line."""
    return value if isinstance(value, str) else json.dumps(value)


def three_digits(value: float) -> str:
    """Return a number with three digits, or with all digits of its whole part: 0.512, 48.1, 512, 20481."""
    if not value or value >= 100:  # noqa: PLR2004 - three digits before the point
        return f"{value:.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def number(value: float) -> str:
    """Return a number for a table; a dash if it is NaN."""
    return NONE if math.isnan(value) else three_digits(value)


def span(low: float, high: float) -> str:
    """Return a range of numbers as text; a dash if it is NaN."""
    return NONE if math.isnan(low) else f"{three_digits(low)}{DASH}{three_digits(high)}"


def percentage(value: float, digits: int = 0) -> str:
    """Return a fraction as a percentage; a dash if it is NaN."""
    return NONE if math.isnan(value) else f"{value * 100:.{digits}f} %"


def ratio_text(value: float) -> str:
    """Return a ratio as text, with two decimals and a multiplication sign."""
    return f"{value:.2f}{TIMES}"


# Characters that HTML forbids (https://html.spec.whatwg.org/#preprocessing-the-input-stream), lone surrogates from
# file names that are no text, and characters that change the direction of text.
UNFIT = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)


def link_to_file(path: Path, home: Path) -> str:
    """Return a relative link from the folder `home` to a file, quoted so that no name acts as a protocol."""
    return quote(os.fsencode(os.path.relpath(path, home)))


def without_illegal_html(text: str) -> str:
    """Return a text with the characters that HTML forbids replaced."""
    return UNFIT.sub("\N{REPLACEMENT CHARACTER}", text)
