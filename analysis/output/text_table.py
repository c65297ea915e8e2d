"""A table of texts, which can be rendered as Markdown and on the HTML report page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.text import code, escape_markdown

# The page wraps a text with more characters than this limit. Each shorter text in a table stays on one line.
LONG = 40


@dataclass(frozen=True)
class TextTable:
    """A table of texts with headings and rows.

    `left` tells for each column whether the column has words, which are aligned to the left, or numbers. The texts are
    not escaped: `markdown` escapes them for Markdown, and the template of the page escapes them for HTML.

    Raises ValueError if a row, or `left`, does not have one item per heading.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Sequence[bool]

    def __post_init__(self) -> None:
        """Raise ValueError if a row or `left` does not have one item per heading."""
        if any(len(each) != len(self.headings) for each in (*self.rows, self.left)):
            raise ValueError("each row of a table must have a text for each of its headings")

    def __bool__(self) -> bool:
        """Return True, so that the page also shows a table without rows."""
        return True

    @property
    def sides(self) -> list[str | None]:
        """The CSS class of each column: `n` for numbers, None for words."""
        return [None if is_left else "n" for is_left in self.left]

    @staticmethod
    def side(text: str, side: str | None) -> str | None:
        """Return the CSS class of a table cell: `prose` for a long text, which is wrapped, or else `side`."""
        return "prose" if len(text) > LONG and " " in text else side

    def markdown(self) -> str:
        """Return the table in Markdown, in which a text of type `Code` is formatted as code."""
        lines = [self.headings, ["---" if is_left else "---:" for is_left in self.left]]
        lines += [
            [code(text) if isinstance(text, Code) else escape_markdown(text) for text in row] for row in self.rows
        ]
        return "\n".join(f"| {' | '.join(texts)} |" for texts in lines)


class Code(str):
    """A text that `TextTable.markdown` formats as code."""

    __slots__ = ()
