"""Benchmark ``feed``: emulate several accelerators on a node, and measure whether the storage is fast enough for them.

Each emulated accelerator is a process. In each step, the process takes a batch from its own readers, sleeps until a
deadline in place of computing, and then meets the other accelerators, as the loop of DLIO does. Samples are read into
host memory and are not decoded. To run the benchmark by hand, on any node::

    python -m jobs feed FOLDER --accelerators 2 --batch-size 8 --step-s 0.1
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from jobs.benchmarks.benchmark import Benchmark, Figure
from jobs.benchmarks.emulated_accelerators import Accelerators, Plan, Sample
from jobs.benchmarks.images import RATE
from jobs.benchmarks.run_files import files_of
from jobs.errors import DatasetError
from jobs.model.declared import Setting
from jobs.model.results import Run
from jobs.model.settings import Node, NodeWithName, Settings
from jobs.model.work import RunRequest
from jobs.ranks import this_rank
from jobs.ready_run import ReadyRun
from jobs.system.cgroup import memory_left_bytes

LEAST_STEP_S = 0.001
FEWEST_STEPS = 3  # the smallest number of steps of a run, of which the utilisation does not count the first step


class Keys(NodeWithName):
    """Several emulated accelerators on each node (docs/reference/feed.md)."""

    accelerators: Annotated[
        int, Meta(ge=1, le=4096), Setting("number of emulated accelerators on each node; each has its own process")
    ] = 1
    engine: Annotated[
        Literal["raw", "tf"],
        Setting("how samples are read; raw: by threads that call pread; tf: by tf.data, without decoding"),
    ] = "raw"
    source: Annotated[
        Literal["storage", "memory"],
        Setting(
            "where batches come from; storage: files; memory: copies in memory, to measure how many accelerators this"
            " machine can emulate"
        ),
    ] = "storage"


@contextmanager
def begin(request: RunRequest) -> Iterator[ReadyRun]:
    """Start the processes of this node's emulated accelerators, and yield their run.

    Raises DatasetError if the data are enough for fewer than 3 steps, or if the buffers do not fit into memory.
    """
    settings = request["settings"]
    with files_of(request) as files:
        sizes = {path: files.sizes[path] for path in this_rank().share([*files.sizes])}
        batches = assign_samples(settings, sizes)
        own, number = settings["benchmark"], settings["benchmark"]["accelerators"]
        steps = min(this_rank().gather(len(batches) // number))
        if steps < FEWEST_STEPS:
            raise DatasetError(
                f"the data are enough for {steps} steps of {number} accelerators, but a run needs {FEWEST_STEPS} steps",
                "more files (dataset.files), fewer accelerators or a smaller batch",
            )
        batches = batches[: steps * number]
        bytes_due: Counter[Path] = Counter()
        for sample in chain(*batches):
            bytes_due[sample.path] += sample.bytes
        _require_memory(settings, max(sample.bytes for sample in chain(*batches)))
        plan = Plan(
            accelerators=number,
            step_s=settings["accelerator"]["step_s"],
            threads=settings["threads"],
            prefetched_batches=settings["prefetch"],
            engine=own["engine"],
            from_memory=own["source"] == "memory",
            batches=batches,
        )
        with Accelerators(plan) as accelerators:
            run = partial(_measure, accelerators)
            if plan.from_memory:
                yield ReadyRun(run, files.folder, reading=accelerators.pids)
                return
            due = {path: files.sizes[path] for path in bytes_due}
            yield ReadyRun(run, files.folder, [*due], [*due], due, asked=bytes_due, reading=accelerators.pids)


def assign_samples(settings: Settings, sizes: Mapping[Path, int]) -> list[list[Sample]]:
    """Return the batches of a run: for each step, one batch per accelerator.

    The seed determines a random order of the files. The samples of a file are in the order of the file. `sizes` has the
    bytes of each file.
    """
    per_file = settings["accelerator"].get("samples_per_file", 1)
    paths = [*sizes]
    random.Random(settings["seed"]).shuffle(paths)  # noqa: S311 - an order, not a secret
    samples = [
        Sample(path, number * (sizes[path] // per_file), sizes[path] // per_file)
        for path in paths
        for number in range(per_file)
    ]
    size, steps = settings["batch_size"], settings["iterations"]
    number = len(samples) // size
    if steps is not None:
        number = min(number, steps * settings["benchmark"]["accelerators"])
    return [samples[index * size : (index + 1) * size] for index in range(number)]


def _require_memory(settings: Settings, largest: int) -> None:
    """Raise DatasetError if the buffers of all readers do not fit into the free memory."""
    left, needed = memory_left_bytes(), settings["benchmark"]["accelerators"] * settings["threads"] * largest
    if left is not None and needed > left:
        raise DatasetError(
            f"the buffers of all readers need {needed / 1e9:.1f} GB, but only {left / 1e9:.1f} GB of memory are free",
            "fewer accelerators or threads",
        )


def _measure(accelerators: Accelerators, watched: AbstractContextManager[Any]) -> dict[str, Any]:
    """Run all steps of the emulated accelerators, and return the metrics of this node."""
    with watched:
        accelerators.run()
        this_rank().end()
    rows = accelerators.rows
    plan, worst = accelerators.plan, min(rows, key=lambda row: (round(row["au_percent"], 1), -row["load_s"]))
    wall_s = max(row["wall_s"] for row in rows)
    samples = sum(len(batch) for batch in plan.batches)
    moved = sum(row["bytes_read"] for row in rows)
    return {
        **{key: worst[key] for key in ("startup_s", "load_s", "compute_s", "sync_s", "other_s")},
        "wall_s": wall_s,
        "other_s": worst["other_s"] + wall_s - worst["wall_s"],
        "images": sum(row["samples"] for row in rows),
        "images_asked": samples,
        "image_errors": 0,
        "bytes_read": moved,
        **({} if plan.from_memory else {"bytes_predicted": sum(sample.bytes for sample in chain(*plan.batches))}),
        "images_per_s": samples / wall_s,
        "read_mb_per_s": moved / 1e6 / wall_s,
        **_shares(rows),
        "step_load_s": worst.pop("step_load_s"),
        "step_compute_s": worst.pop("step_compute_s"),
        "accelerators": [{key: row[key] for key in row if not key.startswith("step_")} for row in rows],
    }


def _shares(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the utilisation of the worst accelerator, the wait of its readers for a CPU, and means over all."""
    worst = min(rows, key=lambda row: row["au_percent"])
    return {
        **{key: worst[key] for key in ("au_percent", "cpu_wait_percent")},
        "au_mean_percent": sum(row["au_percent"] for row in rows) / len(rows),
        "au_dlio_percent": sum(row["au_dlio_percent"] for row in rows) / len(rows),
        "late_share": max(row["late_share"] for row in rows),
    }


