"""Search how many accelerators a storage can supply with data, and format the answer as text, table and JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from campaign import console
from campaign.feed.probes import Target
from campaign.feed.search import bracket_number, bracket_step, confirm_edge
from jobs.judging.fed_accelerators import (
    NOT_MLPERF,
    FeedLimit,
    Kind,
    Outcome,
    Setup,
    accelerator_label,
    feed_sentence,
    is_client_able,
)

_HEADS = (
    "accelerators", "batches", "runs", "AU worst", "AU mean", "as DLIO", "MB/s", "needs", "waits", "meets", "late"
)  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """The result of a search for one storage and one kind of accelerator."""

    target: Target
    edge: FeedLimit
    # If the storage cannot supply even one accelerator: a longer step with which it can supply one accelerator.
    fed_step_s: float | None = None
    starved_step_s: float | None = None  # a shorter step with which the storage still cannot supply one accelerator
    remark: str = ""  # remark on larger numbers of accelerators: an odd result, or why no larger number was tried

    @property
    def share(self) -> float | None:
        """Return the share of one accelerator that the storage can supply, or None if it can supply at least one."""
        return self.target.accelerator["step_s"] / self.fed_step_s if self.fed_step_s else None

    @property
    def line(self) -> str:
        """Return the result of the search in one line."""
        target, what = self.target, accelerator_label(self.target.name, self.target.point["nodes"])
        if self.share is None:
            line = feed_sentence(target.storage, what, self.edge, target.outcomes, target.minimum)
            return f"{line}; {self.remark}" if self.remark and self.edge.not_fed is None else line
        steps = [f"{step_s:.4g} s ({self._worst_of_one(step_s)})" for step_s in (self.fed_step_s, self.starved_step_s)]
        return f"{target.storage} feeds {self.share:.2g} of one {what}: with steps of {steps[0]}, not of {steps[1]}"

    def _worst_of_one(self, step_s: float | None) -> str:
        is_defined = step_s == self.target.accelerator["step_s"]
        return self.target.outcomes[Setup(1, step_s=None if is_defined else step_s)].worst_in_words

    @property
    def looser_checks(self) -> list[str]:
        """Return the checks with looser limits than the site's, each with both limits.

        With such a check, runs that other programs disturbed may have counted as valid.
        """
        return [*dict.fromkeys(check for outcome in self.target.outcomes.values() for check in outcome.looser_checks)]

    def as_json(self) -> dict[str, Any]:
        """Return the answer as plain values, as ``feed --json`` prints it."""
        target, edge = self.target, self.edge
        return {
            "storage": target.storage,
            "accelerator": target.name,
            "nodes": target.point["nodes"],
            "feeds": None if edge.client is not None else edge.fed or self.share,
            "feeds_at_least": edge.fed,
            "not": edge.not_fed,
            "client_at_most": edge.client,
            "meets_size_rule": target.check_size_rule(edge.fed)[0],
            "looser_checks": self.looser_checks,
            "demand_mb_per_s": target.demand_mb_per_s,
            "baseline_mb_per_s": target.baseline_mb_per_s,
            "probes": [
                {
                    "accelerators": setup.accelerators,
                    "batches": setup.kind,
                    "step_s": setup.step_s or target.accelerator["step_s"],
                    "late": outcome.late,
                    "au_percent": [run["au_percent"] for run in outcome.runs],
                    "cell": target.plans[setup].entries[0].cell.id,
                }
                for setup, outcome in target.outcomes.items()
            ],
        }


def find_answer(target: Target, runs: int, most: int) -> Answer:
    """Search for the largest number of accelerators that the storage can supply, and return the answer.

    Each number at the edge is run `runs` times; no number above `most` is tried. Control runs without the storage check
    that the client is not the limit.
    """
    allows = "--most allows" if most <= target.most_accelerators() else "the data suffice for"
    most = min(most, target.most_accelerators())

    def is_fed(number: int, runs: int = 1, step_s: float | None = None) -> bool:
        return target.probe(Setup(number, step_s=step_s), runs).worst >= target.minimum

    low, high = bracket_number(target.accelerators_by_bandwidth, is_fed, most)
    low, high = confirm_edge(low, high, lambda number: is_fed(number, runs), most)
    if (client := _client_limit(target, high or low)) is not None:
        return Answer(target, FeedLimit(min(low, client), high, client))
    if high is None:
        return Answer(target, FeedLimit(low), remark=f"{allows} no more")
    if low:
        odd = 2 * low > high and 2 * low <= most and is_fed(2 * low)
        beyond = f"{2 * low} are fed in one run, though {high} are not" if odd else ""
        return Answer(target, FeedLimit(low, high), remark=beyond)
    step_s, au = target.accelerator["step_s"], target.outcomes[Setup(1)].worst / 100
    steps_s = bracket_step(step_s, au, target.minimum / 100, lambda step_s: is_fed(1, runs, step_s))
    return Answer(target, FeedLimit(0, 1), *steps_s)


def _client_limit(target: Target, number: int) -> int | None:
    """Return the largest number of accelerators that this client can emulate, or None if it can emulate `number`."""
    controls: list[Kind] = ["memory", "warm"] if target.fits_memory() else ["memory"]

    def is_able(number: int) -> bool:
        for kind in controls:
            if is_client_able(target.outcomes, number, target.minimum):
                target.probe(Setup(number, kind))
        return is_client_able(target.outcomes, number, target.minimum)

    return None if is_able(number) else bracket_number(number, is_able, number)[0]


def lines_of_answer(answer: Answer) -> list[str]:
    """Return the lines of an answer: the result, the table of the probes and the notes on the table."""
    target = answer.target
    order = sorted(target.outcomes.items(), key=lambda each: (each[0].kind, each[0].step_s or 0, each[0].accelerators))
    lines = console.format_table([_HEADS, *(_row(target, *probe) for probe in order)], right=range(2, 11))
    met, rule = target.check_size_rule(answer.edge.fed)
    gives = f"one file, end to end: {target.baseline_mb_per_s:.4g} MB/s"
    number = target.baseline_mb_per_s / target.demand_mb_per_s
    arithmetic = (
        f"by arithmetic {number:.3g} at an AU of 100%, {100 * number / target.minimum:.3g} at {target.minimum:g}%"
    )
    notes = [
        f"AU: share of the time in which an accelerator computes, at least {target.minimum:.0f}%; needs: MB/s at 100 %",
        "waits, meets: share of the time waiting for data, and for other accelerators (worst accelerator and run)",
        "late: mean delay of a step, as a share of the step",
        f"{gives}; one {target.name} needs {target.demand_mb_per_s:.4g} MB/s: {arithmetic}",
        f"meets_size_rule: {'yes' if met else 'no'} ({rule})",
        *([] if target.fits_memory() else ["the data do not fit into memory: no control with data in memory"]),
        *([answer.remark] if answer.remark and answer.edge.not_fed else []),
    ]
    others = "judged by looser checks, so the load of other programs may be the limit: "
    looser = [others + ", ".join(answer.looser_checks)] if answer.looser_checks else []
    return [f"{answer.line}  [{NOT_MLPERF}]", *looser, "", *lines, *notes]


def _row(target: Target, setup: Setup, outcome: Outcome) -> tuple[str, ...]:
    own_s = target.accelerator["step_s"]
    needs = f"{setup.accelerators * target.demand_mb_per_s * own_s / (setup.step_s or own_s):.4g}"
    number = f"{setup.accelerators}{f' (step {setup.step_s:.4g} s)' if setup.step_s else ''}"
    if outcome.late:
        return (number, setup.kind, "2", "late", "", "", "", needs, "", "", "")
    worst = outcome.worst_run
    return (
        number,
        setup.kind,
        str(len(outcome.runs)),
        outcome.worst_in_words,
        *(f"{outcome.median(key):.1f} %" for key in ("au_mean_percent", "au_dlio_percent")),
        f"{outcome.median('read_mb_per_s'):.4g}" if setup.kind != "memory" else "",
        needs,
        *(f"{worst[part] / worst['wall_s']:.0%}" for part in ("load_s", "sync_s")),
        f"{outcome.median('late_share'):.1%}",
    )
