"""Figures as bytes, for their files and for the page; several at a time where there are many."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from analysis.figures.kit import save
from analysis.figures.kit.figure_spec import FigureSpec
from analysis.figures.kit.svg import inline
from analysis.processes import spread
from analysis.text.html import Markup

# A figure takes a second or two, and a process as long to start.
WORTH_PROCESSES = 6


@dataclass(frozen=True)
class Drawing:
    """A figure as it is kept: the bytes of its files by their endings, and as SVG for the page, empty without."""

    files: Mapping[str, bytes]
    inline: Markup


def drawings(specs: Sequence[FigureSpec], within_page: int) -> AbstractContextManager[Iterator[Drawing]]:
    """Draw figures, many in several processes (`analysis.processes.spread`); the first `within_page` as SVG, too."""
    return spread(partial(draw, specs, within_page), range(len(specs)), WORTH_PROCESSES)


def draw(specs: Sequence[FigureSpec], within_page: int, place: int) -> Drawing:
    """Draw one of the figures; the page has it without the title and the caption, which stand around it as text."""
    spec = specs[place]
    figure = spec.drawn()
    files = save.contents(figure, spec.frame, spec.stem)
    drawing = Drawing(files, inline(figure, spec.stem, spec.title) if place < within_page else Markup())
    del figure
    gc.collect()  # its parts know each other, and nothing else frees them before the next one is drawn
    return drawing
