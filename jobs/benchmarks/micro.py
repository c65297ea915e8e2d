"""Benchmark ``micro``: a STREAM-like read of a folder of images through tf.data (paper III.A; Figs 4 and 5).

By hand, on any node::

    python -m jobs micro FOLDER --threads 4
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from jobs import steps as step_marks
from jobs.benchmarks import first_use, images
from jobs.benchmarks.benchmark import Benchmark
from jobs.data import pipeline
from jobs.data.pipeline import dropped, first_complaint
from jobs.errors import UnreadableImageError
from jobs.lazy_imports import tf
from jobs.model.declared import Setting
from jobs.model.settings import Settings
from jobs.objects.source import Source
from jobs.ranks import here
from jobs.ranks.rank import Rank


def prepare(settings: Settings, paths: Sequence[Path], source: Source | None = None) -> Callable[..., dict[str, Any]]:
    """Start TensorFlow, build the pipeline and return what runs the clock; reads none of `paths` yet.

    What is returned takes a context that is entered before the iterator is made and left after the last batch, both
    outside the clock.
    """
    tf.config.set_visible_devices([], "GPU")  # nothing here computes; a GPU's start-up would only cost
    first_use.run_operations_directly()
    tf.random.set_seed(settings["seed"])
    names = [str(path) for path in paths]
    dataset = pipeline.build(names, settings, source)
    wanted = images_asked(settings, len(names))
    count_dropped = partial(dropped, names, settings=settings, source=source)

    def measure(watched: AbstractContextManager[Any]) -> dict[str, Any]:
        try:
            return _measure(dataset, count_dropped, wanted, settings, watched)
        except tf.errors.OpError as error:  # `ignore_errors` is off; TensorFlow does not say in which file
            raise UnreadableImageError(first_complaint(names, settings, source) or str(error)) from error

    return measure


def images_asked(settings: Settings, files: int) -> int:
    """Count the images that a run asks for: ``iterations`` whole batches, or each file once."""
    iterations = settings["iterations"]
    return files if iterations is None else iterations * int(settings["batch_size"])


def _measure(
    dataset: Any,
    count_dropped: Callable[..., tuple[int, list[dict[str, str]]]],
    wanted: int,
    settings: Settings,
    watched: AbstractContextManager[Any],
) -> dict[str, Any]:
    """Start the iterator, iterate from the first request to the last batch in hand, then count what was dropped."""
    with watched:
        before = time.perf_counter()
        iterator = iter(dataset)
        startup_s = time.perf_counter() - before
        delivered, figures = _iterate(iterator, -(-wanted // settings["batch_size"]))
    # A run that came to the end of the list asked for every file, whatever `iterations` says.
    exhausted = settings["iterations"] is None or len(delivered) < wanted
    errors, unreadable = count_dropped(delivered, exhausted=exhausted)
    return {
        "startup_s": startup_s,
        **figures,
        "compute_s": 0.0,
        "checkpoint_s": 0.0,
        "images": len(delivered),
        "images_asked": wanted,
        "image_errors": errors,
        "unreadable": unreadable,
        "step_compute_s": [],
    }


def _iterate(iterator: Any, steps: int) -> tuple[list[int], dict[str, Any]]:
    """Run the clock over at most `steps` batches; returns the indices delivered, and times and bytes.

    Waiting for a batch (`load_s`), book-keeping (`other_s`) and the meeting of ranks after each batch (`sync_s`) each
    have a stamp before and after, and the wall time has two of its own, so that work between the parts, that none of
    them names, shows as time that does not add up. A rank with fewer batches meets the others in their last ones, too.
    """
    clock = time.perf_counter
    delivered: list[int] = []
    step_load_s: list[float] = []
    bytes_read, other_s = 0, 0.0
    meetings = _Meetings(here(), steps)
    start = here().start()
    for _ in (marked := step_marks.marked(range(steps))):
        requested = clock()
        with step_marks.part("input"):
            batch = next(iterator, None)
        arrived = clock()
        step_load_s.append(arrived - requested)
        if batch is None:
            break
        index, size, _payload = batch
        delivered.extend(index.numpy().tolist())
        bytes_read += int(size.numpy().sum(dtype="int64"))
        other_s += clock() - arrived
        with step_marks.part("communicate"):
            meetings.next()
    meetings.rest()
    wall_s = clock() - start
    load_s = sum(step_load_s)
    times = {"wall_s": wall_s, "load_s": load_s, "other_s": other_s + marked.spent_s, "step_load_s": step_load_s}
    return delivered, {**times, **meetings.figures(), "bytes_read": bytes_read}


class _Meetings:
    """What ranks do together after each batch, as often as the one with most batches has one: by ``sync``."""

    def __init__(self, rank: Rank, batches: int) -> None:
        self._rank = rank
        self._left = max(rank.gather(batches)) if rank.sync != "none" else 0
        self._asked, self._taken_s = self._left, 0.0
        rank.meet([0.0])  # the first one is prepared now, not within the clock

    def next(self) -> None:
        """Meet once."""
        if self._left:
            before = time.perf_counter()
            self._rank.meet([0.0])
            self._taken_s += time.perf_counter() - before
            self._left -= 1

    def rest(self) -> None:
        """Meet the others in what this rank has no batch for."""
        while self._left:
            self.next()

    def figures(self) -> dict[str, Any]:
        """Return the time that it took, as a part of the wall time."""
        return {"sync_s": self._taken_s, "wall_parts": [*BENCHMARK.wall_parts, "sync_s"]} if self._asked else {}


class Keys(pipeline.PipelineKeys):
    """Reading of a folder of images."""

    preprocess: Annotated[
        bool, Setting("true: images are read, decoded and resized; false: files are only read (Fig 5)")
    ] = True


BENCHMARK = Benchmark(
    name="micro",
    version=1,
    kind="pipeline",
    keys=Keys,
    begin=images.begin_with(prepare, images_asked),
    figure=images.RATE,
    several_nodes=True,
    about="read a folder of images through tf.data, as the paper's micro-benchmark does",
)
