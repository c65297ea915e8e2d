"""Words and numbers as they are written: one line of text, a line of a Markdown table, figures, signs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any

DASH = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"
MINUS = "\N{MINUS SIGN}"
DAGGER, DOUBLE_DAGGER = "\N{DAGGER}", "\N{DOUBLE DAGGER}"
UP = "\N{UPWARDS ARROW}"
# Joins a word and its number where lines are wrapped.
JOINT = "\N{NO-BREAK SPACE}"
SPACES = f"\t{JOINT}"
# Begins HTML; a mere "less than" does not.
TAG = re.compile("<(?=[A-Za-z/!?])")
# Stands where there is no figure.
NONE = DASH


def visible(text: str) -> str:
    """Return a text as one line that does not act on a terminal: of all that is not printable, spaces alone stay."""
    if text.isprintable():
        return text
    shown = (each if each.isprintable() or each in SPACES else each.encode("unicode_escape").decode() for each in text)
    return "".join(shown)


def one_line(text: str) -> str:
    """Return a text without line breaks, control characters shown."""
    return visible(" ".join(text.split()))


def escaped(text: str) -> str:
    """Return a text that fits into one cell of a Markdown table, and is no HTML and no link there."""
    return TAG.sub("&lt;", one_line(text)).replace("|", "\\|").replace("](", "]\\(")


def code(text: str) -> str:
    """Return a text as code in Markdown, in a table too."""
    line = escaped(text).replace("`", "'")
    return f"`{line}`"


def line(cells: Iterable[str]) -> str:
    """Return a line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def listed(values: Iterable[Any]) -> str:
    """Return values in a line, each once."""
    return ", ".join(str(each) for each in dict.fromkeys(values))


def typed(value: Any) -> str:
    """Return a setting as it is typed on the command line."""
    return value if isinstance(value, str) else json.dumps(value)


def significant(value: float) -> str:
    """Return a number with three digits, or all of a longer whole part: 0.512, 48.1, 512, 20481."""
    if not value or value >= 100:  # noqa: PLR2004 - three digits before the point
        return f"{value:.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def number(value: float) -> str:
    """Return a figure for a table, a dash where there is none."""
    return NONE if math.isnan(value) else significant(value)


def span(low: float, high: float) -> str:
    """Return a range of figures, a dash where there is none."""
    return NONE if math.isnan(low) else f"{significant(low)}{DASH}{significant(high)}"


def share(value: float, digits: int = 0) -> str:
    """Return a share in percent, a dash where there is none."""
    return NONE if math.isnan(value) else f"{value * 100:.{digits}f} %"


def times(value: float) -> str:
    """Return a ratio as it is written: with two places and the sign of times."""
    return f"{value:.2f}{TIMES}"
