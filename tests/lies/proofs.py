"""The table of lies: a row on a terminal, and the page docs/proofs.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.lies.lie import Answer, Lie

_INTRODUCTION = """\
# What the proofs see, and what they do not

Storages, neighbours, libraries and records can make a number look better than it is. Here each known way is staged for
real, the truth is measured by instruments that the tool does not use, and the tool is run against it. The table shows
what it answered. `python -m tests.lies --write docs/proofs.md` makes this page (as root, with a C compiler, FUSE 3 and
btrfs-progs; it takes some minutes), and each lie is a test, `tests/lies/test_lies.py`.
"""
_HEAD = """\
| what is done | what really happened | what the tool answered | by the check | as it must |
| --- | --- | --- | --- | --- |"""
_OF_CLAIMS = ("holds", "differs")
_UNSEEN = """
## What no check can see

This is what *proved* does not cover.
"""


@dataclass(frozen=True)
class Row:
    """One lie and its outcome; `missing` says why it could not be staged."""

    lie: Lie
    truth: str = ""
    answer: Answer | None = None
    problem: str = ""
    missing: str = ""

    @property
    def words(self) -> str:
        """The part of the answer that decides."""
        if self.answer is None:
            return ""
        right = self.lie.expected.match(self.answer)
        return next(iter(self.answer.complaints), "") if right is None else right.strip()

    @property
    def line(self) -> str:
        """The row for a terminal, on three lines."""
        if self.answer is None:
            return f"{self.lie.name}: not staged: {self.missing}"
        outcome = f"NOT AS EXPECTED: {self.problem}" if self.problem else "as expected"
        return f"{self.lie.name}: {outcome}\n  truth: {self.truth}\n  answer: {self._told}"

    @property
    def markdown(self) -> str:
        """The row of the page."""
        if self.answer is None:
            return f"| {self.lie.done} | not staged: {self.missing} | | | |"
        rule = self.words.partition(": ")[0]
        named = f"`{rule}`" if rule.isidentifier() and rule not in _OF_CLAIMS else ""
        right = f"**no**: {self.problem}" if self.problem else "yes"
        cells = [each.replace("|", "\\|") for each in (self.lie.done, self.truth, self._told, named, right)]
        return f"| {' | '.join(cells)} |"

    @property
    def _told(self) -> str:
        status = self.answer.status if self.answer else ""
        return f"{status}: {self.words}" if self.words else status


def page(rows: Sequence[Row]) -> str:
    """Return docs/proofs.md."""
    seen, unseen = ([row for row in rows if bool(row.lie.unseen) == each] for each in (False, True))
    right = sum(not row.problem and row.answer is not None for row in rows)
    lines = [_INTRODUCTION, _HEAD, *(row.markdown for row in seen), "", f"{right} of {len(rows)} are as they must be."]
    if unseen:
        lines += [_UNSEEN, _HEAD, *(row.markdown for row in unseen), ""]
        lines += [f"- {row.lie.done} {row.lie.unseen}" for row in unseen]
    return "\n".join(lines) + "\n"
