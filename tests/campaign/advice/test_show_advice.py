"""The advice of `python -m campaign show` as its user speaks it."""

import json
import shlex
import subprocess
from types import SimpleNamespace

import pytest

from campaign.advice import account
from campaign.advice.findings import Prediction
from campaign.cli import show
from campaign.errors import CampaignError, EnvironmentFaultError, UsageError

READ = ("threads=1", "benchmark.preprocess=false")


@pytest.fixture
def commands(leave, disk, monkeypatch):
    """A function: from now on commands are run by leaving the record that they would; a list of them."""

    def answer(**figures):
        given = []

        def run(argv, **_):
            argv = argv[argv.index("campaign") :]
            if argv[1] == "report":
                return SimpleNamespace(returncode=0)
            given.append(argv[1:])
            if figures:
                words = [word for word in argv[1:] if not word.startswith("campaign_dir=")]
                leave(*words, **figures)
            return SimpleNamespace(returncode=0)

        monkeypatch.setattr(subprocess, "run", run)
        return given

    return answer


def told(capsys, *words):
    """The exit code, and the advice on a cell."""
    code = show.main([*map(str, words), "--json"])
    return code, json.loads(capsys.readouterr().out)["advice"]


def test_each_finding_has_its_evidence_its_command_and_what_is_predicted(leave, disk, folder, capsys):
    cell = leave(*READ)["cell"]["id"]

    assert show.main([cell, str(folder.root)]) == 0
    out = capsys.readouterr().out
    _, found = told(capsys, cell, folder.root)

    assert "32 images/s, median of 3 runs" in out.splitlines()
    for each in found["findings"]:
        assert each["test"]["command"] in out
        assert f"predicted {each['test']['value']:.4g} {each['test']['unit']} (" in out
        assert {"what", "value", "unit", "source"} == set(each["evidence"][0])
    assert "not decided: metadata" in out
    assert "profile.posix=counters" in found["not_decided"][0]["command"]
    assert not folder.advice.exists()


def test_a_test_runs_the_very_commands_and_says_what_came(leave, commands, folder, capsys):
    cell = leave(*READ)["cell"]["id"]
    given = commands(images_per_s=60.0, read_mb_per_s=1.0)

    code, found = told(capsys, cell, folder.root, "--test")

    assert [shlex.join(["python", "-m", "campaign", *each]) for each in given] == [
        each["test"]["command"] for each in found["findings"]
    ]
    assert {each["rule"]: each["holds"] for each in found["tests"]} == {"few_threads": True, "small_reads": False}
    assert code == 1
    assert show.main([cell, str(folder.root)]) == 0
    out = capsys.readouterr().out
    assert "measured 60 (59.4 to 61.2, 3 runs): holds" in out
    assert "measured 1 (0.99 to 1.02, 3 runs): FAILED" in out
    assert "small_reads has FAILED in 1 of 1 test of this campaign" in out


def test_a_failure_is_shown_with_other_cells_too(leave, commands, folder, capsys):
    cell = leave(*READ)["cell"]["id"]
    commands(images_per_s=1.0, read_mb_per_s=15.0)
    told(capsys, cell, folder.root, "--test")
    other = leave(*READ, "batch_size=32")["cell"]["id"]

    show.main([other, str(folder.root)])

    assert f"tested before: {cell}: " in capsys.readouterr().out


def test_what_was_predicted_of_a_cell_is_shown_though_its_rule_does_not_hold_any_more(leave, folder, capsys):
    cell = leave(*READ)["cell"]["id"]
    account.record_prediction(
        folder, "device", Prediction("wall_s", "s", 6.5, 5.25, 7.75), (cell, "gone"), ("command", 32.0)
    )

    show.main([cell, str(folder.root)])

    day = account.load_predictions(folder)[0]["utc"][:10]
    told = f"tested before: {cell}: {day} device predicted 6.5 s (5.25 to 7.75) from 32"
    assert f"{told}; not decided: not measured yet" in " ".join(capsys.readouterr().out.split())


def test_a_prediction_is_written_down_before_it_is_tested(leave, commands, folder, capsys):
    cell = leave(*READ)["cell"]["id"]
    commands()

    code, _ = told(capsys, cell, folder.root, "--test")

    assert code == 1
    assert {each["why_not"] for each in account.load_predictions(folder)} == {"not measured yet"}


def test_what_must_be_made_by_hand_is_not_run(leave, commands, folder, capsys):
    cell = leave("cache=warm", counts="invalid", quota_cores=0.4, throttled_s=6.0, cpu_s=1.0)["cell"]["id"]
    given = commands()

    code, found = told(capsys, cell, folder.root, "--test")

    assert (found["findings"][0]["by_hand"], found["valid"]) == (True, False)
    assert found["findings"][0]["test"]["command"].endswith("-by-hand")
    assert not [words for words in given if str(words).endswith("-by-hand")]
    assert code == 1


def test_what_cannot_be_advised_says_why_and_its_runs_are_shown_all_the_same(leave, folder, capsys):
    baseline = leave("benchmark=baseline")["cell"]["id"]
    none = leave("threads=2", runs=0)["cell"]["id"]
    odd = leave("threads=3", elapsed_s=0)["cell"]["id"]
    for cell, error, why in (
        (baseline, UsageError, "does not read images on one node"),
        (none, CampaignError, "has no run with metrics"),
        (odd, EnvironmentFaultError, "is damaged: it cannot be judged: ZeroDivisionError"),
        ("nothing", UsageError, "no recorded cell"),
    ):
        with pytest.raises(error, match=why):
            show.main([cell, str(folder.root), "--test"])
    capsys.readouterr()
    for cell in (baseline, none):
        show.main([cell, str(folder.root)])
        assert capsys.readouterr().out.splitlines()[-1].startswith(f"no advice: {cell} ")
        assert told(capsys, cell, folder.root)[1] is None
