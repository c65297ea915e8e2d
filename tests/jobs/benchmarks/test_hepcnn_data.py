"""HEPCNNB's rules against what was published, and against a reader that counts sample by sample."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.benchmarks import hepcnn_data
from jobs.benchmarks.hepcnn_data import PHASES, HepRules, PhaseFiles, first_sample_fault, load_bytes

NERSC = HepRules(PhaseFiles(1024, 709), PhaseFiles(1024, 94), 64, epochs=5, batch_size=128, shuffle="local", seed=54321)


@st.composite
def rules(draw):
    ranks = draw(st.integers(1, 4))
    train, validation = (PhaseFiles(draw(st.integers(least, 9)), draw(st.integers(1, 7))) for least in (ranks, 0))
    batch = draw(st.integers(1, max(1, train.number // ranks * train.samples)))
    words = {"epochs": draw(st.integers(1, 4)), "shuffle": draw(st.sampled_from(["none", "local", "global"]))}
    return HepRules(train, validation, ranks, batch_size=batch, seed=draw(st.integers(0, 99)), **words)


class _OneMoreStep(HepRules):
    """As their runs with global shuffling on 64 to 256 nodes were."""

    @property
    def steps(self):
        return super().steps + 1


@pytest.mark.parametrize(
    ("nodes", "reads", "steps", "shuffled"),
    [
        (64, 9_280, 443, 10_304), (128, 9_344, 221, 10_368), (256, 9_472, 110, 10_496), (512, 9_728, 55, 9_728),
        (1024, 2_048, 27, 2_048),
    ],
)  # fmt: skip
def test_the_counts_are_those_of_nerscs_workbooks(nodes, reads, steps, shuffled):
    local = replace(NERSC, ranks=nodes)
    longer = _OneMoreStep if nodes < 512 else HepRules
    all_over = longer(NERSC.train, NERSC.validation, nodes, 5, 128, "global", 54321)

    assert (local.steps, local.count() * nodes) == (steps, reads)
    assert all_over.count() * nodes == shuffled


def test_the_bytes_of_a_load_are_those_of_a_published_file():
    assert [load_bytes(samples, 224) for samples in (709, 94)] == [426_908_752, 56_600_032]


def read_by_samples(rules, rank):
    """Load as their program does, a sample at a time; returns the loads by phase and the epochs that ended."""
    left, loads, at, ended = {}, {phase: [] for phase in PHASES}, dict.fromkeys(PHASES, -1), 0

    def advance(phase):
        at[phase] += 1
        share = rules.share(phase)
        epoch, place = divmod(at[phase], share)
        if share > 1 or not loads[phase]:
            loads[phase].append((epoch, rules.order(phase, rank, epoch)[place]))
        left[phase] = rules.files(phase).samples

    validates = rules.share("validation") > 0
    if validates:
        advance("validation")
    for _ in range(rules.steps):
        for _ in range(rules.batch_size):
            if not left.get("train"):
                advance("train")
            left["train"] -= 1
        while ended < at["train"] // rules.share("train"):
            ended += 1
            for _ in range(rules.share("validation") - 1):
                advance("validation")
            if validates and ended < rules.epochs:
                advance("validation")
    return loads, ended


@given(rules())
def test_loads_are_those_of_a_reader_that_counts_samples(rules):
    for rank in range(rules.ranks):
        loads, ended = read_by_samples(rules, rank)

        assert {phase: rules.loads(phase, rank) for phase in PHASES} == loads
        assert (rules.finished, rules.count()) == (ended, sum(map(len, loads.values())))


@given(rules(), st.booleans())
def test_cold_are_the_loads_of_files_that_no_memory_has(rules, shared):
    for phase in PHASES:
        memory = [set() for _ in range(rules.ranks)]
        found = [[] for _ in range(rules.ranks)]
        epochs = {load.epoch for rank in range(rules.ranks) for load in rules.loads(phase, rank)}
        for epoch in sorted(epochs):
            for rank in range(rules.ranks):
                for place, load in enumerate(rules.loads(phase, rank)):
                    if load.epoch == epoch and load.file not in memory[0 if shared else rank]:
                        found[rank].append(place)
                        memory[0 if shared else rank].add(load.file)

        assert [rules.cold(phase, rank, shared=shared) for rank in range(rules.ranks)] == found


@given(rules(), st.integers(0, 3))
def test_in_each_epoch_no_file_is_two_ranks_and_each_rank_has_as_many(rules, epoch):
    for phase in PHASES:
        dealt = [rules.order(phase, rank, epoch) for rank in range(rules.ranks)]
        files = [file for order in dealt for file in order]

        assert len(files) == len({*files}) == rules.share(phase) * rules.ranks
        assert {*files} <= {*range(rules.files(phase).number)}


def test_what_is_shuffled_decides_who_reads_what():
    none, local, all_over = (replace(NERSC, shuffle=word) for word in ("none", "local", "global"))

    assert [none.order("train", 3, epoch) for epoch in (0, 1)] == [tuple(range(48, 64))] * 2
    orders = [local.order("train", 3, epoch) for epoch in (0, 1)]
    assert orders[0] != orders[1]
    assert {*orders[0]} == {*orders[1]} == {*range(48, 64)}
    assert {*all_over.order("train", 3, 0)} == {*range(48, 64)}
    assert len({*all_over.order("train", 3, 1)} & {*range(48, 64)}) < 5


def test_the_share_of_cold_loads_under_global_shuffling_is_that_of_chance():
    """(1 - 1/N)^e of the loads of epoch e: 97 % of all at 64 nodes, 61 % at 4, 39 % at 2, and 20 % without."""
    shares = {}
    for nodes in (2, 4, 64):
        rules = replace(NERSC, ranks=nodes, shuffle="global")
        cold = sum(len(rules.cold("train", rank, shared=False)) for rank in range(nodes))
        shares[nodes] = cold / (len(rules.loads("train", 0)) * nodes)

    assert shares == pytest.approx({2: 0.39, 4: 0.61, 64: 0.97}, abs=0.01)
    assert len(NERSC.cold("train", 0, shared=False)) == 16
    everybody = replace(NERSC, shuffle="global")
    assert sum(len(everybody.cold("train", rank, shared=True)) for rank in range(64)) == 1024


def delivered(rules):
    """What each rank hands out where nothing goes wrong."""
    return [
        [
            [rules.train.samples * (file in rules.order("train", rank, epoch)) for file in range(rules.train.number)]
            for epoch in range(rules.finished)
        ]
        for rank in range(rules.ranks)
    ]


@pytest.mark.parametrize(
    ("rank", "file", "count", "said"),
    [
        (0, 1, 4, "epoch 1: 4 samples of file 1 were used, not 5"),
        (1, 0, 5, "epoch 1: 10 samples of file 0 were used, not 5"),
        (1, 3, -1, "epoch 1: a sample of file 3 was used twice"),
        (0, 4, 5, "epoch 1: 5 samples of file 4 were used, not 0"),
    ],
)
def test_a_sample_that_did_not_come_once_is_told(rank, file, count, said):
    rules = HepRules(PhaseFiles(5, 5), PhaseFiles(0, 0), 2, epochs=4, batch_size=5, shuffle="none", seed=0)
    found = delivered(rules)
    assert first_sample_fault(rules, found) == ""

    found[rank][1][file] = count

    assert first_sample_fault(rules, found) == said


ROWS = [  # of a load: phase, what of its file was in memory, and the seconds of its read
    ("train", 0.0, 5.0), ("train", 0.49, 1.0), ("train", 0.5, 0.4), ("train", 1.0, 0.1), ("train", 0.2, 11.0),
    ("train", None, 90.0), ("train", 0.9, 0.3), ("train", 0.0, 2.0), ("validation", 0.51, 0.7),
    ("validation", None, 8.0),
]  # fmt: skip


def test_loads_with_less_than_half_of_their_file_in_memory_came_from_the_device():
    rows = [{"phase": phase, "epoch": 3, "resident": share, "read_s": took} for phase, share, took in ROWS]

    assert hepcnn_data.seconds_by_source(rows) == {
        "train_cold_loads": 4, "train_cold_read_s": np.median([5.0, 1.0, 11.0, 2.0]),
        "train_warm_loads": 3, "train_warm_read_s": np.median([0.4, 0.1, 0.3]),
        "validation_cold_loads": 0, "validation_warm_loads": 1, "validation_warm_read_s": 0.7,
    }  # fmt: skip


def test_of_ranks_loads_are_added_up_seconds_are_means_and_medians_those_of_the_medians():
    names = ("loads", "train_cold_loads", "read_s", "unpack_s", "shuffle_s", "train_cold_read_s", "wall_s")
    values = np.random.default_rng(3).integers(1, 100, (4, len(names))) * np.array([1, 1, 0.3, 0.5, 0.7, 0.9, 1])
    ranks = [dict(zip(names, row, strict=True)) for row in values.tolist()]
    del ranks[1]["train_cold_read_s"]  # it had no such load

    found = hepcnn_data.combine_load_metrics(ranks)

    sums, (means, median) = values.sum(axis=0), (values.mean(axis=0), np.median(values[[0, 2, 3], 5]))
    assert found == pytest.approx(dict(zip(names, [*sums[:2], *means[2:5], median], strict=False)))


@pytest.mark.parametrize(
    ("cache", "shuffle", "private", "residents", "passed"),
    [
        ("cold", "local", True, [0.0, 0.49, 1.0, 0.5], True),
        ("cold", "local", True, [0.0, 0.5, 1.0, 1.0], False),
        ("cold", "local", True, [0.0, 0.0, 0.49, 1.0], False),
        ("warm", "local", True, [0.5, 0.5, 0.5, 0.5], True),
        ("warm", "local", True, [0.49, 0.5, 0.5, 0.5], False),
        ("cold", "local", True, [0.0, 0.0, None, 1.0], None),
        ("cold", "local", False, [0.0, 0.0, 1.0, 1.0], True),
        ("cold", "global", False, [0.0, 0.0, 1.0, 1.0], None),
        ("as_is", "local", True, [1.0] * 4, "unclaimed"),
    ],
)
def test_loads_come_from_where_the_rules_say_or_nothing_is_said(cache, shuffle, private, residents, passed):
    rules = HepRules(PhaseFiles(2, 8), PhaseFiles(0, 0), 1, epochs=2, batch_size=8, shuffle=shuffle, seed=1)
    plan = hepcnn_data.LoadPlan(rules, SimpleNamespace(rank=0, private_caches=private), 4, PHASES)
    loads = rules.loads("train", 0)
    rows = [
        {"phase": "train", "epoch": load.epoch, "file": load.file, "resident": share, "bytes": load_bytes(8, 4)}
        for load, share in zip(loads, residents, strict=True)
    ]

    found = plan.of_rank(rows, cache)

    cold = found.get("cold_as_predicted", {"found": "unclaimed", "expected": None})
    assert (cold["found"] if passed in (None, "unclaimed") else cold["found"] == cold["expected"]) == passed
    assert found["bytes_as_predicted"]["found"] == found["bytes_as_predicted"]["expected"] == 4 * 8 * (3 * 16 * 4 + 16)
    assert found["counts_as_predicted"]["found"] == {"train": 4, "validation": 0}
