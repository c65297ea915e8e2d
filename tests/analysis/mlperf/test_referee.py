"""`python -m analysis mlperf`: what it recomputes of runs whose steps are known, and of a published one."""

import csv
import json
import math
import os
import tracemalloc
from pathlib import Path

import pandas as pd
import pytest
import yaml

from analysis.__main__ import main
from analysis.mlperf import dlio_folder
from analysis.mlperf.dlio_folder import read_folder
from analysis.mlperf.referee import COUNTINGS, FIGURES, NOTICE, Definition, by_rank_and_epoch, definitions, judge, worst
from analysis.mlperf.referee_report import au_over_epochs
from tests.analysis.mlperf.dlio_factory import BETWEEN_S, FIRST_S, dlio_run, edit

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT.parent / "shared" / "mlperf" / "hpe_v1_unet3d_h100_run1"
VERSIONS = (0, 1, 2, 3)


def judged(folder, **given):
    return judge(read_folder(folder), Definition(**given))


@pytest.fixture
def said(capsys):
    """Return what gives exit code, stdout and stderr of the command."""

    def of(*words):
        code = main(["mlperf", *map(str, words)])
        return code, *capsys.readouterr()

    return of


if PUBLISHED.exists():  # it is not ours to distribute; a skipped test would fail in .ci/run, where all is required

    def test_a_published_run_is_as_an_independent_script_has_it(said):
        code, out, _ = said(PUBLISHED, "--json")

        (run,) = json.loads(out)["runs"]
        au, worst = run["au"], run["worst"]
        assert (code, run["differences"], run["verdict"]) == (0, [], "success")
        assert au["published"] == pytest.approx(91.22602702535721)
        assert au["of_the_ranks"] == pytest.approx(91.2260, abs=5e-5)
        assert au["recomputed"] == pytest.approx(91.2362, abs=5e-5)
        assert [*run["by_epoch"]["checked"].values()] == pytest.approx(
            [92.70868, 90.83250, 90.97097, 90.66453, 90.95346], abs=2e-4
        )
        assert (worst["epoch"]["epoch"], worst["rank_in_an_epoch"]["rank"]) == (4, 8)
        assert worst["rank_in_an_epoch"]["au"] == pytest.approx(90.51, abs=0.005)
        assert run["missing"] == {"ranks": [], "epochs": [], "not_recomputed": {}}
        assert au["rules_text"] == pytest.approx(100 * 60000 / 15 / 7 * 0.323 * 5 / 1031.375902)
        assert au["nominal"] == pytest.approx(100 * 5 * 571 * 0.323 / 1024.46)
        assert run["samples_per_s"]["counts"] == "all n steps over the whole block"


@pytest.mark.parametrize(("blocks", "config"), [(1, ".hydra"), (2, ".hydra"), (1, "")])
@pytest.mark.parametrize("version", VERSIONS)
def test_what_dlio_wrote_is_what_its_steps_say(version, blocks, config, tmp_path):
    """The batch need not be known: one way to count gives a whole one."""
    run = judged(dlio_run(tmp_path, version, blocks=blocks, config=config), minimum=90, step_s=0.1)

    step_s = 0.1 + 0.002 + BETWEEN_S
    au = 100 * 39 * 0.1 / (39 * step_s + BETWEEN_S)
    assert (run["differences"], run["missing"]["not_recomputed"]) == ([], {})
    assert run["au"]["published"] == pytest.approx(au)
    assert run["au"]["recomputed"] == pytest.approx(au, abs=1e-3)
    assert (run["batch"], run["samples_per_s"]["counts"]) == (4, [*COUNTINGS][max(version, 1) - 1])
    assert run["samples_per_s"]["recomputed"] == pytest.approx(run["samples_per_s"]["published"], rel=1e-4)
    assert run["au"]["nominal"] == pytest.approx(100 * 40 * 0.1 / (FIRST_S + 0.1 + 39 * step_s + 0.01), rel=2e-3)
    whole_s = 39 * step_s + FIRST_S + 0.1 + BETWEEN_S
    assert run["shares_of_time"] == pytest.approx(
        {
            "left out of AU": (FIRST_S + 0.1) / whole_s, "loading": 39 * 0.002 / whole_s,
            "compute": 3.9 / whole_s, "rest of the steps": 0, "barrier, at least": 0,
            "nobody accounts for": 40 * BETWEEN_S / whole_s,
        },
        abs=1e-5,
    )  # fmt: skip
    assert sum(run["shares_of_time"].values()) == pytest.approx(1)


