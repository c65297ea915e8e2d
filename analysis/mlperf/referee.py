"""Recompute the published results of an MLPerf Storage run from the step times, and report what the mean hides.

AU is the accelerator utilization in percent. In a block with n steps, of which the first s steps do not count,
``AU = 100 x sum(compute[s:]) / (end - start - sum(proc[:s]))``. The AU of an epoch is the mean over its ranks, and the
AU of a run is the mean over its epochs. This is the definition in DLIO's code (`analysis.mlperf.dlio_folder`).

Two other definitions are computed too: the text of the rules (Rules.md of mlcommons/storage @0366ccf, 3.3.2) defines
the AU differently, and the nominal AU uses the step time in the configuration instead of the measured step times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.errors import AnalysisError
from analysis.mlperf.dlio_folder import DlioFolder, Metric, errors_with_path, seconds_from_start_to_end, settings_of
from analysis.records.frame import rows_of

NOTICE = "Not an MLPerf result, not reviewed"
TOLERANCE = 0.02
"""The largest accepted difference between a recomputed and a published number.

The unit is percentage points for AU, and percent for samples/s.
"""
OWN_SKEW_S, MOST_SKEW_S = 0.05, 1.0
"""The largest accepted differences, in seconds, between the duration of a block in the AU and in the time stamps.

`OWN_SKEW_S` is for time stamps of the rank itself, because in versions 0.5 and 1 a block ends when its loader ends.
`MOST_SKEW_S` is for time stamps of rank 0, because other ranks begin and end a block at other times.
"""
NEAR = 0.01
"""The largest relative difference between a step's duration and its nominal time at which the two agree."""
FITS = 1e-4
"""The largest relative difference between the steps that samples/s counts and a counting in `COUNTINGS`."""
MOST_NAMED = 8
ACCELERATORS = Path(__file__).parents[2] / "conf" / "accelerator"
"""The folder with the definitions of accelerators, which `feed` uses too."""
FIGURES = ["au", "own_au", "checked_au", "samples_per_s", "own_samples_per_s"]
# The ways in which DLIO counts samples/s: the number of steps that do not count, and whether the time is the duration
# of the whole block. The order is: versions 0.5 and 1, the source of version 2, the data of version 3.
COUNTINGS = {
    "all n steps over the whole block": (0, True),
    "n \N{MINUS SIGN} 2 steps over the time of AU": (2, False),
    "n \N{MINUS SIGN} 1 steps over the time of AU": (1, False),
}


class Definition(NamedTuple):
    """An emulated accelerator: samples per step, seconds per step, and minimum AU of a passing run (percent)."""

    batch: float = math.nan
    step_s: float = math.nan
    minimum: float = math.nan


@cache
def definitions() -> dict[str, Definition]:
    """Return the accelerators that the files in ``conf/accelerator`` define, and the accelerator of version 0.5.

    The keys are the names of the accelerators.
    """
    files = ((path.stem, dict(settings_of(path))) for path in ACCELERATORS.glob("*.yaml"))
    defined = {
        name: Definition(float(own["batch"]), float(own["step_s"]), 100 * float(own["minimum"]))
        for name, own in files
        if "batch" in own
    }
    return {**defined, "unet3d": Definition(4, 1.3604, 90)}


def definition_of_run(folder: DlioFolder, given: Definition) -> tuple[Definition, dict[str, str]]:
    """Return the batch size, the step time and the minimum AU of a run, and the source of each of these values.

    The first of these sources that has a value is used:

    1. `given`, which are options of the command line;
    2. the configuration of the run;
    3. the recorded step time, if it is the same in each step (versions 0.5 and 1 record the nominal time);
    4. the workload that the run names. If the run names no workload, the workload whose step time is closest below the
       shortest compute time is used, but not its batch size;
    5. the default of DLIO.
    """
    settings, shortest = folder.settings, folder.blocks["least_s"].min()
    workload, guess = settings.get("workload", ""), ""
    defined = definitions().get(workload)
    if not defined:
        near = [(each.step_s, name) for name, each in definitions().items() if 0 <= shortest / each.step_s - 1 < NEAR]
        workload = max(near, default=(0, ""))[1]
        guess, defined = ", by its step", definitions().get(workload, Definition())._replace(batch=math.nan)
    sources = {
        "given": given,
        "configured": Definition(
            _number(settings, "reader.batch_size"),
            _number(settings, "train.computation_time", "computation_time.mean"),
            100 * _number(settings, "metric.au"),
        ),
        "recorded": Definition(step_s=shortest if shortest == folder.blocks["most_s"].max() else math.nan),
        f"of {workload}{guess}": defined,
        "DLIO's default": Definition(minimum=90 if "reader.batch_size" in settings else math.nan),
    }
    values: list[float] = []
    names: dict[str, str] = {}
    for key in Definition._fields:
        usable = {name: getattr(each, key) for name, each in sources.items() if 0 < getattr(each, key) < math.inf}
        names |= {key: next(iter(usable))} if usable else {}
        values.append(next(iter(usable.values()), math.nan))
    return Definition(*values), names


