"""Format numbers, texts and links for a terminal, for Markdown and for HTML."""

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
# This space stands between a word and its number, so that no line break separates the word from the number.
JOINT = "\N{NO-BREAK SPACE}"
SPACES = f"\t{JOINT}"
# A spreadsheet program reads a text that begins with one of these characters as a formula.
ACTIVE = ("=", "+", "-", "@", "\t", "\r")
# This pattern matches `<` at the beginning of an HTML tag, but not `<` as a "less than" sign.
TAG = re.compile("<(?=[A-Za-z/!?])")
# The text for a missing number.
NONE = DASH


def visible(text: str) -> str:
    r"""Return a text in which escapes such as `\x1b` replace all unprintable characters except `SPACES`.

    A terminal could execute an unprintable character of a record as a control sequence.
    """
    if text.isprintable():
        return text
    signs = (sign if sign.isprintable() or sign in SPACES else sign.encode("unicode_escape").decode() for sign in text)
    return "".join(signs)


def one_line(text: str) -> str:
    """Return a text on one line, with escapes in place of control characters."""
    return visible(" ".join(text.split()))


def escape_markdown(text: str) -> str:
    """Return a text for a cell of a Markdown table, in which the text makes neither HTML tags nor links."""
    return TAG.sub("&lt;", one_line(text)).replace("|", "\\|").replace("](", "]\\(")


def code(text: str) -> str:
    """Return a text as inline code for Markdown, which can also be put into a Markdown table."""
    line = escape_markdown(text).replace("`", "'")
    return f"`{line}`"


def join_values(values: Iterable[Any]) -> str:
    """Return the distinct values as text, joined by commas."""
    return ", ".join(str(each) for each in dict.fromkeys(values))


def as_typed_by_user(value: Any) -> str:
    """Return the value of a setting as the user types it on the command line."""
    return value if isinstance(value, str) else json.dumps(value)


def three_digits(value: float) -> str:
    """Return a number with three significant digits; a number from 100 on is rounded to an integer.

    Examples: 0.512, 48.1, 512, 20481.
    """
    if not value or value >= 100:  # noqa: PLR2004 - three digits before the point
        return f"{value:.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def number(value: float) -> str:
    """Return a number as text for a table, or a dash if the number is NaN."""
    return NONE if math.isnan(value) else three_digits(value)


def percentage(value: float, digits: int = 0) -> str:
    """Return a fraction as a percentage, or a dash if the fraction is NaN."""
    return NONE if math.isnan(value) else f"{value * 100:.{digits}f} %"


def ratio_text(value: float) -> str:
    """Return a ratio as text, with two decimals and a multiplication sign."""
    return f"{value:.2f}{TIMES}"


# This pattern matches three groups of characters that a page must not contain. HTML forbids control characters and
# noncharacters (https://html.spec.whatwg.org/#preprocessing-the-input-stream). Python makes a lone surrogate from each
# byte of a file name that is not valid UTF-8. Bidirectional control characters reverse the direction of a text.
UNFIT = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)


def link_to_file(path: Path, home: Path) -> str:
    """Return the relative URL from the folder `home` to a file.

    The URL is percent-encoded, so that a browser cannot take the name of a file for a protocol (`javascript:`).
    """
    return quote(os.fsencode(os.path.relpath(path, home)))


def without_illegal_html(text: str) -> str:
    """Return a text in which U+FFFD replaces each character that an HTML page must not contain (`UNFIT`)."""
    return UNFIT.sub("\N{REPLACEMENT CHARACTER}", text)
