"""What storages give by themselves, which share of it the cells got, and Table I as a figure."""

import math

import pytest

from analysis.output import tables
from analysis.statistics.baselines import sentence_on_baseline
from analysis.text import DASH
from tests.analysis.baseline_records import baseline, given
from tests.analysis.record_factory import BYTES_PER_IMAGE, id_of, left, record
from tests.analysis.training_factory import figures_of, frames, row_of, table_of

MB = BYTES_PER_IMAGE / 1e6  # of one image


def micro(mb_per_s, **settings):
    """A cell of the micro-benchmark that read so fast."""
    return record([mb_per_s / MB] * 3, **settings)


def test_the_figure_of_a_baseline_is_the_median_of_what_it_read_or_wrote():
    read, written = baseline([150.0, 160.0, 155.0]), baseline([100.0, 90.0, 95.0], "write")

    of_read, of_write = row_of(read, written), row_of(written, read)

    names = ["mb_per_s", "mb_per_s_min", "mb_per_s_max", "spread"]
    assert of_read[names].tolist() == pytest.approx([155.0, 150.0, 160.0, 10 / 155])
    assert of_write[names].tolist() == pytest.approx([95.0, 90.0, 100.0, 10 / 95])
    assert math.isnan(of_write["read_mb_per_s"])


def test_the_share_of_a_cell_is_of_random_reads_by_as_many_readers_or_else_of_the_read():
    cells = [micro(40.0, threads=threads) for threads in (1, 2)]
    read, random = baseline([160.0] * 3), baseline([50.0] * 3, "random_read", threads=1)

    table = table_of(*cells, read, random)
    told = table.loc[[id_of(each) for each in (*cells, read)]]

    assert told["baseline"].tolist() == [id_of(random), id_of(read), ""]
    assert told["baseline_access"].tolist() == ["random_read", "read", ""]
    assert told["percent_of_baseline"].tolist() == pytest.approx([80.0, 25.0, math.nan], nan_ok=True)


@pytest.mark.parametrize(
    ("cell", "given_by"),
    [
        ({"storage": "hdd"}, baseline([160.0] * 3)),
        ({"host": "node2"}, baseline([160.0] * 3)),
        ({"cache": "warm"}, baseline([160.0] * 3)),
        ({"cache": "as_is"}, baseline([160.0] * 3)),
        ({"threads": 8}, baseline([160.0] * 3, "random_read")),
        ({"dataset__seed": 7}, baseline([160.0] * 3, "random_read")),
        ({}, baseline([160.0] * 3, "write")),
        ({}, left(baseline([160.0]), "invalid")),
    ],
)
def test_another_storage_host_or_way_to_read_says_nothing_of_a_cell(cell, given_by):
    table, *_ = frames(micro(40.0, **cell), given_by)

    assert table["percent_of_baseline"].isna().all()
    assert set(table["baseline"]) == {""}
    assert not tables.has_baselines(table)


@pytest.mark.parametrize("loose", [0, 1])
def test_a_cell_or_a_baseline_of_looser_checks_has_no_share(loose):
    made = [micro(40.0), baseline([160.0] * 3)]
    made[loose]["terms"]["checks"]["resident_max"] = 1.0

    assert table_of(*made)["percent_of_baseline"].isna().all()


def test_of_two_baselines_the_faster_one_is_what_the_storage_gives():
    slow, fast = baseline([100.0] * 3, engine="builtin"), baseline([200.0] * 3, engine="fio")

    assert row_of(micro(50.0), slow, fast)["baseline"] == id_of(fast)


def test_engines_that_were_mixed_are_all_told():
    runs = [given(1, 160.0), given(2, 160.0, engine="builtin", engine_version="1")]

    table, *_ = frames(baseline(runs))

    assert table["engine"].tolist() == ["builtin + fio-3.33"]


def test_the_caption_of_a_figure_says_which_share_the_cells_got():
    cells = [micro(rate, threads=threads) for threads, rate in ((1, 40.0), (2, 80.0))]

    fig4 = figures_of(*cells, baseline([160.0] * 3))["fig4"]

    assert f"Of what the storage gives by itself: local 25{DASH}50 % (read)." in fig4.caption
    assert fig4.frame["percent_of_baseline"].tolist() == pytest.approx([25.0, 50.0])


def test_without_baselines_the_table_is_as_it_was_and_no_share_is_told():
    table, *_ = frames(made := micro(40.0))

    assert "percent_of_baseline" not in table
    assert sentence_on_baseline(table) == ""
    assert "by itself" not in figures_of(made)["fig4"].caption


def test_engines_that_were_asked_for_have_figures_of_their_own():
    drawn = figures_of(*(baseline([150.0] * 3, engine=name) for name in ("fio", "builtin")))

    assert sorted(drawn) == ["table1-engine-builtin", "table1-engine-fio"]


@pytest.mark.parametrize(("storages", "grey"), [(("hdd",), False), (("hdd", "ssd"), True)])
def test_the_legend_of_table_1_has_the_colour_of_the_bars_or_grey_for_several_colours(storages, grey):
    drawn = figures_of(*(baseline([150.0] * 3, storage=name) for name in storages))["table1"].drawn()

    (sign,) = drawn.legends[0].get_patches()
    bars = {patch.get_facecolor() for patch in drawn.axes[0].patches}
    assert (sign.get_facecolor() in bars) is not grey