@pytest.mark.parametrize("version", VERSIONS)
def test_ranks_that_begin_while_rank_0_saves_a_checkpoint_do_not_differ(version, tmp_path):
    run = judged(dlio_run(tmp_path, version, blocks=2, checkpoint_s=2.0))

    assert run["differences"] == []
    assert run["au"]["of_the_ranks"] == pytest.approx(run["au"]["published"])
    # Version 1 charges the wait to the others' AU; rank 0's stamps do not show it.
    assert version == 1 or run["au"]["recomputed"] == pytest.approx(run["au"]["published"], abs=1)


def test_a_run_that_ends_before_its_data_is_not_counted_as_the_data(tmp_path):
    """By the rules' text all data are read in each epoch."""
    whole = judged(dlio_run(tmp_path))["au"]["rules_text"]
    edit(tmp_path / "summary.json", lambda value: value.update(num_files_train=10 * value["num_files_train"]))

    assert judged(tmp_path)["au"]["rules_text"] == pytest.approx(whole)


def test_a_bad_epoch_is_named_though_the_mean_passes(tmp_path):
    run = judged(dlio_run(tmp_path, load=lambda _, epoch: 0.02 if epoch == 2 else 0.002))

    assert (run["verdict"], run["differences"]) == ("success", [])
    assert (run["worst"]["epoch"]["epoch"], run["worst"]["epoch"]["passes"]) == (2, False)
    assert any("epoch 2 (" in each for each in run["remarks"])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_starved_rank_is_named_though_the_mean_passes(version, tmp_path):
    """Without barriers, as where ranks hand in their own work; it ends its blocks half a second after the others."""
    folder = dlio_run(tmp_path, version, load=lambda rank, _: 0.015 if rank == 3 else 0.002, barrier=False)
    run = judged(folder)

    assert (run["verdict"], run["differences"]) == ("success", [])
    assert (run["worst"]["rank"]["rank"], run["worst"]["rank"]["passes"]) == (3, False)
    assert run["worst"]["most_loading"]["rank"] == 3
    assert math.isnan(run["shares_of_time"]["barrier, at least"])


def test_a_barrier_is_what_the_slowest_rank_makes_the_others_wait(tmp_path):
    run = judged(dlio_run(tmp_path, load=lambda rank, _: 0.012 if rank == 3 else 0.002))

    block_s = 39 * (0.112 + BETWEEN_S) + FIRST_S + 0.1 + BETWEEN_S
    assert run["shares_of_time"]["barrier, at least"] == pytest.approx(3 / 4 * 39 * 0.010 / block_s, rel=1e-4)
    assert run["worst"]["most_loading"]["rank"] == 3


def test_oversleeping_raises_all_but_the_nominal_au(tmp_path):
    honest, overslept = judged(dlio_run(tmp_path / "a")), judged(dlio_run(tmp_path / "b", slept=1.05))

    assert overslept["au"]["recomputed"] > honest["au"]["recomputed"]
    assert overslept["au"]["nominal"] < honest["au"]["nominal"] - 3
    assert (overslept["differences"], any("1.0500 x" in each for each in overslept["remarks"])) == ([], True)


def test_missing_ranks_and_epochs_are_named_with_what_cannot_be_recomputed(tmp_path, said):
    (dlio_run(tmp_path) / "2_output.json").unlink()
    edit(tmp_path / "1_output.json", lambda value: value.pop("3"))

    code, out, _ = said(tmp_path, "--json")
    (run,) = json.loads(out)["runs"]
    assert (code, run["missing"]["ranks"], run["missing"]["epochs"]) == (1, [2], [3])
    assert {"AU and samples/s of the run", "barrier"} <= run["missing"]["not_recomputed"].keys()
    assert (run["au"]["recomputed"], run["shares_of_time"]["barrier, at least"]) == (None, None)
    assert run["shares_of_time"]["nobody accounts for"] > 0
    assert run["worst"]["epoch"]["au"] == pytest.approx(run["au"]["published"], abs=1e-3)  # as published


def test_a_run_without_all_ranks_is_not_called_as_published(tmp_path, said):
    (dlio_run(tmp_path) / "2_output.json").unlink()

    code, out, _ = said(tmp_path)

    assert code == 1
    assert "unknown, because ranks or epochs are missing" in " ".join(out.split())


