"""The algebra of intervals, by its properties and against a grid of single nanoseconds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jobs.events.intervals import innermost_pieces, intersection, length_by, time_outside, union, without_earlier

SETS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8)).map(lambda each: (each[0], sum(each))), max_size=12)
GRID = 30


def arrays(intervals):
    return np.array(intervals, dtype=np.int64).reshape(-1, 2).T


def united(intervals):
    return union(*arrays(intervals))


def cells(intervals):
    return {cell for start, end in intervals for cell in range(start, end)}


def pairs(spans):
    return list(zip(*(column.tolist() for column in spans), strict=True))


@given(SETS, st.randoms())
def test_a_union_is_the_cells_of_the_grid_in_any_order_of_its_intervals(intervals, random):
    found = united(intervals)
    random.shuffle(intervals)

    assert cells(pairs(found)) == cells(intervals)
    assert found.length == len(cells(intervals)) <= sum(end - start for start, end in intervals)
    assert all(end < start for (_, end), (start, _) in zip(pairs(found), pairs(found)[1:], strict=False))
    assert pairs(united(intervals)) == pairs(found) == pairs(union(*found))


@given(st.lists(SETS, max_size=4), st.randoms())
def test_the_lengths_of_groups_are_those_of_each_alone(groups, random):
    rows = [(number, *each) for number, intervals in enumerate(groups) for each in intervals]
    random.shuffle(rows)

    found = length_by(*np.array(rows, dtype=np.int64).reshape(-1, 3).T)

    assert found == sum(len(cells(intervals)) for intervals in groups)


@given(SETS, SETS)
def test_what_one_set_leaves_of_another_and_has_with_it_are_the_cells_of_one_and_of_both(ones, others):
    left, both = (make(united(ones), united(others)) for make in (time_outside, intersection))

    assert cells(pairs(left)) == cells(ones) - cells(others)
    assert cells(pairs(both)) == cells(ones) & cells(others)


@given(st.lists(SETS, max_size=4))
def test_each_moment_is_given_to_the_first_set_that_has_it(sets):
    taken = set()
    for intervals, given_to in zip(sets, without_earlier([united(each) for each in sets]), strict=True):
        assert cells(pairs(given_to)) == cells(intervals) - taken
        taken |= cells(intervals)


@given(SETS)
def test_each_moment_is_that_of_the_interval_that_began_last(intervals):
    found = {
        cell: place
        for place, start, end in zip(*innermost_pieces(*arrays(intervals)), strict=True)
        for cell in range(start, end)
    }

    assert set(found) == cells(intervals)
    for cell, place in found.items():
        around = [each for each in intervals if each[0] <= cell < each[1]]
        assert place == intervals.index(max(around, key=lambda each: (each[0], -each[1])))
