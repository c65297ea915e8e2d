"""The colour and the marker of each storage, the same in every figure, and the style sheet."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import matplotlib.style

from analysis.records.settings import bare

SHEET = Path(__file__).with_name("figure.mplstyle")


@dataclass(frozen=True)
class Look:
    """Colour and marker of one storage; there are both, so that no reader depends on the colour alone."""

    color: str
    marker: str


# Okabe and Ito's palette, safe for the colour blind (https://jfly.uni-koeln.de/color/); Lustre is gray as in
# the paper.
KNOWN = {
    "hdd": Look("#E69F00", "o"),
    "ssd": Look("#56B4E9", "s"),
    "optane": Look("#009E73", "^"),
    "lustre": Look("#B0B0B0", "D"),
    "local": Look("#4C9BD0", "v"),
    "burst_buffer": Look("#AA4499", "p"),
}
COLORS = ("#CC79A7", "#D55E00", "#F0E442", "#0072B2", "#88CCEE", "#DDCC77")
MARKERS = ("P", "X", "<", ">", "h")


def look(storage: str) -> Look:
    """Return the look of a storage; it depends only on the storage's name, not on the others in the figure."""
    name = bare(storage)
    if name in KNOWN:
        return KNOWN[name]
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    return Look(COLORS[number % len(COLORS)], MARKERS[number // len(COLORS) % len(MARKERS)])


@contextmanager
def sheet() -> Iterator[None]:
    """Set our style sheet for drawing and saving figures in a `with` block; the user's own matplotlibrc is ignored.

    A letter that the font lacks is drawn as a box, without a warning: the tables and the page show the letter.
    """
    with matplotlib.style.context(SHEET, after_reset=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"(?s)Glyph .* missing from font")
        yield
