"""Clocks that lie."""

import time
from datetime import datetime

from tests.lies import setup
from tests.lies.lie import INVALID, VALID, Expected, NotStagedError, confirmed, lie


@lie(
    "A preloaded library makes the clock of durations run at half its speed: every rate doubles.",
    Expected((INVALID,), r"clock|uptime"),
)
def slow_clock(workspace):
    paths = workspace.images(workspace.folder / "set" / "images", number=384)  # runs long beside the front's looks
    ends = []

    def on_line(line):
        if "] micro" in line:  # a run has ended
            ends.append(time.monotonic())

    clock = {"LD_PRELOAD": setup.library(workspace.folder, "clock"), "LIES_CLOCK": "slow"}
    answer = workspace.campaign(paths[0].parent, "trace.interval_s=null", on_line=on_line, **clock)
    if not ends:
        raise NotStagedError("no run ended:\n" + "\n".join(answer.remarks))
    told, took = sum(run["elapsed_s_with_fork"] for run in workspace.measured()), ends[-1] - ends[0]
    return confirmed(told < 0.6 * took, f"the measured runs took {took:.2f} s, and {told:.2f} s by their clock"), answer


@lie(
    "The time of day jumps back by an hour, one second after each process began: no duration depends on it.",
    Expected((VALID,)),
)
def jumping_clock(workspace):
    paths = workspace.images(workspace.folder / "set" / "images")
    clock = {"LD_PRELOAD": setup.library(workspace.folder, "clock"), "LIES_CLOCK": "jump"}
    began = time.time()
    answer = workspace.campaign(paths[0].parent, **clock)
    stamp = datetime.fromisoformat(workspace.records()[0]["provenance"]["started_utc"])
    behind_min = (began - stamp.timestamp()) / 60
    durations = [(run["wall_s"], run["elapsed_s_with_fork"]) for run in workspace.measured()]
    right = all(0 < wall_s < elapsed_s < 60 for wall_s, elapsed_s in durations)
    truth = f"the record is stamped {behind_min:.0f} minutes before the campaign was started; no duration is wrong"
    return confirmed(right and behind_min > 0, truth), answer