def test_what_the_rules_text_needs_and_lacks_is_named(tmp_path):
    edit(dlio_run(tmp_path) / "summary.json", lambda value: value.pop("num_files_train"))

    why = judged(tmp_path, step_s=0.1, batch=4)["missing"]["not_recomputed"]["AU by the rules' text"]

    assert why == "summary.json, or its start, end or num_files_train, is missing"


def test_a_minimum_above_100_percent_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["mlperf", str(tmp_path), "--minimum", "200"])

    assert ended.value.code == 2
    assert "'200' is not a percentage of at most 100" in capsys.readouterr().err


def test_as_many_missing_ranks_as_a_summary_may_name_are_one_range(tmp_path, said):
    """They would take hours if each of them were looked up among all in a new set."""
    edit(dlio_run(tmp_path, ranks=1) / "summary.json", lambda value: value.update(num_accelerators=200_000))

    assert "ranks without steps         1\N{EN DASH}199999" in said(tmp_path)[1]


def test_a_summary_alone_gives_what_needs_no_steps(tmp_path):
    for each in dlio_run(tmp_path).glob("*_output.json"):
        each.unlink()
    run = judged(tmp_path)
    (tmp_path / "overrides.yaml").write_text("- ++workload.train.total_training_steps=10\n")

    assert judged(tmp_path)["steps"] == [10]
    assert run["missing"]["ranks"] == [0, 1, 2, 3]
    assert (run["steps"], math.isnan(run["au"]["recomputed"])) == ([40], True)
    assert run["au"]["nominal"] > 80
    assert run["au"]["rules_text"] > 50


def test_steps_may_be_left_out_of_au_at_the_end_too(tmp_path):
    """AU is then that of the steps between."""
    folder = dlio_run(tmp_path)
    (folder / "overrides.yaml").write_text("- ++workload.output.metric.exclude_end_steps=1\n")

    step_s = 0.102 + BETWEEN_S
    assert judged(folder)["au"]["recomputed"] == pytest.approx(
        100 * 3.8 / (38 * step_s + 3 * BETWEEN_S - 1e-3), abs=1e-2
    )


def test_ranks_with_other_numbers_of_steps_have_no_barrier_in_common(tmp_path):
    def shorter(value):
        for key in ("load", "proc", "compute"):
            value["2"][key]["block1"].pop()

    edit(dlio_run(tmp_path) / "1_output.json", shorter)
    assert math.isnan(judged(tmp_path)["shares_of_time"]["barrier, at least"])


@pytest.mark.parametrize(("points", "differs"), [(0.0199, False), (0.0201, True), (-0.0199, False), (-0.0201, True)])
def test_a_figure_may_differ_by_two_hundredths_of_a_point(points, differs, tmp_path):
    def change(summary):
        metric = summary["metric"]
        metric["train_au_mean_percentage"] += points
        metric["train_au_percentage"] = [each + points for each in metric["train_au_percentage"]]

    for each in dlio_run(tmp_path, config="").glob("*_per_epoch_stats.json"):
        each.unlink()  # the ranks' own figures alone: to the last digit
    edit(tmp_path / "summary.json", change)
    assert bool(judged(tmp_path)["differences"]) == differs


def test_the_worst_passes_at_the_limit_and_blocks_weigh_by_their_steps():
    assert worst(pd.Series([91.0, 90.0]).rename_axis("epoch"), 90) == {"epoch": 1, "au": 90.0, "passes": True}
    blocks = pd.DataFrame({"rank": 0, "epoch": 1, "steps": [1, 3]} | {key: [0.0, 100.0] for key in FIGURES})
    assert by_rank_and_epoch(blocks)["au"].tolist() == [75.0]


def in_metric(key, value):
    return "summary.json", lambda summary: summary["metric"].update({key: value})


def in_block(name, key, change):
    def of(value):
        value["2"][key]["block1"] = change(value["2"][key]["block1"])

    return name, of


def in_stamps(name):
    return name, lambda value: value["2"]["block1"].update(end=value["2"]["end"])


