"""The colour and the marker of each storage, the same in every figure, and the style sheet."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import matplotlib.style

from analysis.records.settings import plain_storage_name

SHEET = Path(__file__).with_name("figure.mplstyle")


@dataclass(frozen=True)
class StorageLook:
    """Colour and marker of one storage; there are both, so that no reader depends on the colour alone."""

    color: str
    marker: str


# Okabe and Ito's palette, safe for the colour blind (https://jfly.uni-koeln.de/color/); Lustre is gray as in
# the paper.
KNOWN = {
    "hdd": StorageLook("#E69F00", "o"),
    "ssd": StorageLook("#56B4E9", "s"),
    "optane": StorageLook("#009E73", "^"),
    "lustre": StorageLook("#B0B0B0", "D"),
    "local": StorageLook("#4C9BD0", "v"),
    "burst_buffer": StorageLook("#AA4499", "p"),
}
COLORS = ("#CC79A7", "#D55E00", "#F0E442", "#0072B2", "#88CCEE", "#DDCC77")
MARKERS = ("P", "X", "<", ">", "h")


def look_of_storage(storage: str) -> StorageLook:
    """Return the look of a storage; it depends only on the storage's name, not on the others in the figure."""
    name = plain_storage_name(storage)
    if name in KNOWN:
        return KNOWN[name]
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    return StorageLook(COLORS[number % len(COLORS)], MARKERS[number // len(COLORS) % len(MARKERS)])


@contextmanager
def style_sheet() -> Iterator[None]:
    """Set our style sheet for drawing and saving figures in a `with` block; the user's own matplotlibrc is ignored.

    A letter that the font lacks is drawn as a box, without a warning: the tables and the page show the letter.
    """
    with matplotlib.style.context(SHEET, after_reset=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"(?s)Glyph .* missing from font")
        yield
