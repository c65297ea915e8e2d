"""Results of others, odd words, refusals: nothing hangs, acts on the terminal or is left behind."""

import contextlib
import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from analysis.records.read_records import UnreadableError, load_record
from campaign.__main__ import run_guarded
from campaign.cells import cell_plan, record
from campaign.errors import CampaignError
from jobs.benchmarks import accelerator
from jobs.judging.judge import CampaignJudge
from jobs.model.conduct import SBATCH_TEXTS
from jobs.terminal import visible
from tests.campaign.work_lists import slurm_conduct, walk, work_list
from tests.jobs.odd_json import ODD, changed


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


@given(text=st.text())
def test_what_is_visible_is_printable_and_says_all(text):
    shown = visible(text)

    assert all(each.isprintable() or each == "\t" for each in shown)
    assert shown == text or len(shown) > len(text)


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
