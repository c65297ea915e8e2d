"""Where the time of steps went, against a grid of single microseconds."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.__main__ import main
from analysis.traces import step_report
from jobs.events import step_times
from jobs.events.step_times import category_overlaps, category_times, input_bound
from jobs.events.table import Events
from jobs.events.tensorflow_trace import CATEGORIES, INPUT, KINDS, OTHER, UNACCOUNTED, Runtime
from tests.jobs.events import spaces
from tests.jobs.events.spaces import written

MOMENTS = 40
EVENTS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 30), st.integers(0, 9)).map(lambda e: (e[0], e[1], e[1] + e[2])),
    min_size=1, max_size=12,
)  # fmt: skip
EDGES = st.lists(st.integers(0, MOMENTS), min_size=2, max_size=7, unique=True).map(sorted)


def traced(events, edges):
    """Events of one thread, in µs, and steps between every other two edges."""
    kinds, starts, ends = zip(*events, strict=True)
    steps = list(zip(edges[::2], edges[1::2], strict=False))
    number = np.arange(len(steps))
    started, ended = np.array(steps).reshape(-1, 2).T * 1000
    column = np.zeros(len(events), np.int64)
    times = [np.array(each, np.int64) * 1000 for each in (starts, ends)]
    category = np.array([KINDS.index(kind) for kind in kinds])
    words = {"kind": KINDS, "thread": ["host"], "name": ["x:X"]}
    seen = Events(words, start=times[0], end=times[1], kind=category, thread=column, name=column)
    marks = Events({}, start=started, end=ended, thread=number * 0, series=number * 0, step=number)
    return Runtime("a", seen, marks, dated=True)


def of(events, *kinds):
    """The moments in which something of these kinds goes on."""
    return {moment for kind, start, end in events if kind in kinds for moment in range(start, end)}


def named(category):
    return (category, "uncategorised") if category == OTHER else (category,)


def us(seconds):
    return (np.asarray(seconds) * 1e6).round(6).tolist()


@given(EVENTS, EDGES)
def test_each_time_is_that_of_a_grid_of_moments(events, edges):
    each = traced(events, edges)
    found, together = category_times(each), category_overlaps(each)

    for at, (start, end) in enumerate(zip(edges[::2], edges[1::2], strict=False)):
        step = set(range(start, end))
        taken = set()
        for category in CATEGORIES:
            here = of(events, *named(category)) & step
            hidden = of(events, "compute") if category != "compute" else set()
            own = [set(range(a, b)) & step for kind, a, b in events if kind in named(category)]
            wanted = (
                max(here) + 1 - min(here) if here else 0,
                sum(map(len, own)),
                len(here),
                len(here - hidden),
                len(here - taken),
            )
            times = (found.elapsed, found.sum, found.union, found.exposed, found.spent)
            assert tuple(time[category][at] / 1e3 for time in times) == wanted
            taken |= here
        assert found.spent[UNACCOUNTED][at] / 1e3 == len(step - taken)
    inside = {moment for pair in zip(edges[::2], edges[1::2], strict=False) for moment in range(*pair)}
    for one, other in itertools.combinations(CATEGORIES, 2):
        both = of(events, *named(one)) & of(events, *named(other)) & inside
        assert us(together[one, other]) == len(both)


@given(EVENTS, EDGES)
def test_what_is_spent_adds_up_to_the_steps_and_the_verdict_is_a_part_of_it(events, edges):
    each = traced(events, edges)
    found = category_times(each)
    verdict = input_bound(each, found)

    spans = each.steps.end - each.steps.start
    assert (sum(found.spent.values()) == spans).all()
    assert verdict.waited_s == sum(found.spent[name].sum() for name in INPUT) / 1e9
    assert all(0 <= saved <= verdict.waited_s + 1e-12 for saved in verdict.remedies.values())


@given(EVENTS, EDGES)
def test_the_four_numbers_are_those_of_the_operations_of_a_step(events, edges):
    found = step_report.operations_per_step(traced(events, edges))

    for at, (start, end) in enumerate(zip(edges[::2], edges[1::2], strict=False)):
        step = set(range(start, end))
        every, talks = (of(events, *kinds) & step for kinds in (KINDS[:-1], ["communication"]))
        assert us(found["iteration_s"][at]) == (max(every) + 1 - min(every) if every else 0)
        assert us(found["computation_s"][at]) == len(every)
        assert us(found["communication_s"][at]) == len(talks)
        assert us(found["communication_elapsed_s"][at]) == (max(talks) + 1 - min(talks) if talks else 0)


STEP = [("train", 0, 100, 1), ("campaign input", 0, 60), ("campaign compute", 60, 90), ("campaign checkpoint", 90, 98)]
POOL = [("ReadFile:ReadFile", 5, 40), ("DecodeJpeg:DecodeJpeg", 40, 50), ("convert_image/Cast:Cast", 50, 52)]


@pytest.mark.parametrize(
    ("iterator", "in_use"),
    [
        ("Iterator::Root::Prefetch", True),
        ("Iterator::Root::MaxIntraOpParallelism::ForeverRepeat::Prefetch::ParallelMapV2", True),
        ("Iterator::Root::ParallelMapV2::Prefetch", False),  # the work of the map comes behind it
        ("Iterator::Root::BatchV2::PrefetchedFiles", False),
    ],
)
def test_prefetching_is_no_remedy_where_it_is_in_use(iterator, in_use, tmp_path, capsys):
    lines = [("python", [("campaign step", 0, 100, 1), *STEP[1:], (iterator, 0, 60)]), ("tf_data/1", POOL)]
    path = written(tmp_path / "a.xplane.pb", lines)

    assert main(["trace", str(path), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert main(["trace", str(path)]) == 0
    assert found["verdict"]["prefetched"] is in_use
    assert ("prefetch" in found["verdict"]["remedies_s"]) is not in_use
    assert ("The pipeline already prefetches" in " ".join(capsys.readouterr().out.split())) is in_use
    of_record = step_times.record_metrics(spaces.traced(lines))
    assert (of_record["remedies_s"]["prefetch"] == 0) is in_use


def test_a_snapshot_behind_the_step_costs_it_nothing():
    lines = [("python", STEP[:3]), ("tf_data/1", POOL), ("saver", [("campaign checkpoint", 0, 60)])]
    found = category_times(spaces.traced(lines))

    assert found.spent["checkpoint"].tolist() == [0]
    assert found.union["checkpoint"].tolist() == [60_000]
