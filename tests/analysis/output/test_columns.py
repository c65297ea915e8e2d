"""What stands in the tables is what the runs of the record gave."""

import statistics
from functools import partial
from itertools import pairwise

import pytest

from analysis.output.columns import RANGE, columns, shown_rows
from analysis.text.plain import number, span
from tests.analysis.baseline_records import baseline
from tests.analysis.record_factory import record, scattered
from tests.analysis.training_factory import frames, training

# What makes a record of runs with these figures, around which figure, and the key of its MB/s.
MAKERS = {
    "micro": (record, 500.0, "read_mb_per_s"),
    "training": (training, 140.0, "read_mb_per_s"),
    "read": (baseline, 150.0, "read_mb_per_s"),
    "write": (partial(baseline, access="write"), 130.0, "write_mb_per_s"),
}


@pytest.mark.parametrize("runs", [scattered(1.0), [1.0, 0.99, 1.02, 1.02]], ids=["odd", "even, tied"])
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("whole", [True, False])
def test_a_median_and_the_range_behind_it_are_those_of_the_runs(runs, kind, whole):
    make, usual, mb = MAKERS[kind]
    made = make([usual * share for share in runs])
    frame = frames(made)[0]
    (row,) = shown_rows(frame)
    keys = {"images/s": "images_per_s", "MB/s": mb, "runtime s": "wall_s", "s": "wall_s"}

    texts = [(each.heading, each.text(row)) for each in columns(frame, whole=whole)]

    for (heading, text), (behind, ends) in pairwise(texts):
        values = [run[keys[heading]] for run in made["runs"][1:]] if heading in keys else []
        assert not values or text == number(statistics.median(values))
        assert not values or behind != RANGE or ends == span(min(values), max(values))
    assert RANGE in dict(texts)
