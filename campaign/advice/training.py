"""What bounds a training: whether it waits for its input, what a batch made ahead hides, what its steps wait for."""

from __future__ import annotations

from campaign.advice import pipeline
from campaign.advice.evidence import Evidence, Fact
from campaign.advice.findings import Finding, Lacking, Test, noisy
from jobs.profiler.tensorflow_table import INPUT, REMEDIES

IDLE = 0.05  # of the run: less waiting is not worth a change
WAITING = ("input", "compute")  # what `input_` finds
_SLOWED = 0.5  # of what is left, by the input's own work: two that share a processor have half of it each


def input_(e: Evidence) -> Finding | None:
    """Tell of a training whether it computes or waits for its input; without input it takes what it computes."""
    if e.kind != "training" or e.settings.get("benchmark.control", "none") != "none":
        return None
    bound = "it waits for its input" if e.waiting >= IDLE else "it hardly waits for its input"
    share = e.waiting if e.waiting >= IDLE else e["compute_s"] / e["elapsed_s"]
    emulated = ", of an emulated accelerator" if e.accelerator == "emulated" else ""
    left_s = max(1e-9, e["wall_s"] - e["load_s"] - e["startup_s"])  # no iterator is made either
    # What else kept the processors busy slowed the steps, too: the input's own work, or others by as much as they held.
    slowed = _SLOWED if e.trains else min(1.0, max(0.0, e.work.others) / e.work.allowed)
    return Finding(
        "input" if e.waiting >= IDLE else "compute",
        f"{bound}: {e['load_s']:.2f} of {e['wall_s']:.2f} s are waiting, {e['compute_s']:.2f} s compute{emulated}",
        share,
        e.facts("wall_s", "load_s", "compute_s"),
        Test({"benchmark.control": "no_io"}, noisy(e, "wall_s", "s", ((1 - slowed) * left_s, left_s, left_s))),
    )


def no_prefetch(e: Evidence) -> Finding | None:
    """Find a training without prefetch, whose next batch could be made during a step."""
    if e.kind != "training" or e.settings["prefetch"] or e.waiting < IDLE or e.steps.number < 2:  # noqa: PLR2004
        return None
    if e.settings.get("benchmark.control", "none") != "none":
        return None
    waited_s, computed_s = e.steps.each_s
    made = (waited_s, pipeline.batch_s(e))
    walls = [pipeline.wall_s(e, each, threads=e.threads, prefetch=1) for each in made]
    floor = e["cpu_s"] / e.work.free_cores if e.trains else 0.0
    low, high = (max(floor, each) for each in sorted([e["wall_s"] - e["load_s"] + e.steps.first_s, *walls])[::2])
    value = max(floor, walls[1])
    hidden = min(waited_s, computed_s)
    return Finding(
        "no_prefetch",
        f"no batch is made ahead: of {waited_s:.3f} s for a batch up to {hidden:.3f} s can pass during a step of "
        f"{computed_s:.3f} s",
        hidden * (e.steps.number - 1) / e["wall_s"],
        [Fact("wait for a batch", waited_s, "s", "record"), Fact("step", computed_s, "s", "record"),
         Fact("steps", e.steps.number, "", "record"), *e.facts("wall_s")],
        Test({"prefetch": 1}, noisy(e, "wall_s", "s", (low, value, max(value, high)))),
    )  # fmt: skip


def input_bound(e: Evidence) -> Finding | Lacking | None:
    """Find what the steps of a training wait for, by TensorFlow's own trace of them, and what would remove it."""
    seen = e.tensorflow
    if e.kind != "training" or not seen or seen["waited_s"] < IDLE * seen["steps_s"]:
        missing = e.kind == "training" and not seen and e.waiting >= IDLE
        lacking = Lacking("input_bound", "what its steps wait for is not known", {"profile.tensorflow": "all"})
        return lacking if missing else None
    waited, saves = seen["waited_s"], {name: seen[f"remedies_s.{name}"] for name in REMEDIES}
    best = sorted((name for name in saves if saves[name] > IDLE * waited), key=lambda name: -saves[name])
    told = "; ".join(f"{REMEDIES[name]}: at most {saves[name]:.3g} s" for name in best)
    test, why = None, "it reads little: of the rest, `input`, `no_prefetch` and `processors` have tests"
    if e.cold and "read" in best:
        # What was decoded while something was read as well is still to be done: as it was, or all of it by the
        # processors that others leave, beside no computing.
        left = seen["exposed_s.decode"] + saves["buffering"] + saves["input wait"]
        walls = [e["wall_s"] - e["load_s"] * saved / waited for saved in (saves["read"], max(0.0, waited - left))]
        low, high = min(walls), max(*walls, e["wall_s"] - e["load_s"] + e["cpu_s"] / e.work.free_cores)
        test, why = Test({"cache": "warm"}, noisy(e, "wall_s", "s", (low, (low + high) / 2, high))), ""
    return Finding(
        "input_bound",
        f"by TensorFlow's trace it waits for input in {waited:.3g} of {seen['steps_s']:.3g} s of its steps; what would"
        f" remove it: {told}",
        waited / seen["steps_s"],
        [Fact(f"exposed {name}", seen[f"exposed_s.{name}"], "s", "tensorflow") for name in INPUT],
        test,
        why,
    )
