import math
import statistics

import pytest

from tests.analysis.record_factory import id_of, left, record
from tests.analysis.training_factory import figures_of, row_of, step, table_of, training


def controls(**settings):
    """Return cells of 150 s without input and of 60 s of input alone."""
    times = {"no_io": [149.0, 150.0, 152.0], "no_compute": [59.0, 60.0, 61.0]}
    return [training(runs, control=control, **settings) for control, runs in times.items()]


def test_shares_are_medians_over_the_valid_runs_of_what_each_run_spent():
    times = [(100.0, 10.0), (200.0, 60.0), (110.0, 22.0)]
    bad = step(4, 1.0, load_s=1.0, fails=["cold"])
    made = training([*(step(n, wall, load_s=load) for n, (wall, load) in enumerate(times, 1)), bad])

    row = row_of(made)

    assert row["input_share"] == pytest.approx(statistics.median(load / wall for wall, load in times))
    assert row["compute_share"] == pytest.approx(statistics.median((wall - load - 0.5) / wall for wall, load in times))
    assert row[["load_s", "load_s_min", "load_s_max"]].tolist() == [22.0, 10.0, 60.0]


def test_between_lays_the_runtime_between_its_controls():
    made = training([164.0, 165.0, 170.0])

    row = row_of(made, *controls())

    assert row["between"] == pytest.approx((165 - 150) / 60)
    assert [row["no_io_s"], row["no_compute_s"]] == [150.0, 60.0]


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"threads": 8}, [150.0, None]), ({"storage": "ssd"}, [150.0, None]), ({"prefetch": 0}, [150.0, None]),
        ({"seed": 1}, [150.0, None]), ({"host": "node2"}, [None, None]), ({"batch_size": 8}, [None, None]),
        ({"accelerator__name": "gpu"}, [None, None]),
    ],
)  # fmt: skip
def test_controls_are_of_equal_settings_but_what_reads_nothing_may_have_read_otherwise(other, told):
    made = training([165.0])

    row = row_of(made, *controls(**other))

    assert [None if math.isnan(row[name]) else row[name] for name in ("no_io_s", "no_compute_s")] == told


def test_of_several_controls_without_input_the_median_counts():
    made = [training([165.0], threads=threads) for threads in (1, 2, 4)]
    no_io = [
        training([wall], control="no_io", threads=threads) for threads, wall in ((1, 149.0), (2, 150.0), (4, 154.0))
    ]

    assert row_of(*made, *no_io)["no_io_s"] == 150.0


def test_a_control_that_is_not_done_and_a_control_itself_have_no_place_between():
    made, (no_io, no_compute) = training([165.0]), controls()

    told = table_of(made, no_io, left(no_compute, "invalid"))["between"]

    assert told.isna().all()
    assert table_of(made, no_io, no_compute)["between"].drop(id_of(made)).isna().all()


def test_the_accelerator_is_what_the_runs_had_and_all_are_named_where_they_differ():
    made = training([step(1, 200.0, accelerator="gpu"), step(2, 200.0, accelerator="cpu"), step(3, 200.0)])

    assert table_of(made)["accelerator"].tolist() == ["cpu + gpu"]


def test_an_accelerator_left_alone_is_the_same_whether_named_or_not_and_is_not_told():
    old = record([1.0], threads=1)
    new = record([2.0], threads=2, accelerator={"name": "auto", "step_s": None})

    made = figures_of(old, new)

    assert list(made) == ["fig4"]
    assert made["fig4"].frame["images_per_s"].tolist() == [1.0, 2.0]
    assert "accelerator" not in made["fig4"].caption
    assert "auto" not in made["fig4"].caption
