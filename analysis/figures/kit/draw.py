"""Figures as bytes, for their files and for the page; several at a time where there are many."""

from __future__ import annotations

import gc
import os
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import starmap
from multiprocessing import get_context
from typing import TYPE_CHECKING

from analysis.errors import AnalysisError
from analysis.figures.kit import save
from analysis.figures.kit.svg import inline
from analysis.text.html import Markup

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from analysis.figures.kit.figure import FigureSpec

# A figure takes a second or two, and a process as long to start.
WORTH_PROCESSES = 6
MOST_PROCESSES = 4


@dataclass(frozen=True)
class Drawing:
    """A figure as it is kept: the bytes of its files by their endings, and as SVG for the page, empty without."""

    files: Mapping[str, bytes]
    inline: Markup


@contextmanager
def drawings(specs: Sequence[FigureSpec], within_page: int) -> Iterator[Iterator[Drawing]]:
    """Draw figures, where there are many in processes beside this one, too; the drawings come in their order.

    The processes begin at once, this one draws when the first drawing is asked for: it can do other work before.
    The first `within_page` of them are drawn as SVG, too.

    Raises
    ------
    AnalysisError
        If a process that drew was killed.
    """
    jobs = [(spec, place < within_page) for place, spec in enumerate(specs)]
    beside = min(_processors(), MOST_PROCESSES) - 1
    if len(jobs) < WORTH_PROCESSES or not beside:
        yield starmap(draw, jobs)
        return
    with ProcessPoolExecutor(beside, get_context("spawn"), _begin) as pool:
        try:
            yield _finish(jobs, [pool.submit(_draw, *job) for job in jobs])
        except BrokenProcessPool as error:
            raise AnalysisError("a process that drew figures was killed", "there may be too little memory") from error


def draw(spec: FigureSpec, in_page: bool) -> Drawing:  # noqa: FBT001 - `map` has no keywords
    """Draw one figure; in the page its title and caption stand around it as text."""
    files = save.contents(spec.drawn(), spec.frame, spec.stem)
    alone = inline(spec.function(spec.frame, "", ""), spec.stem, spec.title) if in_page else Markup()
    return Drawing(files, alone)


def _finish(jobs: Sequence[tuple[FigureSpec, bool]], begun: Sequence[Future[Drawing]]) -> Iterator[Drawing]:
    """Draw here, from the last, what no process has begun; then yield all drawings in their order."""
    mine = {place: _draw(*jobs[place]) for place in reversed(range(len(jobs))) if begun[place].cancel()}
    for place, future in enumerate(begun):
        yield mine[place] if place in mine else future.result()


def _draw(spec: FigureSpec, in_page: bool) -> Drawing:  # noqa: FBT001 - `map` has no keywords
    drawing = draw(spec, in_page)
    gc.collect()
    return drawing


def _processors() -> int:
    """Return on how many processors this process may run."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _begin() -> None:
    """Leave Ctrl-C to the process that started this one, and collect garbage after each figure alone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
