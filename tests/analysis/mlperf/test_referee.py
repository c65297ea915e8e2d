"""`python -m analysis mlperf`: what it recomputes of runs whose steps are known, and of a published one."""

import json
import math
from pathlib import Path

import pandas as pd
import pytest
import yaml

from analysis.__main__ import main
from analysis.mlperf.dlio_folder import read_folder
from analysis.mlperf.referee import COUNTINGS, FIGURES, Definition, by_rank_and_epoch, definitions, judge, worst
from tests.analysis.mlperf.dlio_factory import BETWEEN_S, FIRST_S, dlio_run, edit

ROOT = Path(__file__).parents[3]
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


def test_a_run_that_ends_before_its_data_is_not_counted_as_the_data(tmp_path):
    """By the rules' text all data are read in each epoch."""
    whole = judged(dlio_run(tmp_path))["au"]["rules_text"]
    edit(tmp_path / "summary.json", lambda value: value.update(num_files_train=10 * value["num_files_train"]))

    assert judged(tmp_path)["au"]["rules_text"] == pytest.approx(whole)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_starved_rank_is_named_though_the_mean_passes(version, tmp_path):
    """Without barriers, as where ranks hand in their own work; it ends its blocks half a second after the others."""
    folder = dlio_run(tmp_path, version, load=lambda rank, _: 0.015 if rank == 3 else 0.002, barrier=False)
    run = judged(folder)

    assert (run["verdict"], run["differences"]) == ("success", [])
    assert (run["worst"]["rank"]["rank"], run["worst"]["rank"]["passes"]) == (3, False)
    assert run["worst"]["most_loading"]["rank"] == 3
    assert math.isnan(run["shares_of_time"]["barrier, at least"])


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
