"""How a map keeps calls under way in their order: against a simulation that has a clock, and against known cases."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.advice import findings


@pytest.mark.parametrize("window", [1, 2, 5, 16])
def test_a_storage_that_serves_one_call_at_a_time_gives_more_calls_no_more(window):
    assert findings.rate_in_order(lambda _: 100.0, window) == pytest.approx(100.0)


@pytest.mark.parametrize("window", [2, 8])
def test_it_is_what_a_clock_counts_where_calls_take_an_exponential_time_each(window):
    rng, taken, number = random.Random(1), [0.0] * window, 20_000  # noqa: S311
    for _ in range(number):  # each call begins when the one `window` before it is taken, and is taken in its turn
        taken.append(max(taken[-1], taken[-window] + rng.expovariate(1.0)))

    assert findings.rate_in_order(float, window) == pytest.approx(number / taken[-1], rel=0.05)


@given(st.dictionaries(st.integers(1, 64), st.floats(1, 1e4), min_size=1), st.integers(1, 100))
def test_a_rate_lies_between_those_that_are_known(readers, count):
    least = readers[min(readers)]

    found = findings.interpolate_rate(readers)(count)

    assert min([*readers.values(), least * min(1.0, (count / min(readers)) ** 0.5)]) * 0.999 <= found
    assert found <= max(readers.values()) * 1.001
    assert count not in readers or found == pytest.approx(readers[count])


@given(st.floats(0.01, 10), st.floats(0.01, 10), st.floats(0, 1))
def test_a_step_waits_for_what_could_not_be_made_ahead(made_s, computed_s, ahead):
    found = findings.wait_for_batch_s(made_s, computed_s, ahead)

    assert made_s - computed_s - 1e-9 <= found <= made_s
    assert findings.wait_for_batch_s(made_s, computed_s, 1.0) == pytest.approx(max(0.0, made_s - computed_s))
