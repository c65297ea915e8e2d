"""What a search found, in words and as a table."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from campaign import console
from campaign.feed.probes import CONTROLS, Outcome, Setup, Target
from campaign.feed.search import bracket_number, bracket_step, settle_edge
from jobs.checks import LEAST_OF_CLIENT, may_client_starve

NOT_MLPERF = "not an MLPerf result, not reviewed"
_HEADS = (
    "accelerators", "batches", "runs", "AU worst", "AU mean", "as DLIO", "MB/s", "needs", "waits", "meets", "late"
)  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """The result for a storage and a kind of accelerator."""

    target: Target
    fed: int  # accelerators per node
    not_fed: int | None  # the least number that is not; None: not found
    client: int | None = None  # the most that this client can emulate, if that is what ended the search
    fed_step_s: float | None = None  # of one accelerator, below one: a step that is long enough
    starved_step_s: float | None = None  # and one that is not
    beyond: str = ""  # what twice as many did, if that is odd; or why no more were tried

    @property
    def share(self) -> float | None:
        """Return the share of one accelerator that is fed, below one."""
        step_s = self.target.point["accelerator"]["step_s"]
        return step_s / self.fed_step_s if self.fed_step_s else None

    @property
    def line(self) -> str:
        """Return the result in one line."""
        where, nodes, worst = self.target.storage, self.target.point["nodes"], self._worst
        what = self.target.name + (f" on each of {nodes} nodes" if nodes > 1 else "")
        if self.client is not None:
            least = f"; {where} feeds at least {self.fed}" if self.fed else ""
            return f"{where}: this client can emulate at most {self.client} {what} ({self._why_client()}){least}"
        if self.not_fed is None:
            return f"{where} feeds {self.fed} {what} at least (worst rank {worst(self.fed)}); {self.beyond}"
        if self.fed:
            shares = f"worst rank {worst(self.fed)}, {worst(self.not_fed)}"
            return f"{where} feeds {self.fed} {what}, not {self.not_fed} ({shares})"
        if self.share is None:
            return f"{where} feeds less than one {what} (worst rank {worst(1)})"
        steps = [f"{step_s:.4g} s ({worst(1, step_s)})" for step_s in (self.fed_step_s, self.starved_step_s)]
        return f"{where} feeds {self.share:.2g} of one {what}: with steps of {steps[0]}, not of {steps[1]}"

    def _worst(self, number: int, step_s: float | None = None) -> str:
        own = self.target.point["accelerator"]["step_s"]
        outcome = self.target.outcomes[Setup(number, step_s=None if step_s == own else step_s)]
        return "late" if outcome.late else f"{outcome.worst:.1f} %"

    def _why_client(self) -> str:
        number = (self.client or 0) + 1
        outcomes = self.target.outcomes
        controls = [each for kind in CONTROLS if (each := outcomes.get(Setup(number, kind)))]
        words = [
            (CONTROLS[each.setup.kind], "steps end late" if each.late else f"{each.worst:.1f} %") for each in controls
        ]
        if cold := outcomes.get(Setup(number)):
            words.append(("cold", _why_client_is_to_blame(cold, 100 * self.target.point["accelerator"]["minimum"])))
        return ", ".join(f"{kind}, {number}: {why}" for kind, why in words if why)

    @property
    def looser(self) -> list[str]:
        """Return the checks by which others' work may have passed, each with the limit of the site."""
        return [*dict.fromkeys(itertools.chain(*(each.looser for each in self.target.outcomes.values())))]

    def as_json(self) -> dict[str, Any]:
        """Return the answer as plain values."""
        met, _ = self.target.size_rule(self.fed)
        return {
            "storage": self.target.storage,
            "accelerator": self.target.name,
            "nodes": self.target.point["nodes"],
            "feeds": None if self.client is not None else self.share if not self.fed else self.fed,
            "feeds_at_least": self.fed,
            "not": self.not_fed,
            "client_at_most": self.client,
            "meets_size_rule": met,
            "looser_checks": self.looser,
            "demand_mb_per_s": self.target.demand_mb_per_s,
            "baseline_mb_per_s": self.target.baseline_mb_per_s,
            "probes": [
                {
                    "accelerators": setup.accelerators,
                    "batches": setup.kind,
                    "step_s": setup.step_s or self.target.point["accelerator"]["step_s"],
                    "late": outcome.late,
                    "au_percent": [run["au_percent"] for run in outcome.runs],
                    "cell": self.target.plans[setup].entries[0].cell.id,
                }
                for setup, outcome in self.target.outcomes.items()
            ],
        }


