"""HEPCNNB's training: files loaded one after the other, steps, a validation pass after each epoch; nothing overlaps."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs import steps
from jobs.benchmarks.hep.hep_rules import TRAIN, VALIDATION, Load, Rules
from jobs.benchmarks.hep.samples import Arrays, Samples
from jobs.benchmarks.nersc.nersc_run import Training
from jobs.checkpoints.saver import Saver
from jobs.data.readers import Reader
from jobs.errors import UnreadableImageError
from jobs.events.spent import Spent
from jobs.events.time_log import UNKNOWN
from jobs.lazy_imports import np
from jobs.objects.source import Source
from jobs.observe.counters import process_io
from jobs.system import page_cache


class Loader:
    """Loads files whole, and keeps book of each load: ``rows`` as a record has them."""

    def __init__(
        self,
        files: Mapping[str, Sequence[Path]],
        rules: Rules,
        reader: Reader,
        spent: Spent,
        source: Source | None = None,
    ) -> None:
        self._files, self._rules, self._reader, self._spent = files, rules, reader, spent
        self.source = source
        self.rows: list[dict[str, Any]] = []

    def load(self, phase: str, load: Load) -> Arrays:
        """Return images (n, side, side, 3), labels and the rest; raises UnreadableImageError."""
        path, spent = self._files[phase][load.file], self._spent
        with spent.during("other"):
            resident, fetched = self._resident(path), self._fetched()
            place = spent.log.place(phase, load.epoch) if spent.log else None
        began, read_s = time.perf_counter(), -spent.seconds["read"]
        with spent.during("load", path, place):
            with spent.during("read", logged=False):
                images, labels, *rest = self._read(path, phase, load.epoch)
            read_s += spent.seconds["read"]
            images = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
        with spent.during("other"):
            size = sum(each.nbytes for each in (images, labels, *rest))
            now = self._fetched()
            row = {"phase": phase, "epoch": load.epoch, "file": load.file, "resident": resident, "bytes": size}
            row |= {"device_bytes": None if fetched is None or now is None else now - fetched}
            self.rows.append(row | {"read_s": read_s, "load_s": time.perf_counter() - began})
        return [images, labels, *rest]

    def _read(self, path: Path, phase: str, epoch: int) -> list[Any]:
        arrays = self._reader.read(path, at=(phase, epoch, UNKNOWN))
        wanted = self._rules.files(phase).samples
        if any(len(each) != wanted for each in arrays):
            raise UnreadableImageError(f"{path}: {len(arrays[0])} samples, and the first file has {wanted}")
        return arrays

    def _resident(self, path: Path) -> float | None:
        return page_cache.residency([path]).fraction if self.source is None else None

    def _fetched(self) -> int | None:
        """Return the bytes that the kernel fetched so far for this process; None where others read, or it is silent."""
        if self.source or self._reader.processes():
            return None
        found = process_io()
        return found["read_bytes"] if found else None


@dataclass(kw_only=True)
class HepTraining(Training):
    """A training of one rank, from the first load to the last step."""

    rules: Rules
    samples: Mapping[str, Samples]  # by phase; no validation where this rank has no file of it
    saver: Saver | None = None
    steps_done: int = 0
    checkpoint_finish_s: float = 0.0

    def run(self) -> None:
        """Do all steps; within the clock."""
        passed = 0
        if validation := self.samples.get(VALIDATION):
            self.at(VALIDATION, 0)
            validation.advance()
        for number in (marked := steps.marked(range(self.rules.steps))):
            self._step(number)
            while validation and passed < self.samples[TRAIN].epoch:
                self._validate(validation, passed)
                passed += 1
        self.spent.seconds["other"] += marked.spent_s
        if self.saver:
            began = time.perf_counter()
            with self.spent.during("checkpoint"):
                self.saver.finish()
            self.checkpoint_finish_s = time.perf_counter() - began

    def _step(self, number: int) -> None:
        samples, clock = self.samples[TRAIN], time.perf_counter
        self.at(TRAIN, samples.coming, number)
        began = clock()
        with self.spent.during("next"):
            images, labels, *_ = samples.batch(self.rules.batch_size)
        loaded = clock()
        loss = self.step.train(images, labels)
        with self.spent.during("other"):
            self.step_load_s.append(loaded - began)
            self.step_compute_s.append(clock() - loaded)
            self.enter(loss)
            self.steps_done += 1
        if self.saver:
            with self.spent.during("checkpoint"):
                self.saver.after(number + 1)

    def _validate(self, samples: Samples, number: int) -> None:
        """Go once through all files that this rank has for it, and on to the first one of the next pass."""
        self.at(VALIDATION, number)
        left = self.rules.share(VALIDATION) * self.rules.validation.samples
        with self.spent.during("validate"):
            while left:
                size = min(left, self.rules.batch_size)
                with self.spent.during("next"):
                    images, labels, *_ = samples.batch(size)
                self.step.validate(images, labels)
                left -= size
            if number + 1 < self.rules.epochs:
                samples.advance()
