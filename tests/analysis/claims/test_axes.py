"""A claim over an axis is not answered by cells that have one value on it, whatever else differs between them."""

import copy

import pytest

from analysis.claims import chien2018 as claims
from analysis.claims import nersc2018 as nersc
from analysis.claims import tfdarshan2020 as tfdarshan
from analysis.claims.judge_claim import DIFFERS, HOLDS
from tests.analysis.claims.test_tfdarshan2020 import compared, imagenet, malware
from tests.analysis.claims_factory import baseline, curve, rows_of
from tests.analysis.nersc_factory import climate, hepcnn
from tests.analysis.saving_factory import paper_like
from tests.analysis.training_factory import grid, step, training

EVERY = (*claims.CLAIMS, *nersc.CLAIMS, *tfdarshan.CLAIMS)
STORAGE, THREADS, PREFETCH, TARGET = ("storage",), ("threads",), ("prefetch",), ("checkpoint",)
PREPROCESS, EPOCHS, SHUFFLE = (("benchmark", key) for key in ("preprocess", "epochs", "shuffle"))
FILES, POSIX, KIND, SIDES = ("dataset", "files"), ("profile",), ("benchmark", "name"), ("checkpoint", "slow")
NODES, BATCH, STAGING = ("nodes",), ("batch_size",), ("staging",)
CURVES = {"hdd": (100, 165, 195, 230), "ssd": (100, 195, 300, 400), "optane": (100, 198, 300, 500),
          "lustre": (100, 199, 390, 780)}  # fmt: skip


def pipelines():
    """Return Figs 4 and 5, and Table I, of four storages of one host."""
    made = [
        cell
        for name, rates in CURVES.items() for preprocess, times in ((True, 1.0), (False, 2.0))
        for cell in curve(name, {threads: rate * times for threads, rate in zip((1, 2, 4, 8), rates, strict=True)},
                          benchmark__preprocess=preprocess)
    ]  # fmt: skip
    rates = {"hdd": 163.0, "ssd": 280.0, "optane": 1603.0, "lustre": 1968.0}
    return made + [baseline(name, access, [rate] * 3) for name, rate in rates.items() for access in ("read", "write")]


def trainings():
    """Return trainings of three storages with prefetch and without, and others of three batch sizes."""
    made = grid(("hdd", "ssd", "optane"))
    return made + [
        training([step(n, wall * (2 - prefetch)) for n in (1, 2, 3)], threads=8, storage="ssd", batch_size=size,
                 prefetch=prefetch, dataset__seed=7)
        for size, wall in ((16, 200.0), (32, 180.0), (64, 170.0)) for prefetch in (1, 0)
    ]  # fmt: skip


def nerscs():
    """Return trainings of HEPCNNB and of CDB over nodes, shuffling, epochs and data sets."""
    local = [hepcnn(nodes, "local", 8) for nodes in (1, 2, 4)]
    shuffled = [hepcnn(4, "global", cold, epochs=epochs) for epochs, cold in ((2, 20), (5, 24), (10, 36))]
    cdb = [climate(files, load_s) for files, load_s in ((65, 1.6), (129, 2.5))]
    return local + shuffled + cdb + [climate(65, load_s, nodes=nodes) for nodes, load_s in ((1, 0.5), (4, 2.0))]


def darshans():
    """Return the profiled cells that tf-Darshan's claims compare."""
    read = [imagenet(), imagenet(threads=28, rate=24.0), malware(), malware(16, 77.0)]
    return [*read, malware(rate=112.0, staging="smallest"), *compared(1.05)]


