"""A table of texts, for Markdown and for the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.text import code, escape_markdown

# Texts with more letters than this are wrapped; every other text in a table stays on one line.
LONG = 40


@dataclass(frozen=True)
class TextTable:
    """A table of texts, none of which is escaped: its renderers do that, this one's for Markdown, the page's template.

    It has headings, rows, and for each column whether it holds words (`left`) or numbers.

    Raises ValueError if a row, or `left`, does not have one item per heading.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Sequence[bool]

    def __post_init__(self) -> None:
        """Raise ValueError if a text would be shown in the wrong column."""
        if any(len(each) != len(self.headings) for each in (*self.rows, self.left)):
            raise ValueError("each row of a table must have a text for each of its headings")

    def __bool__(self) -> bool:
        """Return True, so that a table without rows is shown too."""
        return True

    @property
    def sides(self) -> list[str | None]:
        """The CSS class of each column."""
        return [None if is_left else "n" for is_left in self.left]

    @staticmethod
    def side(text: str, side: str | None) -> str | None:
        """Return the CSS class of a cell: that of its column, or `prose` if its words may be wrapped."""
        return "prose" if len(text) > LONG and " " in text else side

    def markdown(self) -> str:
        """Return the table in Markdown, where a `Code` is shown as code."""
        lines = [self.headings, ["---" if is_left else "---:" for is_left in self.left]]
        lines += [
            [code(text) if isinstance(text, Code) else escape_markdown(text) for text in row] for row in self.rows
        ]
        return "\n".join(f"| {' | '.join(texts)} |" for texts in lines)


class Code(str):
    """A text that Markdown shows as code."""

    __slots__ = ()
