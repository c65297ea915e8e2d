"""The table of lies: a row on a terminal, and the page docs/proofs.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tests.lies import honest_runs
from tests.lies.honest_runs import Counted
from tests.lies.lie import VALID, Answer, Lie
from tests.lies.registry import IN_CI, WHOLE_MACHINE
from tests.lies.tools import told
from tests.lies.tools.told import Compared

_INTRODUCTION = """\
# What the proofs see, and what they do not

A number can look better than its storage is: pages were in memory all the time, a cache below the file system answered,
the files lie elsewhere, a clock goes slowly, a record was edited. Each way that is known here is staged for real; what
really happened is measured with instruments that the tool does not use (the counters of loop devices and FUSE servers,
mincore(2), a second clock), and the tool runs against it as its users run it.

*valid*: the run counts. *invalid*: it is recorded with its reason and does not count. *refused*: nothing was measured
or compared. *set aside*: earlier runs are kept apart from the new ones.

`python -m tests.lies --write docs/proofs.md` makes this page (as root, with a C compiler, FUSE 3, btrfs-progs, xfsprogs
and fio), and each row is a test, `tests/acceptance/test_proofs.py`. `.ci/run` tries one of each kind, and those that
cost next to nothing: *yes* in the last column. The others take a quarter of a minute each (*long*), or change what
belongs to the whole machine, its clock and its huge pages (*machine*): they are run by hand.
"""
_FOUND = """
## Lies, and what the tool answers

| the lie | what really happened | what the tool said | by which check | in CI |
| --- | --- | --- | --- | --- |"""
_HONEST = """
## Odd, but honest: these must count

| what is odd | what really happened | what the tool said | by which check | in CI |
| --- | --- | --- | --- | --- |"""
_UNSEEN = """
## What no check can see

This is what *proved* does not cover: the tool calls these runs valid."""
# What an answer begins with where no check of a run gave it, and who gave it.
_OTHERS = {
    "error": "the plan, before anything runs",
    "warning": "the reader of records",
    "not comparable": "the rules of what may be compared",
    "holds": "",
    "differs": "",
}
_WORKSPACE = re.compile(r"/\S*?tfio-lies-\w+")


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
            return f"| {self.lie.done} | not staged: {self.missing} | | | {self.in_ci} |"
        rule, message = self._decided
        wrong = f" **This is wrong: {self.problem}.**" if self.problem else ""
        told = f"*{self.answer.status}*" + (f": {message}" if message else "") + wrong
        cells = (self.lie.done, self.truth, told, rule, self.in_ci)
        escaped = [_WORKSPACE.sub("…", cell).replace("|", "\\|") for cell in cells]
        return f"| {' | '.join(escaped)} |"

    @property
    def unseen(self) -> str:
        """The paragraph of the page where no check can see the lie."""
        happened = f"What really happened: {self.truth}." if self.answer else f"(Not staged: {self.missing}.)"
        wrong = f" **The tool's answer is not as expected: {self.problem}.**" if self.problem else ""
        return f"\n**{self.lie.done}** {self.lie.unseen} {happened}{wrong} (In CI: {self.in_ci}.)"

    @property
    def in_ci(self) -> str:
        """Whether `.ci/run` tries it, or why not."""
        return "yes" if self.lie.name in IN_CI else "machine" if self.lie.name in WHOLE_MACHINE else "long"

    @property
    def decision(self) -> str:
        """What the tool answered, and by which check; empty where nothing was staged."""
        rule = self._decided[0]
        return "" if self.answer is None else f"{self.answer.status} ({rule})" if rule else self.answer.status

    @property
    def _decided(self) -> tuple[str, str]:
        """Which check decided, or who else, empty where nobody did; and what it said."""
        first, _, message = self.words.partition(": ")
        if first in _OTHERS:
            return _OTHERS[first], message if _OTHERS[first] else self.words
        return (f"`{first}`", message) if first.isidentifier() else ("", self.words)

    @property
    def _told(self) -> str:
        status = self.answer.status if self.answer else ""
        return f"{status}: {self.words}" if self.words else status


def page(rows: Sequence[Row], counts: Sequence[Counted] = (), compared: Sequence[Compared] = ()) -> str:
    """Return docs/proofs.md, or of it what there is."""
    unseen = [row for row in rows if row.lie.unseen]
    honest = [row for row in rows if not row.lie.unseen and row.lie.expected.status == (VALID,)]
    found = [row for row in rows if row not in unseen and row not in honest]
    right = sum(not row.problem and row.answer is not None for row in rows)
    staged = sum(row.answer is not None for row in rows)
    missing = f"; {len(rows) - staged} could not be staged on this machine" if staged < len(rows) else ""
    lines = [_INTRODUCTION, f"{right} of {staged} answers are as they must be{missing}."]
    for head, those in ((_FOUND, found), (_HONEST, honest)):
        lines += [head, *(row.markdown for row in those)] if those else []
    answers = {row.lie.name: row.decision for row in rows}
    lines += [honest_runs.page(counts)] if counts else []
    lines += [told.page(compared, answers)] if compared else []
    lines += [_UNSEEN, *(row.unseen for row in unseen)] if unseen else []
    return "\n".join(lines) + "\n"
