"""Choose the colour and the marker of each storage for all figures, and set the style sheet of figures."""

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
    """The colour and the marker of one storage.

    Storages differ in the marker too, because some readers cannot distinguish the colours.
    """

    color: str
    marker: str


# The colours are from the palette of Okabe and Ito, which colour-blind readers can distinguish
# (https://jfly.uni-koeln.de/color/). Lustre is gray, as in the paper.
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
    """Return the colour and the marker of a storage.

    The look depends only on the name of the storage, so a storage looks the same in all figures.
    """
    name = plain_storage_name(storage)
    if name in KNOWN:
        return KNOWN[name]
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    return StorageLook(COLORS[number % len(COLORS)], MARKERS[number // len(COLORS) % len(MARKERS)])


@contextmanager
def style_sheet() -> Iterator[None]:
    """Use the style sheet `SHEET` for drawing and saving figures in a `with` block, and ignore the user's matplotlibrc.

    A character that the font does not have is drawn as a box without a warning, because the tables and the report page
    show this character.
    """
    with matplotlib.style.context(SHEET, after_reset=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"(?s)Glyph .* missing from font")
        yield
