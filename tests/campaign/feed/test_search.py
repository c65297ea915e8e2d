"""The search for the largest number that is fed, and for the shortest step of one accelerator."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.feed.search import bracket_number, bracket_step, confirm_edge


@given(st.integers(0, 300), st.integers(-5, 400), st.integers(1, 250))
def test_the_edge_is_found_from_any_begin_and_by_few_questions(truth, first, most):
    asked = []
    low, high = bracket_number(first, lambda number: not asked.append(number) and number <= truth, most)

    assert (low, high) == ((truth, truth + 1) if truth < most else (most, None))
    assert len(asked) == len(set(asked)) <= 2 * (max(first, truth, 2)).bit_length() + 2
    assert max(asked) <= most


@given(st.integers(0, 40), st.integers(0, 40))
def test_the_edge_moves_to_where_many_runs_say_it_is(truth, start):
    low, high = confirm_edge(start, start + 1, lambda number: number <= truth, most=50)

    assert (low, high) == (truth, truth + 1)


def test_no_more_than_the_most_are_asked_for():
    assert confirm_edge(3, 4, lambda _: True, most=4) == (4, None)


@given(st.floats(0.05, 0.89), st.floats(-0.2, 0.2))
def test_the_critical_step_is_between_the_two_that_are_found(au, error):
    step_s, minimum = 0.1, 0.9
    waits_s = step_s / au * (1 + error)  # one run said less or more
    critical_s = minimum * waits_s
    fed_s, starved_s = bracket_step(step_s, au, minimum, lambda step_s: step_s >= critical_s)

    assert starved_s < fed_s
    assert starved_s < critical_s <= fed_s or (critical_s <= step_s == starved_s)
    assert fed_s / max(critical_s, step_s) < 1.18


def test_it_is_said_where_no_step_is_long_enough():
    questions = itertools.count()
    fed_s, starved_s = bracket_step(0.1, 0.5, 0.9, lambda _: next(questions) < 0)

    assert (fed_s, starved_s > 0.18) == (None, True)


@pytest.mark.parametrize("most", [1, 7])
def test_a_storage_that_feeds_nothing_is_zero(most):
    assert bracket_number(5, lambda _: False, most) == (0, 1)