def find_answer(target: Target, runs: int, most: int) -> Answer:
    """Search for the number of accelerators that a storage feeds, with the controls of the client."""
    minimum = 100 * float(target.point["accelerator"]["minimum"])
    allows = "--most allows" if most <= target.most_accelerators() else "the data suffice for"
    most = min(most, target.most_accelerators())

    def is_fed(number: int, runs: int = 1, step_s: float | None = None) -> bool:
        return target.probe(Setup(number, step_s=step_s), runs).worst >= minimum

    low, high = bracket_number(target.by_arithmetic, is_fed, most)
    low, high = settle_edge(low, high, lambda number: is_fed(number, runs), most)
    if (client := _client_limit(target, high or low, minimum)) is not None:
        return Answer(target, min(low, client), high, client)
    if high is None:
        return Answer(target, low, None, beyond=f"{allows} no more")
    if low:
        odd = 2 * low > high and 2 * low <= most and is_fed(2 * low)
        return Answer(target, low, high, beyond=f"{2 * low} are fed in one run, though {high} are not" if odd else "")
    step_s, au = target.point["accelerator"]["step_s"], target.outcomes[Setup(1)].worst / 100
    fed_s, starved_s = bracket_step(step_s, au, minimum / 100, lambda step_s: is_fed(1, runs, step_s))
    return Answer(target, 0, 1, fed_step_s=fed_s, starved_step_s=starved_s)


def _client_limit(target: Target, number: int, minimum: float) -> int | None:
    """Return the most accelerators that this client can emulate; None if `number` are not too many for it."""

    def is_able(number: int) -> bool:
        if (cold := target.outcomes.get(Setup(number))) and _why_client_is_to_blame(cold, minimum):
            return False
        if target.probe(Setup(number, "memory")).worst < LEAST_OF_CLIENT:
            return False
        return not target.fits_memory() or target.probe(Setup(number, "warm")).worst >= minimum

    if is_able(number):
        return None
    return bracket_number(number, is_able, number)[0]


def _why_client_is_to_blame(cold: Outcome, minimum: float) -> str:
    """Return why the client is to blame for what a cold probe says; empty if it is not."""
    if cold.late:
        return "steps end late"
    wait = cold.worst_run.get("cpu_wait_percent", 0.0)
    return f"readers lack a processor for {wait:.0f} %" * may_client_starve(cold.worst, wait, minimum)


def lines_of_answer(answer: Answer) -> list[str]:
    """Return the answer, the table of the probes and the lines below it."""
    target = answer.target
    order = sorted(target.outcomes.items(), key=lambda each: (each[0].kind, each[0].step_s or 0, each[0].accelerators))
    lines = console.format_table([_HEADS, *(_row(target, outcome) for _, outcome in order)], right=range(2, 11))
    minimum = target.point["accelerator"]["minimum"]
    met, rule = target.size_rule(answer.fed)
    gives = f"one file, end to end: {target.baseline_mb_per_s:.4g} MB/s"
    arithmetic = f"{gives}; one {target.name} needs {target.demand_mb_per_s:.4g} MB/s: by arithmetic"
    notes = [
        f"AU: share of the time in which an accelerator computes, at least {minimum:.0%}; needs: MB/s at 100 %",
        "waits, meets: shares of the time of the worst accelerator of the worst run; late: share of a step",
        f"{arithmetic} {target.baseline_mb_per_s / target.demand_mb_per_s:.3g}",
        f"meets_size_rule: {'yes' if met else 'no'} ({rule})",
        *([] if target.fits_memory() else ["the data do not fit into memory: no control with data in memory"]),
        *([answer.beyond] if answer.beyond and answer.not_fed else []),
    ]
    others = "judged by looser checks, so what others did may be the limit: "
    looser = [others + ", ".join(answer.looser)] if answer.looser else []
    return [f"{answer.line}  [{NOT_MLPERF}]", *looser, "", *lines, *notes]


def _row(target: Target, outcome: Outcome) -> tuple[str, ...]:
    setup, own_s = outcome.setup, target.point["accelerator"]["step_s"]
    needs = f"{setup.accelerators * target.demand_mb_per_s * own_s / (setup.step_s or own_s):.4g}"
    number = f"{setup.accelerators}{f' (step {setup.step_s:.4g} s)' if setup.step_s else ''}"
    if outcome.late:
        return (number, setup.kind, "2", "late", "", "", "", needs, "", "", "")
    worst = outcome.worst_run
    return (
        number,
        setup.kind,
        str(len(outcome.runs)),
        f"{outcome.worst:.1f} %",
        *(f"{outcome.median(key):.1f} %" for key in ("au_mean_percent", "au_dlio_percent")),
        f"{outcome.median('read_mb_per_s'):.4g}" if setup.kind != "memory" else "",
        needs,
        *(f"{worst[part] / worst['wall_s']:.0%}" for part in ("load_s", "sync_s")),
        f"{outcome.median('late_share'):.1%}",
    )
