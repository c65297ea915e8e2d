"""Run the probes of a search: each probe is a cell of benchmark ``feed`` with a certain number of accelerators.

Because probes are cells, an interrupted search can continue: recorded runs are read from the records and not repeated.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign import console
from campaign.cells.cell_plan import Plan, PlannedCell
from campaign.cli import run
from campaign.config.command_line import CommandLine
from campaign.console import count_noun
from campaign.errors import CampaignError
from campaign.storage.unchanged import require_unchanged
from jobs.judging.fed_accelerators import CONTROLS, Outcome, Setup, outcome_of
from jobs.model import reading
from jobs.model.codes import ExitCode
from jobs.model.conduct import Point
from jobs.model.settings import Files, Node
from jobs.system.cgroup import memory_left_bytes
from jobs.system.files import resolve_links, write_json

LEAST_STEPS, RUN_S = 10, 5.0  # least steps of a run, and least seconds of computing
_ROOM, _BLOCK_BYTES = 0.8, 4096  # share of the free space that the data may occupy; bytes of a block on the disk
_TRIES = 3
# MLPerf Storage's rules on the least size of the data: 500 steps per accelerator, 5 times the memory of the clients.
_RULE_STEPS, _RULE_MEMORY = 500, 5


@dataclass
class Target:
    """A storage and a kind of accelerator, for which a search finds the number of accelerators."""

    point: Point
    words: Sequence[str]  # arguments of a campaign with benchmark=feed
    distinguishing_settings: str = ""  # the swept settings, if other targets have this storage and accelerator
    command: Sequence[str] = ()  # the verb and the arguments that the user typed
    baseline_mb_per_s: float = 0.0
    outcomes: dict[Setup, Outcome] = field(default_factory=dict)
    plans: dict[Setup, Plan] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the name of the accelerator, with the settings that distinguish this target from other targets."""
        return str(self.point["accelerator"]["name"]) + (
            f" ({self.distinguishing_settings})" if self.distinguishing_settings else ""
        )

    @property
    def storage(self) -> str:
        """Return the name of the storage."""
        return str(self.point["storage"]["name"])

    @property
    def accelerator(self) -> Node:
        """Return the definition of the accelerator."""
        accelerator: Node = self.point["accelerator"]
        return accelerator

    @property
    def minimum(self) -> float:
        """Return the utilisation in percent that each accelerator must reach."""
        return 100 * float(self.accelerator["minimum"])

    @property
    def demand_mb_per_s(self) -> float:
        """Return the MB/s that all nodes need at full utilisation, with one accelerator on each node."""
        own = self.accelerator
        return float(self.point["nodes"] * own["batch"] * own["sample_bytes"] / 1e6 / own["step_s"])

    @property
    def steps(self) -> int:
        """Return the number of steps of a run; a run has fewer steps if the data do not suffice."""
        return int(self.point["iterations"] or max(LEAST_STEPS, -(-RUN_S // self.accelerator["step_s"])))

    @property
    def data_bytes(self) -> int:
        """Return the bytes of the data set."""
        own = self.point["dataset"]
        return int(own["files"] * own["samples_per_file"] * own["sample_bytes"])

    @property
    def accelerators_by_bandwidth(self) -> int:
        """Return for how many accelerators per node the measured MB/s of the baseline suffice."""
        return int(self.baseline_mb_per_s * self.point["nodes"] / self.demand_mb_per_s)

    def size_data(self, accelerators: int, kept: Path | None = None, sharing: int = 1) -> None:
        """Choose the number of data files that suffices for `accelerators` per node and fits into the free space.

        `sharing` is the number of targets that share the free space of the storage. The file `kept` stores the chosen
        number, because less space is free after the data were made. A number that does not suffice for one accelerator
        is not stored.
        """
        folder, own = resolve_links(self.point["storage"]["root"]), self.point["dataset"]
        samples = self.point["nodes"] * accelerators * self.accelerator["batch"] * self.steps
        wanted = -(-samples // own["samples_per_file"])
        there = next(each for each in (folder, *folder.parents) if each.is_dir())
        blocks = -(-own["samples_per_file"] * own["sample_bytes"] // _BLOCK_BYTES)
        most = int(_ROOM * shutil.disk_usage(there).free / sharing / (blocks * _BLOCK_BYTES))
        self.point = {**self.point, "dataset": {**own, "files": wanted}}
        wish = self.plan(Setup(1), 1).entries[0].cell.id
        decided: dict[str, int] = {}
        with suppress(OSError, ValueError):  # no file, or a damaged file: the number is chosen again
            decided = reading.read_json(kept, dict[str, Files]) if kept else {}
        files = decided.get(wish, max(1, min(wanted, most)))
        self.point = {**self.point, "dataset": {**own, "files": files}}
        if kept and self.most_accelerators():
            write_json(kept, {**decided, wish: files})

    def most_accelerators(self) -> int:
        """Return for how many accelerators per node the data have enough samples for the steps of a run."""
        own = self.point["dataset"]
        batches = own["files"] * own["samples_per_file"] // self.accelerator["batch"] // self.point["nodes"]
        return int(batches // min(LEAST_STEPS, self.steps))

    def check_size_rule(self, accelerators: int) -> tuple[bool, str]:
        """Return whether the data are as large as MLPerf Storage demands for `accelerators`, and an explanation."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        nodes, own = self.point["nodes"], self.accelerator
        steps = _RULE_STEPS * own["batch"] * nodes * max(1, accelerators) * own["sample_bytes"]
        needed = max(steps, _RULE_MEMORY * nodes * memory)
        words = f"{self.data_bytes / 1e9:.3g} GB of data, {needed / 1e9:.3g} GB by {_RULE_STEPS} steps and"
        return self.data_bytes >= needed, f"{words} {_RULE_MEMORY} times the memory"

    def fits_memory(self) -> bool:
        """Return whether the data set fits into the free memory of this machine."""
        left = memory_left_bytes()
        return left is None or self.data_bytes < left

    def plan(self, setup: Setup, runs: int) -> Plan:
        """Return the plan of a probe with this number of runs."""
        point = {**self.point}
        for key, value in self._settings(setup, runs).items():
            node, _, name = key.rpartition(".")
            point[node or key] = {**point[node], name: value} if node else value
        return run.plan_points([point])

    def _settings(self, setup: Setup, runs: int) -> dict[str, Any]:
        """Return the settings of a probe that the search itself decides, by dotted key."""
        return {
            "benchmark.accelerators": setup.accelerators,
            "benchmark.source": "memory" if setup.kind == "memory" else "storage",
            "cache": "as_is" if setup.kind == "memory" else setup.kind,
            "dataset.files": self.point["dataset"]["files"],
            "iterations": self.steps,
            "runs": runs,
            "min_valid_runs": runs,
            "warmup_runs": 0,
            **({"accelerator.step_s": setup.step_s} if setup.step_s else {}),
        }

    def probe(self, setup: Setup, runs: int = 1) -> Outcome:
        """Return the outcome of a probe; run the probe only if its runs are not recorded yet.

        Raises CampaignError if too few runs are valid after several tries.
        """
        plan = self.plan(setup, runs)
        settings = self._settings(setup, runs)
        words = [word for word in self.words if word.partition("=")[0] not in settings]
        words += [f"{key}={value}" for key, value in settings.items()]
        for tries_left in reversed(range(_TRIES + 1)):
            self.plans[setup] = plan
            outcome = self.outcomes[setup] = read_outcome(plan, plan.entries[0])
            if outcome.late or len(outcome.runs) >= runs:
                return outcome
            if tries_left:
                console.say(f"{self.name}: {describe_setup(setup)}, {count_noun(runs, 'run')}")
                plan = run_cells(plan, words, self.command)
        raise no_runs_error(plan, plan.entries[0])


def run_cells(plan: Plan, words: Sequence[str], command: Sequence[str]) -> Plan:
    """Run the cells of a plan, and return the plan after reading their new records.

    `words` are the arguments of the campaign, and `command` is the command that the user typed.
    Raises KeyboardInterrupt if the user stopped the runs.
    """
    split = CommandLine((), assume_yes=True)
    if run.run_plan(plan, words, split, command=command, reports=False) == ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    return plan.refresh()


def no_runs_error(plan: Plan, entry: PlannedCell) -> CampaignError:
    """Return the error for a cell that has too few valid runs."""
    record, fault = plan.verdicts.read(plan.folder.record(entry.cell.id))
    why = fault or (record and record.get("reason")) or "the cell has no runs"
    return CampaignError(f"{entry.cell.id}: {why}", "the same command continues the search")


def describe_setup(setup: Setup) -> str:
    """Describe a probe in words: the number of accelerators, the step if it is changed, where batches come from."""
    step = f" with steps of {setup.step_s:.4g} s" if setup.step_s else ""
    return f"{count_noun(setup.accelerators, 'accelerator')}{step}, {CONTROLS.get(setup.kind, 'cold')}"


def read_outcome(plan: Plan, entry: PlannedCell) -> Outcome:
    """Return the outcome of the runs that the record of a cell has so far.

    Raises UsageError if the storage has changed since the runs.
    """
    record, _ = plan.verdicts.read(plan.folder.record(entry.cell.id))
    if not record:
        return Outcome()
    require_unchanged(record, redo=False)
    return outcome_of(record["runs"], record.get("looser_checks", ()))
