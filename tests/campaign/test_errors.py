"""What went wrong is told with its cure and its exit code, and several things at once."""

import pytest

from campaign import errors
from jobs.parser import nearest_hint


def test_nothing_wrong_is_no_refusal():
    errors.raise_if_refused([])
    with pytest.raises(errors.RefusalsError, match=r"^a$"):
        errors.raise_if_refused([("a", "b")])


def test_a_word_that_is_none_is_met_with_the_nearest_or_with_all_in_their_order():
    legal = ["threads", "runs", "batch_size"]

    assert nearest_hint("treads", legal) == "did you mean 'threads'?"
    assert nearest_hint("zzz", legal, "+") == "legal here: +batch_size, +runs, +threads"