class _Feed(Benchmark):
    """The benchmark ``feed``, which emulates several accelerators on each node."""

    def id_words(self, node: Node) -> list[str]:
        return [self.name, str(node["accelerators"]), *([] if node["source"] == "storage" else [node["source"]])]

    def imports_of(self, node: Node) -> tuple[str, ...]:
        return self.imports if node["engine"] == "tf" and node["source"] == "storage" else ()

    def page_cache(self, settings: Settings) -> str:
        return "as_is" if settings["benchmark"]["source"] == "memory" else settings["cache"]

    def combined_metrics(self, ranks: Sequence[Run]) -> dict[str, Any]:
        rows = [row for run in ranks for row in run["accelerators"]]
        return {**_shares(rows), "accelerators": rows}

    def settings_error(self, values: Mapping[str, Any]) -> tuple[str, str] | None:
        step_s = values["accelerator.step_s"]
        if step_s is None:
            fault = f"accelerator={values['accelerator.name']}: benchmark=feed needs an emulated accelerator"
            return fault, "for example accelerator=unet3d_h100"
        if step_s < LEAST_STEP_S:
            why = "a process cannot sleep for so short a time with an error below 1 %"
            return f"accelerator.step_s={step_s} is less than {LEAST_STEP_S} s: {why}", "another accelerator"
        if values.get("storage.kind") == "s3":
            return "benchmark=feed reads files, but the storage has objects", "a storage with folders"
        if values["sync"] != "none":
            return f"sync={values['sync']}: the accelerators of benchmark=feed always meet after a step", "sync=none"
        if values["benchmark.engine"] == "tf" and values.get("accelerator.samples_per_file", 1) > 1:
            return "benchmark.engine=tf needs files with one sample each", "benchmark.engine=raw"
        return None


BENCHMARK = _Feed(
    name="feed",
    version=1,
    kind="pipeline",
    keys=Keys,
    begin=begin,
    figure=Figure("au_percent", "%"),
    rate=RATE,
    about="emulate accelerators and read their batches, to measure whether the storage is fast enough for them",
    data="files",
    settings=(
        "benchmark", "dataset", "storage", "accelerator", "threads", "batch_size", "prefetch", "iterations", "seed",
        "cache", "nodes", "sync",
    ),
    own_defaults={"prefetch": 2, "accelerator.step_s": 0.1},
    computes=True,
    emulates=True,
    several_nodes=True,
    wall_parts=("startup_s", "load_s", "compute_s", "sync_s", "other_s"),
)  # fmt: skip
