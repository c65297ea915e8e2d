"""Find from measured runs how many emulated accelerators a storage can feed, and write the result as one sentence.

A storage feeds a number of accelerators if every accelerator reaches its minimum utilization. The command `feed` and
the report print the sentence. A probe is a cell that measures one number of accelerators.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from jobs.checks import LEAST_OF_CLIENT, may_client_starve

NOT_MLPERF = "not an MLPerf result, not reviewed"
Kind = Literal["cold", "warm", "memory"]
CONTROLS: dict[Kind, str] = {"memory": "batches from memory", "warm": "data in memory"}


@dataclass(frozen=True)
class Setup:
    """The settings of a probe: accelerators per node, the source of the batches, and the duration of a step."""

    accelerators: int
    kind: Kind = "cold"
    step_s: float | None = None  # None: the duration in the definition of the accelerator


@dataclass(frozen=True)
class Outcome:
    """The valid runs of a probe; `late` is true if the client could not end the steps in time."""

    runs: Sequence[Mapping[str, Any]] = ()
    late: bool = False
    looser_checks: Sequence[str] = ()  # limits of checks that were looser than the site's limits, with both values

    @property
    def worst_run(self) -> Mapping[str, Any]:
        """Return the run with the lowest utilization of an accelerator, or an empty mapping for a late client."""
        return min(() if self.late else self.runs, key=lambda run: run["au_percent"], default={})

    @property
    def worst(self) -> float:
        """Return the lowest utilization of an accelerator in any run, in percent, or 0 for a late client."""
        return float(self.worst_run.get("au_percent", 0.0))

    @property
    def worst_in_words(self) -> str:
        """Return the lowest utilization of an accelerator as text, or "late" for a late client."""
        return "late" if self.late else f"{self.worst:.1f} %"

    def median(self, key: str) -> float:
        """Return the median of a metric over the runs."""
        return float(statistics.median(run[key] for run in self.runs))


def outcome_of(runs: Iterable[Mapping[str, Any]], looser: Sequence[str] = ()) -> Outcome:
    """Return the outcome of the judged runs of a cell.

    The client counts as late if at least two runs, and at least half of the runs, ended their steps late.
    """
    measured = [run for run in runs if run["role"] == "measured"]
    valid = [run for run in measured if run["status"] == "valid"]
    late = [run for run in measured if run["status"] == "invalid" and run.get("cause") == "on_time"]
    return Outcome(valid, len(late) > 1 and len(late) >= len(valid), looser)


Outcomes = Mapping[Setup, Outcome]


class FeedLimit(NamedTuple):
    """The largest number of accelerators per node that the storage feeds, and the smallest number that it does not."""

    fed: int
    not_fed: int | None = None  # None if no such number was found
    client: int | None = None  # largest number that the client can emulate, if the client and not the storage limits


def edge_of(outcomes: Outcomes, minimum: float) -> FeedLimit | None:
    """Return the edge that a search found, or None if the search is not complete. `minimum` is in percent."""
    cold = {each.accelerators: outcome for each, outcome in outcomes.items() if each == Setup(each.accelerators)}
    not_fed = min((number for number, outcome in cold.items() if outcome.worst < minimum), default=None)
    fed = max((number for number in cold if not_fed is None or number < not_fed), default=0)
    edge = not_fed or fed
    too_many = [setup.accelerators for setup in outcomes if not is_client_able(outcomes, setup.accelerators, minimum)]
    if (least := min(too_many, default=edge + 1)) <= edge:
        return FeedLimit(min(fed, least - 1), not_fed, least - 1)
    return FeedLimit(fed, not_fed) if Setup(edge, "memory") in outcomes else None


def is_client_able(outcomes: Outcomes, number: int, minimum: float) -> bool:
    """Return whether the client can emulate `number` accelerators; probes without an outcome are ignored."""
    least = {Setup(number, "memory"): LEAST_OF_CLIENT, Setup(number, "warm"): minimum}
    controls = all(outcomes[setup].worst >= share for setup, share in least.items() if setup in outcomes)
    return controls and not _fault_of_cold(outcomes, number, minimum)


def _fault_of_cold(outcomes: Outcomes, number: int, minimum: float) -> str:
    """Return why the client, and not the storage, limits a cold probe.

    Return "" if the client does not limit the probe, or if there is no such probe.
    """
    cold = outcomes.get(Setup(number), Outcome())
    wait = cold.worst_run.get("cpu_wait_percent", 0.0)
    if cold.late:
        return "steps end late"
    return f"readers lack a processor for {wait:.0f} %" if may_client_starve(cold.worst, wait, minimum) else ""


def _why_client(outcomes: Outcomes, number: int, minimum: float) -> str:
    """Return a text with the results that show that the client cannot emulate `number` accelerators."""
    controls = [(name, outcomes.get(Setup(number, kind))) for kind, name in CONTROLS.items()]
    words = [
        (name, "steps end late" if outcome.late else f"{outcome.worst:.1f} %") for name, outcome in controls if outcome
    ]
    words.append(("cold", _fault_of_cold(outcomes, number, minimum)))
    return ", ".join(f"{name}, {number}: {why}" for name, why in words if why)


def accelerator_label(accelerator: str, nodes: int) -> str:
    """Return the name of an accelerator, with the number of nodes if there are several nodes."""
    return f"{accelerator} on each of {nodes} nodes" if nodes > 1 else accelerator


def feed_sentence(where: str, what: str, edge: FeedLimit, outcomes: Outcomes, minimum: float) -> str:
    """Return a sentence that says how many accelerators named `what` the storage named `where` can feed.

    The sentence includes the lowest utilization. If the client limits, the sentence says how many accelerators the
    client can emulate.
    """

    def worst(number: int) -> str:
        return outcomes[Setup(number)].worst_in_words

    if edge.client is not None:
        why = _why_client(outcomes, edge.client + 1, minimum)
        least = f"; {where} feeds at least {edge.fed}" if edge.fed else ""
        return f"{where}: this client can emulate at most {edge.client} {what} ({why}){least}"
    if edge.not_fed is None:
        return f"{where} feeds {edge.fed} {what} at least (worst rank {worst(edge.fed)})"
    if edge.fed:
        shares = f"worst rank {worst(edge.fed)}, {worst(edge.not_fed)}"
        return f"{where} feeds {edge.fed} {what}, not {edge.not_fed} ({shares})"
    return f"{where} feeds less than one {what} (worst rank {worst(1)})"