AXES = {
    pipelines: {
        STORAGE: (claims.DOUBLED, claims.FAST_DOUBLE, claims.LUSTRE_BEST, *claims.FASTER.values()),
        THREADS: (claims.DOUBLED, claims.FAST_DOUBLE, claims.SOON_FLAT, claims.LUSTRE_BEST, *claims.SCALING.values()),
        PREPROCESS: (claims.PREPROCESSING,),
        KIND: (claims.BELOW_IOR,),
    },
    trainings: {
        STORAGE: (claims.EQUAL, claims.THREADS_ON_HDD, claims.LESS_ON_SSD),
        THREADS: (claims.EQUAL, claims.THREADS_ON_HDD),
        PREFETCH: (claims.EXCESS, claims.READS_MORE, claims.LESS_ON_SSD, claims.BATCH),
        BATCH: (claims.BATCH,),
    },
    paper_like: {TARGET: (claims.TARGETS, claims.LIKE_FAST, claims.GAIN), SIDES: (claims.GAIN, claims.LATER)},
    nerscs: {
        NODES: (*nersc.SHARE.values(), *nersc.TRAINING.values()),
        SHUFFLE: (nersc.SLOWER_WITH_GLOBAL_SHUFFLE, nersc.BY_MEMORY),
        EPOCHS: (nersc.WITH_EPOCHS,),
        FILES: (nersc.WITH_DATA,),
    },
    darshans: {
        THREADS: (tfdarshan.SCALES, tfdarshan.FEWER), STAGING: (tfdarshan.STAGED,), POSIX: (tfdarshan.OVERHEAD,),
    },
}  # fmt: skip
# Of each cell by itself, of a number of the paper's or of its own machine.
OF_ONE = {claims.STEP, claims.DRAIN, *(claim for claim in EVERY if claim.compares == claims.EACH)}


def value(made, axis):
    found = made["cell"]["settings"]
    for key in axis:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def moved(made, axis, at):
    """Return a record with another value on an axis: that of the record `at`."""
    made, *above = copy.deepcopy(made), *axis[:-1]
    place = made["cell"]["settings"]
    for key in above:
        place = place[key]
    if axis == THREADS and made["cell"]["benchmark"] == "baseline":  # which has none
        return made
    place[axis[-1]] = copy.deepcopy(value(at, axis))
    if axis == STORAGE:
        made["provenance"] |= {key: at["provenance"][key] for key in ("mount", "device")}
    if axis == NODES:
        made["cell"]["settings"]["sync"] = at["cell"]["settings"].get("sync")
    return made


def sides(made):
    """Return a record whose burst buffer has one storage on both its sides, by another path."""
    made = copy.deepcopy(made)
    if slow := value(made, SIDES):
        made["cell"]["settings"]["checkpoint"]["fast"]["name"] = slow["name"]
    return made


def apart(made, place, other):
    """Return a record that differs in another key from those beside it."""
    settings = made["cell"]["settings"]
    if other in settings:
        settings[other] = place + 1
    if other == "sync" and (settings.get("nodes") or 1) > 1:
        settings[other] = ("barrier", "allreduce")[place % 2]
    return made


def answered(made, wanted):
    """Return those of some claims that have a verdict of any pair or set."""
    rows = rows_of(wanted, *made)
    return set(rows["claim"][rows["verdict"].isin([HOLDS, DIFFERS])])


CASES = [(make, axis, wanted) for make, axes in AXES.items() for axis, wanted in axes.items()]


def test_every_claim_that_compares_cells_has_an_axis_here():
    named = {claim for _, _, wanted in CASES for claim in wanted}

    assert named | OF_ONE == set(EVERY)


@pytest.mark.parametrize("make", AXES, ids=lambda make: make.__name__)
def test_with_several_values_every_claim_is_answered(make):
    wanted = {claim for claims_ in AXES[make].values() for claim in claims_}

    assert answered(make(), wanted) == {claim.text for claim in wanted}


@pytest.mark.parametrize(("make", "axis", "wanted"), [case for case in CASES if case[1] != SIDES])
def test_cells_of_one_value_on_the_axis_answer_no_claim_over_it(make, axis, wanted):
    made = make()
    for at in {str(value(each, axis)): each for each in (made[0], made[-1])}.values():
        alone = [each for each in made if value(each, axis) == value(at, axis)]

        assert not answered(alone, wanted), f"only {value(at, axis)}"


@pytest.mark.parametrize(
    ("make", "axis", "wanted", "other"),
    [(*case, None if case[1] == THREADS else "threads") for case in CASES if case[1] != KIND]
    + [(*case, "sync") for case in CASES if case[0] is nerscs],
)  # fmt: skip
def test_cells_that_were_given_one_value_on_the_axis_answer_no_claim_over_it(make, axis, wanted, other):
    made = make()
    at = max((each for each in made if value(each, axis) is not None), key=lambda each: str(value(each, axis)))
    alike = [sides(each) if axis == SIDES else moved(each, axis, at) for each in made]

    assert not answered([apart(each, place, other) for place, each in enumerate(alike)], wanted)
