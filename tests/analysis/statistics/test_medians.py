import pytest

from analysis.records.frame import runs_frame
from analysis.statistics.medians import runs_not_counted
from tests.analysis.record_factory import CONTRACT, disturbed, failed, id_of, left, parse, record, run, unstable
from tests.analysis.training_factory import row_of, table_of


def test_the_median_of_an_even_number_of_runs_is_the_mean_of_the_middle_two():
    row = row_of(record([100.0, 104.0, 90.0, 200.0]))

    assert row[["images_per_s", "images_per_s_min", "images_per_s_max"]].tolist() == [102.0, 90.0, 200.0]
    assert row["spread"] == pytest.approx(110 / 102)


def test_mb_per_s_and_bytes_per_image_follow_from_the_runs():
    row = row_of(record([100.0, 200.0, 300.0]))

    assert row["read_mb_per_s"] == pytest.approx(22.4)
    assert row["bytes_per_image"] == pytest.approx(112_000)
    assert row["wall_s"] == pytest.approx(2.56)


def test_invalid_failed_and_running_runs_are_counted_apart_and_enter_no_median():
    bad = [run(3, 9e9, fails=["cold"]), failed(4, "killed"), failed(5, "killed"), run(6, 9e9, status="running")]

    row = row_of(record([run(1, 100.0), run(2, 102.0), *bad]))

    assert row[["n_valid", "n_invalid", "n_failed"]].tolist() == [2, 1, 2]
    assert row["images_per_s"] == 101.0
    assert row["images_per_s_max"] == 102.0


@pytest.mark.parametrize(("n", "covered"), [(1, 0.0), (2, 0.5), (3, 0.75), (5, 0.9375)])
def test_min_to_max_covers_the_median_as_often_as_coins_do_not_all_fall_alike(n, covered):
    row = row_of(record([100.0] * n))

    assert row["coverage"] == covered


def test_a_cell_without_a_valid_run_has_no_median_and_no_coverage():
    row = row_of(record([failed(1, "killed")]))

    assert row["n_valid"] == 0
    assert row[["images_per_s", "coverage", "spread", "scaling"]].isna().all()


def test_what_disturbed_runs_gave_is_apart_from_every_figure_that_counts():
    row = row_of(disturbed(100.0, 140.0, 120.0))

    assert [row["disturbed"][f"images_per_s{end}"] for end in ("", "_min", "_max")] == [120.0, 100.0, 140.0]
    assert row[["images_per_s", "images_per_s_max", "coverage", "spread", "scaling"]].isna().all()


@pytest.mark.parametrize(
    "runs",
    [
        [run(1, 9.0, fails=["quiet", "cold"])],
        [run(1, 9.0, fails=["cold"])],
        [run(1, 9.0, fails=["quiet"]), run(2, 10.0)],
        [run(1, 9.0, role="warmup", fails=["quiet"])],
    ],
    ids=["warm, too", "warm alone", "beside a valid run", "a warm-up"],
)
def test_only_a_cell_without_a_valid_run_has_figures_of_runs_that_others_alone_spoiled(runs):
    assert row_of(record(runs))["disturbed"] is None


@pytest.mark.parametrize(
    "one",
    [
        *(
            record([100.0], threads=1, **other)
            for other in (
                {"batch_size": 32}, {"prefetch": 1}, {"cache": "warm"}, {"iterations": 2}, {"seed": 1},
                {"dataset__name": "big"}, {"benchmark__preprocess": False}, {"storage": "ssd"},
            )
        ),
        record([100.0], threads=1) | {"dataset": CONTRACT["dataset"] | {"checksum": "sha256:other"}},
        record([100.0], threads=1) | {"cell": record([100.0], threads=1)["cell"] | {"benchmark_version": 2}},
        left(record([100.0], threads=1), "invalid"),
    ],
)  # fmt: skip
def test_scaling_never_crosses_settings_data_or_versions_and_its_base_is_done(one):
    row = row_of(record([400.0], threads=4), one)

    assert row["scaling"] != row["scaling"]


def test_scaling_never_crosses_hosts_and_says_why():
    table = table_of(record([100.0] * 3, threads=1, host="node1"), record([400.0] * 3, threads=4, host="node2"))

    assert table["scaling"].isna().tolist() == [False, True]
    assert table["no_scaling"].tolist() == ["", "mixed: hosts node1, node2"]


def test_scaling_of_few_runs_is_a_number_that_no_table_shows():
    table = table_of(record([100.0], threads=1), record([400.0], threads=4))

    assert table["scaling"].tolist() == [1.0, 4.0]
    assert all("fewer than 3 valid runs" in why for why in table["no_scaling"])


def test_there_is_no_scaling_of_a_cell_of_looser_checks():
    loose = record([400.0] * 3, threads=4)
    loose["terms"]["checks"]["resident_max"] = 1.0

    table = table_of(record([100.0] * 3, threads=1), loose)

    assert table["scaling"].isna().tolist() == [False, True]
    assert table["no_scaling"].iloc[1].startswith("judged by looser checks than the site's")


def test_unstable_is_what_the_spread_of_the_runs_says_and_missing_where_one_run_has_none():
    silent = record([100.0], threads=2)
    made = [unstable(record([100.0] * 2, threads=1)), silent, record([100.0] * 2, threads=4)]

    flags = table_of(*made)["unstable"]

    assert [flags[id_of(made[0])], flags[id_of(made[2])]] == [True, False]
    assert flags.isna()[id_of(silent)]


def test_the_verdict_names_failed_and_unverifiable_checks_of_measured_runs():
    warm = [run(n, 1.0, fails=["cold"]) for n in (1, 2)]
    unknown = [run(n, 1.0, unknown=["quiet"]) for n in (3, 4)]

    assert row_of(record([*warm, *unknown]))["checks"] == "cold failed 2x; quiet unverifiable"
    assert row_of(record([1.0, 1.0]))["checks"] == "passed"
    assert row_of(record([failed(1, "killed")]))["checks"] == "spread unverifiable"
    assert row_of(left(record([]), "running"))["checks"] == "none made"


def test_reasons_of_one_cause_are_counted_together():
    bad = [failed(1, "one"), failed(2, "two", "ranks_parted"), failed(3, "three"), run(4, 1.0, fails=["quiet"])]

    told = runs_not_counted(runs_frame([parse(record(bad))]))

    assert told[["cause", "count"]].values.tolist() == [["no_data", 2], ["ranks_parted", 1], ["quiet", 1]]
    assert told["reason"].tolist()[:2] == ["one", "two"]


def test_a_cell_that_died_before_it_saw_its_dataset_stands_beside_its_like():
    dead = record([], threads=8) | {"dataset": {}}

    keys = table_of(record([1.0]), dead)["set_key"]

    assert keys.nunique() == 1