TAMPERED = {
    "AU of the run": in_metric("train_au_mean_percentage", 97.2),
    "AU of epoch 1": in_metric("train_au_percentage", [97.2, 97.0, 97.0]),
    "the verdict is fail": in_metric("train_au_meet_expectation", "fail"),
    "samples/s": in_metric("train_throughput_mean_samples_per_second", 160.0),
    "AU of rank 0, epoch 2": in_block("0_output.json", "au", lambda au: au + 0.1),
    "AU of rank 1, epoch 2": in_block("1_output.json", "compute", lambda steps: [each * 1.002 for each in steps]),
    "rank 2, epoch 2: its AU and its samples/s": in_block("2_output.json", "throughput", lambda rate: rate * 1.01),
    "rank 3, epoch 2: its steps took": in_block("3_output.json", "proc", lambda steps: [each + 0.1 for each in steps]),
    "ranks have an epoch 4": ("0_output.json", lambda value: value.update({"4": value["3"]})),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("words", TAMPERED)
def test_a_tampered_figure_is_named_and_gives_exit_code_1(words, version, tmp_path, said):
    name, change = TAMPERED[words]
    edit(dlio_run(tmp_path, version) / name, change)

    code, out, _ = said(tmp_path, "--json")
    assert code == 1
    assert any(each.startswith(words) for each in json.loads(out)["runs"][0]["differences"])


@pytest.mark.parametrize(("version", "name"), [(1, "per_epoch_stats.json"), (3, "3_per_epoch_stats.json")])
def test_tampered_stamps_are_named(version, name, tmp_path):
    edit(dlio_run(tmp_path, version) / name, lambda value: value["2"]["block1"].update(end="2026-07-04T05:00:13.5"))
    run = judged(tmp_path)

    assert any(f"rank {int(version == 3) * 3}, epoch 2" in each for each in run["differences"])


@pytest.mark.parametrize(("late_s", "rate", "believed"), [(0.5, True, True), (0.5, False, False), (1.5, True, False)])
def test_the_au_of_a_rank_without_stamps_is_believed_if_its_rate_agrees(late_s, rate, believed, tmp_path):
    block_s, counted_s = 4.618, 4.018

    def later(value):
        value["2"]["au"]["block1"] *= counted_s / (counted_s + late_s)
        value["2"]["throughput"]["block1"] *= block_s / (block_s + late_s) if rate else 1

    edit(dlio_run(tmp_path, 1) / "1_output.json", later)
    assert any("rank 1, epoch 2" in each for each in judged(tmp_path)["differences"]) != believed


@pytest.mark.parametrize("config", [".", ".hydra", "configs", "dlio_config"])
def test_the_configuration_is_read_wherever_hydra_puts_it(config, tmp_path):
    folder = dlio_run(tmp_path, config=config, minimum=0.99)
    (folder / config / "overrides.yaml").write_text("- workload=x\n- ++workload.reader.batch_size=9\n")
    text = (folder / config / "config.yaml").read_text()
    (folder / config / "config.yaml").write_text(text.replace("time: 0.1", "time:\n      mean: 0.1"))
    run = judged(folder)

    assert (run["batch"], run["step_s"], run["minimum"]) == (4, 0.1, 99)
    assert {*run["sources"].values()} == {"configured"}


def test_without_a_configuration_the_workload_is_known_by_its_name_or_its_step(tmp_path):
    folder = dlio_run(tmp_path, batch=7, step_s=0.162, slept=1.002, config="")
    sources = judged(folder)["sources"]
    assert sources == {"step_s": "recorded", "batch": "by samples/s", "minimum": "of unet3d_b200, by its step"}
    assert judged(folder, batch=7, minimum=50)["sources"]["minimum"] == "given"

    (folder / ".hydra").mkdir()
    (folder / ".hydra" / "overrides.yaml").write_text("- workload=retinanet_b200\n- ++workload.reader.batch_size=7\n")
    run = judged(folder)
    assert (run["sources"]["batch"], run["sources"]["minimum"]) == ("configured", "of retinanet_b200")


def test_the_workloads_are_those_that_feed_emulates():
    files = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / "conf" / "accelerator").glob("*.yaml")}
    defined = {name: own for name, own in files.items() if "source" in own}

    assert len(defined) > 10
    assert {*definitions()} == {*defined, "unet3d"}
    for name, own in defined.items():
        assert definitions()[name] == pytest.approx((own["batch"], own["step_s"], 100 * own["minimum"])), name


def test_of_two_workloads_whose_steps_are_near_the_nearer_one_is_taken(tmp_path):
    folder = dlio_run(tmp_path, step_s=1.3604, config="", ranks=1, epochs=1)

    assert judged(folder)["sources"]["minimum"] == "of unet3d, by its step", "flux_b200 has a step of 1.35 s"


def test_an_unknown_workload_says_which_option_is_missing(tmp_path, said):
    code, out, _ = said(dlio_run(tmp_path, config=""))

    assert code == 0
    assert "--minimum PERCENT" in out
    assert "99 %, given" in said(tmp_path, "--minimum", 99)[1]


