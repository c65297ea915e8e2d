"""What stands in the tables is what the runs of the record gave."""

import statistics
from itertools import pairwise

import pytest

from analysis.output.columns import RANGE, columns, shown_rows
from analysis.text.plain import number, span
from tests.analysis.baseline_records import baseline
from tests.analysis.record_factory import record, scattered
from tests.analysis.training_factory import frames, training


@pytest.mark.parametrize(
    ("made", "mb"),
    [
        (record(scattered(500.0)), "read_mb_per_s"),
        (training(scattered(140.0)), "read_mb_per_s"),
        (baseline(scattered(150.0)), "read_mb_per_s"),
        (baseline(scattered(130.0), "write"), "write_mb_per_s"),
    ],
    ids=["micro", "training", "read", "write"],
)
@pytest.mark.parametrize("whole", [True, False])
def test_a_median_and_the_range_behind_it_are_those_of_the_runs(made, mb, whole):
    frame = frames(made)[0]
    (row,) = shown_rows(frame)
    keys = {"images/s": "images_per_s", "MB/s": mb, "runtime s": "wall_s", "s": "wall_s"}

    texts = [(each.heading, each.text(row)) for each in columns(frame, whole=whole)]

    for (heading, text), (behind, ends) in pairwise(texts):
        values = [run[keys[heading]] for run in made["runs"][1:]] if heading in keys else []
        assert not values or text == number(statistics.median(values))
        assert not values or behind != RANGE or ends == span(min(values), max(values))
    assert RANGE in dict(texts)
