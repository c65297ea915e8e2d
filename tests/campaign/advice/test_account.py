"""What was predicted is kept, held against what was measured, and stays."""

import json
import re

import numpy as np
import pytest

from analysis.page import evidence
from campaign.advice import account
from campaign.advice.findings import VERSION, Prediction
from campaign.cells.verdicts import Verdicts
from campaign.errors import EnvironmentFaultError
from tests.campaign.advice.conftest import LIMITS, LOOSE, verdicts_of

PREDICTED = Prediction("images_per_s", "images/s", 60.0, 50.0, 70.0)


@pytest.fixture
def promised(folder, leave):
    """The record of a cell; eight threads were predicted to give it 50 to 70 images/s."""
    origin = leave("threads=1")
    tested = leave("threads=8")["cell"]["id"]
    folder.record(tested).unlink()
    account.record_prediction(folder, "few_threads", PREDICTED, (origin["cell"]["id"], tested), ("the command", 32.0))
    return origin


def test_all_of_a_prediction_is_written_down_before_it_is_tested(promised, folder, leave):
    tested = leave("threads=8", runs=4, images_per_s=65.0)["cell"]["id"]

    (kept,) = account.load_predictions(folder)
    (settled,) = account.judge_predictions(verdicts_of(folder), promised)

    told = {"rules": VERSION, "rule": "few_threads", "cell": promised["cell"]["id"], "tested": tested}
    told |= {"command": "the command", "before": 32.0, "figure": "images_per_s", "unit": "images/s", "predicted": 60.0}
    told |= {"low": 50.0, "high": 70.0, "known": False}
    assert kept == told | {"utc": kept["utc"], "measured": None, "holds": None, "why_not": "not measured yet"}
    rates = [65.0 * factor for factor in (1, 0.99, 1.02, 1.01)]
    measured = {"median": np.median(rates), "min": min(rates), "max": max(rates), "runs": 4}
    assert settled == kept | {"measured": pytest.approx(measured), "holds": True, "why_not": None}


@pytest.mark.parametrize("figure", ["started_utc", "trace"])
def test_a_figure_that_is_no_number_is_not_measured(figure, promised, folder, leave):
    leave("threads=8", trace={"file": "trace-1.csv"})
    kept = json.loads(folder.advice.read_text())
    kept["tests"][0]["figure"] = figure
    folder.advice.write_text(json.dumps(kept))

    (judged,) = account.judge_predictions(verdicts_of(folder), promised)
    assert judged["why_not"] == f"the runs of the test have no metric {figure}"


@pytest.mark.parametrize(("rate", "holds"), [(65.0, True), (50.0, True), (49.99, False), (70.0, True), (70.01, False)])
def test_a_prediction_holds_within_its_interval_and_stays_what_it_was(rate, holds, promised, folder, leave):
    leave("threads=8", images_per_s=rate)
    (found,) = account.judge_predictions(verdicts_of(folder), promised)
    leave("threads=8", images_per_s=60.0)  # measured anew

    assert (found["holds"], found["measured"]["median"], found["known"]) == (holds, rate, False)
    assert account.judge_predictions(verdicts_of(folder), promised) == account.load_predictions(folder) == [found]


@pytest.mark.parametrize(("rate", "holds"), [(60.0, True), (40.0, False), (50.0, None), (69.9, None), (80.0, False)])
def test_an_unstable_cell_decides_only_if_all_its_runs_lie_on_one_side(rate, holds, promised, folder, leave):
    tested = leave("threads=8", images_per_s=rate)["cell"]["id"]  # which scatters by 3 %
    strict = {**LOOSE, "checks": {**LIMITS, "spread_max": 0.01}}

    (found,) = account.judge_predictions(Verdicts(folder, strict), promised)

    assert found["holds"] is holds
    assert (found["measured"] is None) == (holds is None)
    if holds is None:
        assert found["why_not"].startswith("unstable: (max - min) / median of 3 measured runs is ")
        assert found["why_not"].endswith(f"`show {tested}` names the command, add redo=true")


@pytest.mark.parametrize(
    ("figures", "why"),
    [(None, "not measured yet"), ({"counts": "invalid"}, "invalid: 0 of 3 measured runs valid, 3 needed; cold: "),
     ({"images_per_s": "none"}, "is damaged: it cannot be judged: KeyError 'images_per_s'"),
     ({"other_cpu": 1.9}, "other programs used 1.9 of 2 processors")],
)  # fmt: skip
def test_what_was_not_measured_is_open_and_says_why(figures, why, promised, folder, leave):
    if figures:
        made = leave("threads=8", **figures)
        path = folder.record(made["cell"]["id"])
        text = json.loads(path.read_text())
        for run in text["runs"]:
            if run["images_per_s"] == "none":
                del run["images_per_s"]
        path.write_text(json.dumps(text))

    (found,) = account.judge_predictions(verdicts_of(folder), promised)

    assert (found["holds"], found["measured"]) == (None, None)
    assert why in found["why_not"]
    assert account.load_predictions(folder)[0]["why_not"] == "not measured yet"


def test_a_training_on_processors_is_not_settled_beside_others_and_says_what_to_measure_again(folder, leave):
    words = ("benchmark=alexnet", "accelerator=cpu")
    origin = leave(*words, accelerator="cpu")
    tested = leave(*words, "benchmark.control=no_io", accelerator="cpu", other_cpu=1.9, wall_s=9.0)["cell"]["id"]
    predicted = Prediction("wall_s", "s", 2.0, 1.0, 3.0)
    account.record_prediction(folder, "input", predicted, (origin["cell"]["id"], tested), ("the command", 10.0))

    (found,) = account.judge_predictions(verdicts_of(folder), origin)

    why = f"other programs used 1.9 of 2 processors: measure again without them: `show {tested}` names the command"
    why += ", add redo=true"
    assert (found["holds"], found["why_not"]) == (None, why)


def test_a_prediction_of_what_had_been_measured_says_so(folder, leave):
    origin, tested = (leave(f"threads={threads}")["cell"]["id"] for threads in (1, 8))

    account.record_prediction(folder, "few_threads", PREDICTED, (origin, tested), ("the command", 32.0))

    assert account.load_predictions(folder)[0]["known"]


@pytest.mark.parametrize(("rate", "told"), [(60.0, "holds"), (49.0, "FAILED"), (None, "not decided: not measured yet")])
def test_the_report_reads_what_was_kept(rate, told, promised, folder, leave):
    if rate:
        leave("threads=8", images_per_s=rate)
    account.judge_predictions(verdicts_of(folder), promised)

    shown = evidence.prediction_table(folder.root)

    assert f"<td>few_threads</td><td>{told}</td>" in re.sub(' class="[a-z]+"', "", shown)
    assert f"{int(rate is not None)} predictions were tested" in shown


@pytest.mark.parametrize("text", ['{"schema": 1, "tests": [{"rule": "x"}]}'])
def test_an_account_that_is_none_is_named_in_the_report(text, folder):
    assert evidence.prediction_table(folder.root) == ""
    folder.advice.write_text(text)
    assert "advice.json cannot be read" in evidence.prediction_table(folder.root)


@pytest.mark.parametrize("text", ['{"schema": 9, "tests": []}', "{"])
def test_an_account_that_cannot_be_read_is_named_and_left(text, folder):
    folder.advice.write_text(text)

    with pytest.raises(EnvironmentFaultError, match="advice"):
        account.load_predictions(folder)
    assert folder.advice.read_text() == text
