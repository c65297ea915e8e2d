"""What a run of ``hepcnn`` was to do, beside what it did: by rule, what was expected and what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.benchmarks.hep.hep_rules import TRAIN, Load, Rules, every_sample_once, load_bytes
from jobs.benchmarks.nersc.nersc_run import as_predicted
from jobs.model.results import Expectation
from jobs.ranks.rank import Rank
from jobs.ranks.training_meetings import alike

Row = Mapping[str, Any]  # a load (`jobs.benchmarks.hep.hep_training.Loader.rows`)

HALF = 0.5  # of a file's pages: with as many in memory it does not come from the device


@dataclass(frozen=True)
class Plan:
    """What one rank is to load: by phase, in its order."""

    rules: Rules
    here: Rank
    image_size: int
    phases: Sequence[str]  # none where nothing is read

    @property
    def loads(self) -> dict[str, list[Load]]:
        """What is loaded."""
        return {phase: self.rules.loads(phase, self.here.rank) for phase in self.phases}

    @property
    def cold(self) -> list[tuple[str, int, int]]:
        """Those that find nothing in memory, in a run that begins with a cold cache: phase, epoch, file."""
        shared = not self.here.private_caches
        places = {phase: self.rules.cold(phase, self.here.rank, shared=shared) for phase in self.phases}
        return [(phase, *loads[place]) for phase, loads in self.loads.items() for place in places[phase]]

    @property
    def bytes(self) -> int:
        """What all loads ask for."""
        size = {phase: load_bytes(self.rules.files(phase).samples, self.image_size) for phase in self.phases}
        return sum(len(loads) * size[phase] for phase, loads in self.loads.items())

    def of_rank(self, rows: Sequence[Row], cache: str) -> dict[str, Expectation]:
        """Hold what this rank loaded against it; `cache` is what the run claims of it, ``as_is`` of objects."""
        counts = {phase: len(loads) for phase, loads in self.loads.items()}
        found = {phase: sum(row["phase"] == phase for row in rows) for phase in self.phases}
        size = sum(row["bytes"] for row in rows), self.bytes
        expected = as_predicted("files loaded", (found, counts), size)
        return expected if cache == "as_is" else {**expected, "cold_as_predicted": self._cold(rows, cache)}

    def _cold(self, rows: Sequence[Row], cache: str) -> Expectation:
        wanted = [list(each) for each in sorted(self.cold)] if cache == "cold" else []
        if not self.here.private_caches and self.rules.shuffle == "global":
            why = "not comparable: these nodes share a page cache"
            return {"expected": wanted, "found": None, "message": why}
        if any(row["resident"] is None for row in rows):
            why = "the kernel does not tell this user what is in memory of another user's files"
            return {"expected": wanted, "found": None, "message": why}
        found = sorted([row["phase"], row["epoch"], row["file"]] for row in rows if row["resident"] < HALF)
        odd = [each for each in [*wanted, *found] if (each in wanted) != (each in found)]
        first = "; the first that is not so: file {2} of {0} in epoch {1}".format(*odd[0]) if odd else ""
        told = f"{len(found)} of {len(rows)} loads found their file not in memory, {len(wanted)} were to{first}"
        return {"expected": wanted, "found": found, "message": told}


def over_ranks(rules: Rules, told: Sequence[Mapping[str, Any]]) -> dict[str, Expectation]:
    """Hold against each other what the ranks tell: ``steps``, ``delivered`` (by epoch and file), ``weights``."""
    fault = every_sample_once(rules, [each["delivered"] for each in told])
    share = rules.train.samples * rules.share(TRAIN) * rules.ranks
    fine = f"{rules.finished} epochs of {share:,} samples, each once over all ranks"
    return alike(told, [rules.steps] * rules.ranks, fault, fine)


def seconds_by_source(rows: Sequence[Row]) -> dict[str, float]:
    """Return of each phase how many loads came from the device (``cold``) and from memory (``warm``), and the median.

    As ``train_cold_loads``, ``train_cold_read_s`` and so on; no median where there was none. What cannot be told, as of
    objects, is neither.
    """
    from statistics import median  # noqa: PLC0415 - takes 10 ms

    found: dict[str, float] = {}
    for phase in dict.fromkeys(row["phase"] for row in rows):
        for source, cold in (("cold", True), ("warm", False)):
            times = [
                row["read_s"]
                for row in rows
                if row["phase"] == phase and row["resident"] is not None and (row["resident"] < HALF) == cold
            ]
            found[f"{phase}_{source}_loads"] = len(times)
            found |= {f"{phase}_{source}_read_s": median(times)} if times else {}
    return found


def together(ranks: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return of all ranks the loads, added up, the mean of the seconds with them, and medians of their medians."""
    from statistics import mean, median  # noqa: PLC0415

    found: dict[str, float] = {}
    for name in dict.fromkeys(name for rank in ranks for name in rank):
        values = [rank[name] for rank in ranks if name in rank]
        if name.endswith("_loads") or name == "loads":
            found[name] = sum(values)
        elif name in ("read_s", "unpack_s", "shuffle_s"):
            found[name] = mean(values)
        elif name.endswith(("cold_read_s", "warm_read_s")):
            found[name] = median(values)
    return found