def test_every_output_says_that_it_is_no_result(tmp_path, said):
    folder = dlio_run(tmp_path / "run")

    assert NOTICE in said(folder, "--out", tmp_path / "out")[1]
    with (tmp_path / "out" / "mlperf-au.csv").open(newline="") as file:
        rows = [*csv.DictReader(file)]
    assert len(rows) == 12
    assert {row["notice"] for row in rows} == {NOTICE}
    assert json.loads(said(folder, "--json")[1])["notice"] == NOTICE
    assert (tmp_path / "out" / "mlperf-au.png").stat().st_size > 10_000


def test_ranks_below_the_limit_are_drawn_in_another_way(tmp_path):
    folder = dlio_run(tmp_path, load=lambda _, epoch: 0.02 if epoch == 2 else 0.002)
    frame = judged(folder)["cells"].assign(run="a", minimum=90.0, published=95.0)
    (axes,) = au_over_epochs(frame, "title", "words").axes

    points = {line.get_marker(): {*line.get_ydata()} for line in axes.lines if line.get_linestyle() == "None"}
    assert (min(points["o"]) > 90, max(points["v"]) < 90) == (True, True)


def test_several_folders_stand_beside_each_other_and_a_bad_one_is_named_alone(tmp_path, said):
    for name in ("a", "b", "c", "d"):
        dlio_run(tmp_path / name / "run", ranks=2, epochs=1)

    code, out, error = said(*(tmp_path / name / "run" for name in "abcd"), tmp_path)
    assert (code, all(f"{name}/run" in out for name in "abcd")) == (2, True)
    assert error.count("error: ") == 1
    assert "no output folder of DLIO" in error


DAMAGE = {
    "more than 40 steps": lambda path: edit(path, lambda value: value["2"]["load"]["block1"].extend([0.1] * 10)),
    "is no regular file": lambda path: (path.unlink(), path.symlink_to("1_output.json")),
    "no regular file": lambda path: (path.unlink(), os.mkfifo(path)),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "malformed": lambda path: path.write_bytes(path.read_bytes().replace(b"0.1", b"0.1x", 1)),
    "more than 268435456 bytes": lambda path: os.truncate(path, 1 << 29),
    "values of load / proc / compute": lambda path: edit(path, in_block("", "proc", lambda each: each[:-1])[1]),
    "a step of -0.1 s": lambda path: edit(path, in_block("", "load", lambda each: [-0.1, *each[1:]])[1]),
    "Expected `float`": lambda path: edit(path, in_block("", "load", lambda each: ["x", *each[1:]])[1]),
    "Expected `object`": lambda path: edit(path, lambda value: value.update({"2": []})),
    "missing required field `compute`": lambda path: edit(path, lambda value: value["2"].pop("compute")),
    "a rank 7, and 4 accelerators": lambda path: path.rename(path.with_name("7_output.json")),
    "recursion": lambda path: path.write_text('{"1":' + "[" * 100_000),
    "utf-8": lambda path: path.write_bytes(b'{"\xff": 1}'),
}


@pytest.mark.parametrize("words", DAMAGE)
def test_a_damaged_rank_is_one_clear_error(words, tmp_path, said, monkeypatch):
    monkeypatch.setattr(dlio_folder, "MOST_STEPS", 40)
    DAMAGE[words](dlio_run(tmp_path) / "3_output.json")

    code, out, error = said(tmp_path)
    assert (code, out, error.count("error: ")) == (2, "", 1)
    assert words in error
    assert "3_output.json" in error or "rank 7" in error


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("summary.json", lambda value: value.update(num_accelerators="x"), "num_accelerators"),
        ("summary.json", lambda value: value.update(end="2001-01-01"), "not after its start"),
        ("summary.json", lambda value: value["metric"].update(train_au_percentage={}), "train_au_percentage"),
        ("0_per_epoch_stats.json", lambda value: value["1"]["block1"].update(end="soon"), "no two times"),
        ("0_per_epoch_stats.json", lambda value: value.update({"1": 3}), "expected `object`"),
    ],
)
def test_what_contradicts_itself_is_one_clear_error(name, change, words, tmp_path, said):
    edit(dlio_run(tmp_path) / name, change)

    code, _, error = said(tmp_path)
    assert (code, words in error, name in error) == (2, True, True)


def test_memory_is_that_of_a_few_files_however_many_ranks_there_are(tmp_path):
    dlio_run(tmp_path, ranks=12, epochs=2, steps=6000)
    size = (tmp_path / "0_output.json").stat().st_size
    tracemalloc.start()
    read_folder(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 3 * size
