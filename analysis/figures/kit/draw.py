"""Figures as bytes, for their files and for the page; several at a time where there are many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from analysis.figures.kit import save
from analysis.figures.kit.figure import FigureSpec
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
    return spread(draw, [(spec, place < within_page) for place, spec in enumerate(specs)], WORTH_PROCESSES)


def draw(spec: FigureSpec, in_page: bool) -> Drawing:  # noqa: FBT001 - a job has no keywords
    """Draw one figure; the page has it without the title and the caption, which stand around it as text."""
    figure = spec.drawn()
    files = save.contents(figure, spec.frame, spec.stem)
    return Drawing(files, inline(figure, spec.stem, spec.title) if in_page else Markup())
