"""Results of others, odd words, refusals: nothing hangs, acts on the terminal or is left behind."""

import ast
import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from analysis.records.read_records import UnreadableError, load_record
from campaign.__main__ import run_guarded
from campaign.cells import cell_plan, record
from campaign.errors import CampaignError
from jobs.benchmarks import accelerator
from jobs.errors import NoGpuError
from jobs.judging.judge import CampaignJudge
from jobs.model.conduct import SBATCH_TEXTS
from jobs.terminal import visible
from tests.campaign.command_line import TINY
from tests.campaign.work_lists import slurm_conduct, walk, work_list
from tests.jobs.odd_json import ODD, changed

CAMPAIGN = Path(__file__).parents[2] / "campaign"
_PRINTERS = {"console.py", "__main__.py", "help.py", "measure.py", "reproduce.py", "node.py"}  # last: our own words


@pytest.fixture
def results(work, folder, capsys):
    """A campaign folder with one finished cell; its record."""
    work["cells"] = work["cells"][:1]
    walk(folder, work)
    path = folder.record(work["cells"][0]["id"])
    campaign = json.loads(folder.marker.read_text())
    asked = {"token": "first", "utc": "2026-11-21T09:00:00.000Z", "words": ["-m"], "order_seed": 0}
    campaign["requests"] = [asked | {"cells": [path.parent.name]}]
    folder.marker.write_text(json.dumps(campaign))
    capsys.readouterr()
    return path


def _said(capsys, *words):
    code = run_guarded([*map(str, words)])
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return code, said.out + said.err


@given(change=st.tuples(st.booleans(), st.integers(0, 400), ODD))
def test_an_odd_value_anywhere_is_shown_or_refused_by_its_key(results, folder, cells, change):
    written = results.read_text()
    marker = folder.marker.read_text()
    in_record, number, by = change
    path = results if in_record else folder.marker
    odd = changed(json.loads(path.read_text()), number, by)
    assume(odd is not None)
    path.write_text(json.dumps(odd))

    try:
        for words in (["status"], ["status", "--json"], ["show", results.parent.name]):
            assert run_guarded([*words, str(folder.root)]) in (0, 1, 2, 3)
        with contextlib.suppress(CampaignError):
            cell_plan.make_plan(*cells, folder)
        recorded, fault = record.read_or_fault(results)
        assert recorded or str(results) in fault
        with contextlib.suppress(UnreadableError):
            load_record(results, CampaignJudge())
    finally:
        results.write_text(written)
        folder.marker.write_text(marker)


BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
FORGED = "".join(f"{each}FORGED" for each in BREAKS)
CONTROL = "\x1b]0;owned\x07\x1b[2J\u202e"


@pytest.mark.parametrize("bad", [FORGED, CONTROL], ids=["line breaks", "control sequences"])
def test_a_text_of_others_makes_no_line_and_no_control_sequence(bad, results, folder, capsys):
    written = json.loads(results.read_text())
    for run in written["runs"]:
        run |= {"status": "failed", "end": {"code": "no_data", "words": bad}, "log": bad, "log_tail": bad}
        run |= {"unreadable": [{"file": bad, "error": bad}]}
    written |= {"status": "ended"}
    written["campaign"]["words"] = [bad]
    written["cell"]["settings"]["storage"]["name"], written["dataset"]["path"] = bad, bad
    results.write_text(json.dumps(written))

    said = [_said(capsys, *words, folder.root)[1] for words in (["status"], ["show", results.parent.name])]
    assert run_guarded(["status", "--x", bad]) == 2
    said.append(_said(capsys, "status", bad)[1])

    assert all("FORGED" in text or "\\x1b]0;owned" in text for text in said)
    assert not [line for text in said for line in text.splitlines() if line.startswith("FORGED")]
    assert not set(CONTROL[0] + "\x07\u202e").intersection("".join(said))


@pytest.mark.parametrize("words", [["status", "\x1b[2J"], ["\x1b[2J"], ["status", "--\x1b[2J"]])
def test_an_odd_word_is_echoed_as_text(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_guarded(words) == 2

    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    assert "\\x1b" in said.err


@given(text=st.text())
def test_what_is_visible_is_printable_and_says_all(text):
    shown = visible(text)

    assert all(each.isprintable() or each == "\t" for each in shown)
    assert shown == text or len(shown) > len(text)


def test_one_module_prints():
    for source in CAMPAIGN.rglob("*.py"):
        if source.name in _PRINTERS or source.parent.name == "worker":  # the worker's go to a log
            continue
        calls = [node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Call)]
        printed = [ast.unparse(call) for call in calls if ast.unparse(call.func) == "print"]

        assert [call for call in printed if "json.dumps" not in call] == [], source


@pytest.mark.parametrize(
    "words",
    [
        ["storage.root=/no/such/folder"],
        ["dataset=folder", "dataset.path=/no/such/folder"],
        ["benchmark=alexnet", "checkpoint=local", "checkpoint.every=2", "checkpoint.root=/no/such/folder"],
    ],
)
def test_a_refusal_leaves_nothing_behind(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    code, _ = _said(capsys, *TINY, "cluster=local", *words)

    assert code in (2, 3)
    assert not (tmp_path / "results").exists()


def test_a_gpu_that_is_not_there_is_found_out_before_anything_starts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")

    code, said = _said(capsys, *TINY, "cluster=local", "benchmark=alexnet", "accelerator=gpu")

    assert code == 3
    assert NoGpuError().message in said
    assert not any(tmp_path.iterdir())


def test_other_accelerators_are_always_possible(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    for name in ("auto", "cpu", "emulated"):
        accelerator.require_possible(name)


def test_a_secret_of_slurms_words_is_in_no_work_list(cells, folder):
    made, conduct = cells
    secret = {**dict.fromkeys(SBATCH_TEXTS, "SECRET"), "modules": ["SECRET"], "prelude": ["SECRET"]}
    secret["extra"] = {"comment": "SECRET"}
    site = {**conduct["site"], "account": "SECRET"}

    work = work_list(folder, made, {**slurm_conduct(conduct, **secret), "site": site}, "slurm")

    assert "SECRET" not in json.dumps(work)


def test_a_folder_of_a_testbed_is_one_line(capsys):
    code, said = _said(capsys, "testbed", "status", "--folder", "/tmp/a\nb")  # noqa: S108

    assert code == 2
    assert "--folder" in said


def test_a_folder_of_a_testbed_makes_no_other_folder(tmp_path, capsys):
    _, said = _said(capsys, "testbed", "up", "--dry-run", "model=rates", "--folder", tmp_path / "new" / ".." / "bed")

    assert f"mkdir -p -m 755 {tmp_path}/bed\n" in said
    assert "/new/" not in said


@pytest.mark.parametrize(
    "storage", [None, "x", {"name": []}, {"name": "x", "root": -1}, {"name": "x", "root": "~nobody-at-all/x"}]
)
def test_settings_of_another_shape_end_no_verb_with_a_traceback(results, folder, capsys, storage, monkeypatch):
    monkeypatch.chdir(folder.root.parent)
    written = json.loads(results.read_text())
    written["cell"]["settings"]["storage"] = storage
    results.write_text(json.dumps(written))

    for words in (["clean", f"campaign_dir={folder.root}"], ["show", results.parent.name, folder.root]):
        code, _ = _said(capsys, *words)

        assert code in (0, 1, 2, 3)
