"""The samples of one kind as HEPCNNB hands them out: a file at a time, whole in memory and permuted there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jobs.benchmarks.hep.hep_rules import Load, Rules
from jobs.events.spent import Spent
from jobs.lazy_imports import np

Arrays = Sequence[Any]  # images (n, side, side, 3), labels (n,), and whatever else is read, of n samples

_TWICE = -1


class Samples:
    """The samples of a rank: what `load` gives of one file after another, in the order of the rules."""

    def __init__(self, rules: Rules, phase: str, rank: int, load: Callable[[Load], Arrays], spent: Spent) -> None:
        self._rules, self._phase, self._rank, self._load, self._spent = rules, phase, rank, load, spent
        # Of each file how many samples were handed out, by epoch; `_TWICE` where one of them was so twice.
        self.delivered: dict[int, list[int]] = {}
        self.epoch = 0
        self._place, self._next = -1, rules.files(phase).samples
        self._arrays: Arrays = ()

    def batch(self, size: int) -> Arrays:
        """Return so many samples, of the next files, too, where this one has not as many left."""
        parts = []
        while size:
            if self._next == self._rules.files(self._phase).samples:
                self.advance()
            parts.append(self._cut(size))
            size -= len(parts[-1][0])
        return parts[0] if len(parts) == 1 else [np.concatenate(each) for each in zip(*parts, strict=True)]

    @property
    def coming(self) -> int:
        """The epoch of the next sample."""
        return (self._place + (self._next == self._rules.files(self._phase).samples)) // self._rules.share(self._phase)

    def advance(self) -> None:
        """Go on to the next file; a rank with one file has it in memory."""
        share = self._rules.share(self._phase)
        self._place += 1
        self.epoch, at = divmod(self._place, share)
        load = Load(self.epoch, self._rules.order(self._phase, self._rank, self.epoch)[at])
        if share > 1 or not self._arrays:
            self._arrays = self._load(load)
        self._next = 0
        self._permute(load)

    def _permute(self, load: Load) -> None:
        number = len(self._arrays[0])
        self._rows = np.arange(number)
        self._handed_out = np.zeros(number, bool)
        if self._rules.shuffle != "none":
            with self._spent.during("shuffle"):
                seeds = [self._rules.seed, *self._phase.encode(), *load]
                self._rows = np.random.default_rng(seeds).permutation(number)
                self._arrays = [each[self._rows] for each in self._arrays]

    def _cut(self, size: int) -> Arrays:
        first, self._next = self._next, min(self._next + size, len(self._rows))
        self._note(self._rows[first : self._next])
        return [each[first : self._next] for each in self._arrays]

    def _note(self, rows: Any) -> None:
        """Keep book of the samples that are handed out, by the rows of their file."""
        counts = self.delivered.setdefault(self.epoch, [0] * self._rules.files(self._phase).number)
        file = self._rules.order(self._phase, self._rank, self.epoch)[self._place % self._rules.share(self._phase)]
        again = self._handed_out[rows].any() or counts[file] == _TWICE
        self._handed_out[rows] = True
        counts[file] = _TWICE if again else int(self._handed_out.sum())