def _number(settings: Mapping[str, str], *names: str) -> float:
    for name in names:
        with suppress(KeyError, ValueError):
            return float(settings[name])
    return math.nan


def recompute_blocks(blocks: pd.DataFrame, batch: float) -> tuple[pd.DataFrame, str, float]:
    """Return the blocks with recomputed metrics, the counting of samples/s, and the batch size.

    The counting is a key of `COUNTINGS`, or `""` if the counting is unknown.

    `au` is computed from the time stamps. These may be the time stamps of rank 0, and they differ slightly from the
    times that DLIO used. The published samples/s of a rank also imply a duration of the block. If this duration agrees
    with the rank's published AU and roughly with the time stamps, `checked_au` is the published AU. Otherwise
    `checked_au` is `au`. `misfit` is the relative difference between the published samples/s and the published AU.
    """
    counted_s = (blocks["wall_s"] - blocks["excluded_s"]).where(lambda each: each > 0)
    # A rank may begin a block while rank 0 still saves a checkpoint. The time stamps of rank 0 then give a shorter time
    # than the steps of this rank took.
    began_early = ~blocks["own_stamps"] & (blocks["checkpoints_s"] > 0)
    blocks = blocks.assign(counted_s=counted_s.mask(began_early, np.maximum(counted_s, blocks["proc_s"])))
    blocks["au"] = 100 * blocks["compute_s"] / blocks["counted_s"]
    own_s = (100 * blocks["compute_s"] / blocks["own_au"]).where(blocks["own_au"] > 0)
    batches, misfits = {}, {}
    for name, (left_out, whole) in COUNTINGS.items():
        samples = blocks["own_samples_per_s"] * (own_s + whole * blocks["excluded_s"]) / (blocks["steps"] - left_out)
        batches[name] = float(np.round(samples.median())) if math.isnan(batch) else batch
        misfits[name] = (samples / batches[name] - 1).abs()
    counting = min(misfits, key=lambda name: misfits[name].median())
    left_out, whole = COUNTINGS[counting]
    known = bool(misfits[counting].median() <= FITS)
    blocks["misfit"] = misfits[counting] if known else math.nan
    steps = blocks["steps"] - left_out if known else math.nan
    blocks["samples_per_s"] = batches[counting] * steps / (blocks["counted_s"] + whole * blocks["excluded_s"])
    blocks["skew_s"] = np.where(blocks["own_stamps"], OWN_SKEW_S, MOST_SKEW_S + blocks["checkpoints_s"])
    near = (own_s - blocks["counted_s"]).abs() <= blocks["skew_s"]
    blocks["checked_au"] = blocks["own_au"].where(near & (blocks["misfit"] <= FITS), blocks["au"])
    return blocks, counting if known else "", batches[counting] if known else batch


def by_rank_and_epoch(blocks: pd.DataFrame) -> pd.DataFrame:
    """Return the metrics as a frame with one row per rank and epoch.

    As in DLIO, a metric of an epoch is the mean over the blocks of the epoch, weighted by the number of steps.
    """
    rows = [
        {"rank": rank, "epoch": epoch, "steps": part["steps"].sum()}
        | {name: np.average(part[name], weights=part["steps"]) for name in FIGURES}
        for (rank, epoch), part in blocks.groupby(["rank", "epoch"])
    ]
    return pd.DataFrame(rows, columns=["rank", "epoch", "steps", *FIGURES]).astype(dict.fromkeys(FIGURES, float))


