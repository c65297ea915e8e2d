"""Words from elsewhere, fit to stand in one line, and the lines of a Markdown table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


def one_line(text: str) -> str:
    """Return a reason without line breaks or control characters of the program that gave it."""
    return "".join(letter if letter.isprintable() else " " for letter in " ".join(text.split()))


def escaped(text: str) -> str:
    """Return a text that fits into one cell of a Markdown table."""
    return one_line(text).replace("|", "\\|")


def line(cells: Iterable[str]) -> str:
    """Return a line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def listed(values: Iterable[Any]) -> str:
    """Return values in a line, each once."""
    return ", ".join(str(each) for each in dict.fromkeys(values))
