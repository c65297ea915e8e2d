"""Every claim that the paper's text states as a number or an order, in the order of the paper.

Chien et al., "Characterizing Deep-Learning I/O Workloads in TensorFlow", PDSW-DISCS 2018, arXiv:1810.03035. The heights
of bars are not in the text; the one claim that is inferred from two figures says so in its source.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from analysis import paper

BLACKDOG, TEGNER = "blackdog", "tegner"
DEVICE, SHAPE = "device", "shape"
# What a claim compares: cells of one host; with data sets of several sizes; storages, each on a host of its own;
# nothing, for it is of each by itself.
CELLS, SIZES, STORAGES, EACH = "cells", "sizes", "storages", "each"
ANY_SITE = "site=mysite"  # in `measure`, where no campaign says which


@dataclass(frozen=True)
class Claim:
    """One claim.

    Attributes
    ----------
    text, source, published
        What is claimed, where it stands, and its number or order in a few words.
    measure
        The command that measures it.
    number
        The published number as it is printed: its last digit says how exact it is. Empty for an order.
    machine
        The paper's machine, where the claim is of its own devices and says nothing of others; else it is a shape,
        which any machine can be held against.
    emulable
        It is of a storage alone: an emulated one can stand in for the machine, and a model of one for the paper's size.
    compares
        `CELLS`, `SIZES`, `STORAGES` or `EACH`.
    """

    text: str
    source: str
    published: str
    measure: str
    number: str = ""
    machine: str = ""
    emulable: bool = False
    compares: str = CELLS

    @property
    def kind(self) -> str:
        """What it is about: a `device` of the paper, or a `shape`."""
        return DEVICE if self.machine else SHAPE

    @property
    def value(self) -> float:
        """The published number."""
        return float(self.number)

    @property
    def rounding(self) -> float:
        """Half a unit of the last digit that is printed: the number may be off by as much."""
        exponent = Decimal(self.number).as_tuple().exponent
        return 0.5 * 10.0 ** int(exponent)


def _campaign(words: str) -> str:
    return f"python -m campaign {words} {ANY_SITE}"


_FIG4, _BOTH = (_campaign(f"+paper={name} storage=hdd,ssd,optane,lustre") for name in ("fig4", "fig4,fig5"))
_FIG6 = _campaign("+paper=fig6 storage=hdd,ssd,optane")
_FIG8 = _campaign("+paper=fig8 storage=hdd,ssd")
_FIG9, _FIG10 = _campaign("+paper=fig9"), _campaign("+paper=fig10")
_BASELINE = _campaign("+paper=table1 storage=hdd,ssd,optane,lustre")
_TABLE, _MICRO, _APP = "Table I", "Sec. V.A", "Sec. V.B"
_SAVED, _END = "Sec. V.C", "Sec. VII"


def _source(where: str) -> str:
    return f"{paper.CHIEN_2018}, {where}"


def _rate(storage: str, access: str, number: str) -> Claim:
    text = f"{storage}: a file of 5 GB is {'read' if access == 'read' else 'written'} at {number} MB/s"
    machine = TEGNER if storage == "lustre" else BLACKDOG
    return Claim(text, _source(_TABLE), f"{number} MB/s", _BASELINE, number, machine, emulable=True, compares=EACH)


READ, WRITTEN = (
    {name: _rate(name, access, numbers[access]) for name, numbers in paper.TABLE_1.items()}
    for access in ("read", "write")
)
ORDER = {
    access: Claim(
        f"the storages' order in {noun}: hdd, ssd, optane, lustre", _source(_TABLE), "each faster", _BASELINE,
        compares=STORAGES,
    )
    for access, noun in {"read": "reading", "write": "writing"}.items()
}  # fmt: skip

# How much the runs vary: the benchmark, where it is told, on which machine, by less than so many percent.
SPREAD = {
    (benchmark, machine): Claim(
        f"the {program}'s runs vary by less than {percent} %", _source(where), f"< {percent} %", measure,
        f"0.0{percent}", machine, compares=EACH,
    )
    for benchmark, program, where, measure, limits in (
        (paper.MICRO, "micro-benchmark", "Sec. IV.A", _FIG4, {BLACKDOG: 1, TEGNER: 4}),
        (paper.APPLICATION, "mini-application", "Sec. IV.B", _FIG6, {BLACKDOG: 1, TEGNER: 6}),
    )
    for machine, percent in limits.items()
}  # fmt: skip
DOUBLED = Claim(
    "two threads almost double the bandwidth of one on most devices", _source(_MICRO), "almost twice", _FIG4,
    compares=STORAGES,
)  # fmt: skip
FAST_DOUBLE = Claim(
    "the effect of a second thread is larger on ssd and optane than on hdd", _source(_MICRO), "ssd, optane > hdd", _FIG4
)
FLAT = Claim(
    "on hdd the last doubling of threads, four to eight, gains less than the first", _source(_MICRO), "soon flattens",
    _FIG4,
)  # fmt: skip
LUSTRE_BEST = Claim("lustre scales best with threads", _source(_MICRO), "lustre > others", _FIG4, compares=STORAGES)
BELOW_IOR = Claim(
    "the input pipeline's bandwidth is below that of the storage", _source(_MICRO), "IOR > pipeline",
    f"{_FIG4}; {_BASELINE}", compares=STORAGES,
)  # fmt: skip
PREPROCESSING = Claim(
    "without preprocessing the bandwidth is larger (inferred from Figs 4 and 5)", _source("inferred from Figs 4 and 5"),
    "read only > with preprocessing", _BOTH, compares=STORAGES,
)  # fmt: skip
SCALING = {
    (storage, threads): Claim(
        f"{storage}: {threads} threads read {ratio} times as much as one", paper.SOURCE, f"{ratio} times", _BOTH,
        str(ratio), emulable=True,
    )
    for storage, ratios in paper.THREAD_SCALING.items()
    for threads, ratio in ratios.items()
}  # fmt: skip
EQUAL = Claim(
    "with prefetch the runtime is equal whatever the storage and the threads", _source(_APP), "the same runtime", _FIG6
)
EXCESS = Claim(
    "the excess without prefetch is the cost of I/O", _source(_APP), "excess = cost of I/O", _FIG6
)  # fmt: skip
THREADS_ON_HDD = Claim(
    "without prefetch, threads shorten the runtime most on hdd", _source(_APP), "hdd > others", _FIG6
)
READS_MORE = Claim("with prefetch more is read each second from hdd", _source(_APP), "prefetch 1 > prefetch 0", _FIG8)
LESS_ON_SSD = Claim("prefetch gains less on ssd than on hdd", _source(_APP), "hdd > ssd", _FIG8)
BATCH = Claim(
    "a larger batch is trained faster, with and without prefetch", _source(_APP), "faster with each batch size",
    _campaign("+paper=fig7 storage=ssd"),
)  # fmt: skip
STEP = Claim("a step's computing takes 1 to 2 s", _source(_END), "1 to 2 s", _FIG6, machine="blackdog or tegner")
TARGETS = Claim(
    "the runtime with checkpoints is lowest to optane, then to ssd, then to hdd", _source(_SAVED), "optane < ssd < hdd",
    _FIG9,
)  # fmt: skip
LIKE_FAST = Claim(
    "with a burst buffer the runtime is that with its fast storage alone", _source(_SAVED), "little difference", _FIG9
)
GAIN = Claim(
    f"a burst buffer checkpoints {paper.BURST_BUFFER_GAIN} times as fast as its slow storage alone", paper.SOURCE,
    f"{paper.BURST_BUFFER_GAIN} times as fast", _FIG9, str(paper.BURST_BUFFER_GAIN),
)  # fmt: skip
# "roughly 600 MB": one digit is meant.
SNAPSHOT = Claim("a snapshot has roughly 600 MB", paper.SOURCE, "600 MB", _FIG9, "6e2", compares=EACH)
LATER = Claim(
    "through a burst buffer a snapshot is on the slow storage later than on the fast", _source(_SAVED), "slow > fast",
    _FIG10,
)  # fmt: skip
DRAIN = Claim("the burst buffer's copying goes on after the application ends", _source(_SAVED), "after the end", _FIG10)

CLAIMS = (
    *READ.values(), *WRITTEN.values(), *ORDER.values(), *SPREAD.values(),
    DOUBLED, FAST_DOUBLE, FLAT, LUSTRE_BEST, BELOW_IOR, PREPROCESSING, *SCALING.values(),
    EQUAL, EXCESS, THREADS_ON_HDD, READS_MORE, LESS_ON_SSD, BATCH, STEP,
    TARGETS, LIKE_FAST, GAIN, SNAPSHOT, LATER, DRAIN,
)  # fmt: skip