def judge(folder: DlioFolder, given: Definition) -> dict[str, Any]:
    """Return the recomputed metrics of a run by name, and texts about missing data and differences.

    The key `cells` has the metrics by rank and epoch. A metric that cannot be computed is NaN. Raises AnalysisError if
    the folder has more ranks than accelerators.
    """
    summary, metric = folder.summary, folder.summary.get("metric", Metric())
    used, sources = definition_of_run(folder, given)
    blocks, counting, batch = recompute_blocks(folder.blocks, used.batch)
    used, sources = used._replace(batch=batch), {"batch": "by samples/s"} | sources
    cells = by_rank_and_epoch(blocks)
    published = pd.Series(metric.get("train_au_percentage", []), dtype=float).rename(lambda place: place + 1)
    last = int(cells["rank"].max()) + 1 if len(cells) else 0
    ranks = summary.get("num_accelerators") or last
    if last > ranks:
        message = f"{folder.path}: the folder has a rank {last - 1}, and {ranks} accelerators"
        raise AnalysisError(message, "remove the files of other runs from the folder")
    of_epochs, by_rank = cells.groupby("epoch"), cells.groupby("rank")["checked_au"].mean()
    means = of_epochs[FIGURES].mean()[of_epochs.size() == ranks]
    epochs = len(published) or max([*cells["epoch"], *folder.epochs_s], default=0)
    whole = [*means.index] == [*range(1, epochs + 1)]
    totals = means.mean(skipna=False) if whole else dict.fromkeys(FIGURES, math.nan)
    samples = summary.get("num_files_train", math.nan) * summary.get("num_samples_per_file", 1)
    per_epoch = samples / (max(ranks, 1) * used.batch)
    if (most := _number(folder.settings, "train.total_training_steps")) > 0:
        per_epoch = min(per_epoch, most)
    steps = of_epochs["steps"].max() if len(cells) else pd.Series(per_epoch // 1, range(1, epochs + 1))
    if len(cells) and steps.max() < per_epoch // 1:  # a run may end before it has read all data
        per_epoch = steps.max()
    with errors_with_path(folder.path / "summary.json"):
        run_s = seconds_from_start_to_end(summary) or math.nan
    epochs_s = sum(folder.epochs_s.get(epoch, math.nan) for epoch in steps.index) or math.nan
    run = {
        "folder": str(folder.path), "accelerators": ranks, "hosts": summary.get("num_hosts"), "epochs": epochs,
        "steps": sorted({int(each) for each in steps.dropna()}), **used._asdict(), "sources": sources,
        "au": {
            "published": metric.get("train_au_mean_percentage", math.nan), "of_the_ranks": totals["own_au"],
            "recomputed": totals["au"], "nominal": 100 * steps.sum(skipna=False) * used.step_s / epochs_s,
            "rules_text": 100 * per_epoch * epochs * used.step_s / run_s,
        },
        "verdict": metric.get("train_au_meet_expectation"),
        "by_epoch": {"published": published, "recomputed": means["au"], "checked": means["checked_au"]},
        "by_rank": by_rank,
        "worst": {
            "epoch": worst(means["checked_au"] if whole else published.rename_axis("epoch"), used.minimum),
            "rank": worst(by_rank, used.minimum),
            "most_loading": most_loading(blocks),
            "rank_in_an_epoch": worst(cells.set_index(["rank", "epoch"])["checked_au"], used.minimum),
        },
        "samples_per_s": {
            "published": metric.get("train_throughput_mean_samples_per_second", math.nan), "counts": counting,
            "of_the_ranks": ranks * totals["own_samples_per_s"], "recomputed": ranks * totals["samples_per_s"],
        },
        "shares_of_time": shares(blocks, together=ranks > 1 and len(cells) == ranks * len(of_epochs)),
        "cells": cells,
    }  # fmt: skip
    words = {"differences": [*dict.fromkeys(differences(run, blocks))], "remarks": [*remarks(run, blocks)]}
    return run | {"missing": missing(run)} | words


def worst(aus: pd.Series[float], minimum: float) -> dict[str, Any]:
    """Return the smallest AU with its rank and epoch, and whether this AU passes.

    `passes` is None if the minimum AU is unknown.
    """
    if (aus := aus.dropna()).empty:
        return {"au": math.nan, "passes": None}
    place, au = aus.idxmin(), aus.min()
    names = dict(zip(map(str, aus.index.names), place if isinstance(place, tuple) else [place], strict=True))
    return names | {"au": au, "passes": None if math.isnan(minimum) else bool(au >= minimum)}


def most_loading(blocks: pd.DataFrame) -> dict[str, Any]:
    """Return the rank and epoch with the largest share of time spent loading, and this share.

    All other ranks wait for this rank at the barrier.
    """
    parts = (blocks.set_index(["rank", "epoch"])["load_s"] / blocks["wall_s"].to_numpy()).dropna()
    place = parts.idxmax() if len(parts) else ()
    return dict(zip(("rank", "epoch"), place, strict=False)) | {"share": parts.max()}


def shares(blocks: pd.DataFrame, *, together: bool) -> dict[str, float]:
    """Return the shares of the time that the ranks spent on loading, computing, waiting at the barrier and so on.

    All ranks wait at the barrier for the slowest rank of a step, so this time is a lower bound for the barrier. The
    lower bound is known only if the steps of all ranks are recorded (`together`), and if no block is shorter than the
    sum of its slowest steps. DLIO does not record the rest of the time between a batch and the next loading; this time
    has the key `nobody accounts for`. In version 0.5 the time at the barrier is part of `rest of the steps`.
    """
    together &= bool((blocks["slowest_s"] - blocks["counted_s"] <= blocks["skew_s"]).all())
    after_steps = blocks["counted_s"] - blocks["proc_s"]
    barrier = (blocks["slowest_s"] - blocks["proc_s"]) * (1 if together else math.nan)
    parts = {
        "left out of AU": blocks["excluded_s"], "loading": blocks["load_s"], "compute": blocks["compute_s"],
        "rest of the steps": blocks["proc_s"] - blocks["load_s"] - blocks["compute_s"], "barrier, at least": barrier,
        "nobody accounts for": after_steps - barrier.fillna(0),
    }  # fmt: skip
    wall_s = blocks["wall_s"].sum(skipna=False) or math.nan
    # Adding 0.0 turns -0.0 into 0.0.
    return {name: round(part.sum(skipna=False) / wall_s, 9) + 0.0 for name, part in parts.items()}


def missing(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the missing ranks and epochs, and the metrics that cannot be recomputed, with the reasons."""
    cells, au = run["cells"], run["au"]
    ranks = sorted({*range(run["accelerators"])} - {*cells["rank"]})
    sizes, present = cells.groupby("epoch").size(), run["accelerators"] - len(ranks)
    epochs = [each for each in range(1, run["epochs"] + 1) if sizes.get(each, 0) < present]
    unknown = {"the time of a step (--step SECONDS)": run["step_s"], "the batch size (--batch N)": run["batch"]}
    lacks = " and ".join(name for name, value in unknown.items() if math.isnan(value))
    no_text = f"{lacks} is unknown" if lacks else "summary.json, or its start, end or num_files_train, is missing"
    needs = {
        "whether it is as published": (au["published"], "summary.json, or its AU, is missing"),
        "AU and samples/s of the run": (0 if not (ranks or epochs) else math.nan, "ranks or epochs are missing"),
        "AU by the stamps": (cells["au"].sum(skipna=False), "blocks have no time stamps"),
        "barrier": (run["shares_of_time"]["barrier, at least"], "there is one rank, or steps of ranks are missing"),
        "nominal AU": (au["nominal"], "the time of a step (--step SECONDS) or of an epoch is unknown"),
        "AU by the rules' text": (au["rules_text"], no_text),
        "whether it passes": (run["minimum"], "the minimum AU is unknown (--minimum PERCENT)"),
    }
    not_recomputed = {name: why for name, (value, why) in needs.items() if math.isnan(value)}
    return {"ranks": ranks, "epochs": epochs, "not_recomputed": not_recomputed}


def is_complete(run: Mapping[str, Any]) -> bool:
    """Return whether the folder has the steps of all ranks and epochs of a run."""
    return not (run["missing"]["ranks"] or run["missing"]["epochs"])


def differences(run: Mapping[str, Any], blocks: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence for each recomputed number that differs from the published number.

    Also yield a sentence for each published number that contradicts another published number.
    """
    au, rate, epochs, least = run["au"], run["samples_per_s"], run["by_epoch"], run["minimum"]
    checked = epochs["checked"].mean() if au["recomputed"] >= 0 else math.nan
    pairs = [("AU of the run", au["published"], value) for value in (au["of_the_ranks"], checked)]
    pairs += [("AU of the run, of its epochs", au["published"], epochs["published"].mean())]
    pairs += [
        (f"AU of epoch {epoch}", value, epochs["checked"].get(epoch, math.nan))
        for epoch, value in epochs["published"].items()
    ]
    pairs += [
        (f"AU of rank {each['rank']}, epoch {each['epoch']}", each["own_au"], each["checked_au"])
        for each in rows_of(run["cells"])
    ]
    for what, published, value in pairs:
        if abs(published - value) > TOLERANCE:
            yield f"{what}: published {published:.4f}, recomputed {value:.4f}"
    if abs(rate["published"] - rate["of_the_ranks"]) > TOLERANCE / 100 * rate["published"]:
        yield f"samples/s: published {rate['published']:.4f}, of the ranks {rate['of_the_ranks']:.4f}"
    if run["verdict"] and (au["published"] >= least) != (run["verdict"] == "success") and au["published"] + least >= 0:
        yield f"the verdict is {run['verdict']}, but the AU is {au['published']:.4f}, and the minimum AU is {least:g}"
    if strange := {*run["cells"]["epoch"]} - {*range(1, run["epochs"] + 1)}:
        yield f"ranks have an epoch {min(strange)}, but {run['epochs']} epochs are published"
    for each in rows_of(blocks):
        where = f"rank {each['rank']}, epoch {each['epoch']}"
        if each["misfit"] > FITS:
            yield f"{where}: its AU and its samples/s imply different durations of the block"
        steps_s = each["proc_s"] + each["excluded_s"]
        if steps_s - each["wall_s"] > each["skew_s"]:
            yield f"{where}: its steps took {steps_s:.2f} s in a block of {each['wall_s']:.2f} s"


def remarks(run: Mapping[str, Any], blocks: pd.DataFrame) -> Iterator[str]:
    """Yield remarks on low values that the published mean hides, and on the accuracy of the recomputed metrics."""
    least, au = run["minimum"], run["au"]
    epochs = run["by_epoch"]["checked" if au["recomputed"] >= 0 else "published"]
    parts = {f"epoch {epoch}": value for epoch, value in epochs.items()}
    parts |= {f"rank {rank}": value for rank, value in run["by_rank"].items()}
    failed = [
        f"{name} ({value:.2f})" for name, value in (parts | {"nominal AU": au["nominal"]}).items() if value < least
    ]
    if au["published"] >= least and failed:
        more = f" and {len(failed) - MOST_NAMED} more" if len(failed) > MOST_NAMED else ""
        names = ", ".join(failed[:MOST_NAMED])
        yield f"the published mean passes, but the AU of these parts is below {least:g}: {names}{more}"
    believed = blocks[(blocks["checked_au"] == blocks["own_au"]) & (blocks["checked_au"] != blocks["au"])]
    apart = (believed["au"] - believed["own_au"]).abs().max()
    others = blocks["rank"][~blocks["own_stamps"]].nunique()
    if others:
        yield f"{others} ranks have no time stamps: the time stamps of rank 0 are used for these ranks"
    if apart > (0 if others else TOLERANCE):
        yield (
            f"AU by the time stamps differs by up to {apart:.3f} points from the AU that the ranks published. The"
            " samples/s of these ranks confirm the published AU, which is used by epoch and by rank"
        )
    slept = blocks["compute_s"].sum() / (blocks["counted"].sum() * run["step_s"]) if len(blocks) else math.nan
    if abs(slept - 1) > NEAR:
        times = f"{slept:.4f} x its nominal time of {run['step_s']:g} s"
        yield f"a step computed for {times}; only the nominal AU does not count this difference"
    if len(blocks) and not run["samples_per_s"]["counts"]:
        yield "it is unknown how the ranks counted the steps in their samples/s"
