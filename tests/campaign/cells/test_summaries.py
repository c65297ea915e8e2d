"""The cache of what `status` has found: it saves the reading, and never changes what is shown."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.cells import record, summaries
from campaign.cells.cell import make_cell
from campaign.cells.folder import opened
from campaign.cells.summaries import FILE, Summaries
from campaign.cluster.states import states
from jobs.system import files
from tests.campaign.fake_template import TERMS, figures
from tests.campaign.on_disk import leave_record
from tests.campaign.work_lists import compose

LOOSE = {**TERMS, "min_valid_runs": 1, "checks": {**TERMS["checks"], "spread_max": 0.9, "other_cpu_max": 9.0}}
PLACE = {"host": "n1", "conditions": {"process": {}, "machine": {}, "storages": {}}}


@pytest.fixture(scope="module")
def named():
    """Two cells, and the baseline that bounds the first one."""
    baseline = ["benchmark=baseline", "benchmark.access=random_read", "threads=1"]
    return [make_cell(compose(*words)) for words in (["threads=1"], ["threads=2"], baseline)]


@pytest.fixture
def eager(monkeypatch):
    """Remember every record at once, however few there are and however new they are."""
    monkeypatch.setattr(summaries, "WORTH", 1)
    monkeypatch.setattr(summaries, "_SETTLED_NS", -(10**12))


def leave(folder, cell, rate=200):
    """Leave a record with five runs of so many MB/s; at 300 others were busy, and 10 is less than honest ones read."""
    run = {**figures(), "read_mb_per_s": rate, "other_cpu": 2.0 if rate == 300 else 0.0}
    leave_record(folder, cell, *[run] * 5, status="done", provenance=PLACE, data={"checksum": "c"})


def computed(folder, requests):
    """What is shown where nothing is remembered."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Summaries, "of", lambda *_: None)
        patch.setattr(Summaries, "save", lambda _: None)
        return states(folder, {"requests": requests})


def change(folder, cell, requests, what, rate):
    """Make one of the changes that a campaign, or somebody, may make between two looks."""
    if what == "measure":
        leave(folder, cell, rate)
    elif what == "ask":
        requests.append({"cells": [cell.id], "terms": LOOSE if rate == 300 else TERMS})
    elif what == "forget":
        requests.clear()
    elif what == "remove":
        folder.record(cell.id).unlink(missing_ok=True)
    elif what == "spoil" and folder.cell(cell.id).is_dir():
        folder.record(cell.id).write_text("{")
    elif what == "link" and folder.cell(cell.id).is_dir() and not folder.cell(cell.id).is_symlink():
        elsewhere = folder.cell(cell.id).rename(folder.root / f"elsewhere-{len([*folder.root.iterdir()])}")
        folder.cell(cell.id).symlink_to(elsewhere)
    elif what == "unlink" and folder.cell(cell.id).is_symlink():
        folder.cell(cell.id).unlink()
    elif what == "cut" and (folder.root / FILE).exists():
        (folder.root / FILE).write_bytes((folder.root / FILE).read_bytes()[:rate])


_CHANGES = st.tuples(
    st.sampled_from(["measure", "measure", "measure", "ask", "forget", "remove", "spoil", "link", "unlink", "cut"]),
    st.integers(0, 2),
    st.sampled_from([10, 200, 300]),
)


@pytest.mark.usefixtures("eager")
@given(changes=st.lists(_CHANGES, min_size=1, max_size=8))
def test_what_is_remembered_is_what_would_be_found_whatever_changed(named, changes):
    with tempfile.TemporaryDirectory() as place:
        folder, requests = opened(Path(place, "results"))[0], []
        for cell, rate in zip(named, (200, 300, 200), strict=True):
            leave(folder, cell, rate)
        for what, which, rate in changes:
            shown = states(folder, {"requests": requests})
            assert shown == states(folder, {"requests": requests}) == computed(folder, requests)
            try:
                change(folder, named[which], requests, what, rate)
            except OSError:  # to measure behind a link is refused
                assert folder.cell(named[which].id).is_symlink()
        assert states(folder, {"requests": requests}) == computed(folder, requests)


@pytest.mark.usefixtures("eager")
def test_a_record_that_is_as_it_was_is_not_read_again_and_one_that_is_not_alone_is(folder, named, monkeypatch):
    for cell in named:
        leave(folder, cell)
    first = states(folder, {"requests": []})
    read, real = [], record.read
    monkeypatch.setattr(record, "read", lambda path: (read.append(path.parent.name), real(path))[1])

    assert (states(folder, {"requests": []}), read) == (first, [])
    leave(folder, named[1])
    assert (states(folder, {"requests": []}), read) == (first, [named[1].id, named[2].id])  # it, and what judges it
    del read[:]
    leave(folder, named[2])  # the baseline: all others are judged by it
    assert states(folder, {"requests": []}) == first
    assert set(read) == {cell.id for cell in named}


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("changed", "then"),
    [(("ask", 1, 300), ["done", "done", "done"]), (("measure", 2, 10), ["invalid", "invalid", "done"])],
)
def test_other_terms_and_another_baseline_change_what_is_shown_of_a_record_that_is_as_it_was(
    folder, named, changed, then
):
    requests, (what, which, rate) = [], changed
    for cell, first in zip(named, (200, 300, 200), strict=True):
        leave(folder, cell, first)
    before = states(folder, {"requests": requests})
    change(folder, named[which], requests, what, rate)

    after = states(folder, {"requests": requests})

    assert [before[cell.id]["status"] for cell in named] == ["done", "invalid", "done"]
    assert [after[cell.id]["status"] for cell in named] == then


@pytest.mark.parametrize(("worth", "settled_ns"), [(4, -(10**12)), (1, 10**12)])
def test_few_records_are_not_remembered_nor_those_that_may_be_written_again_within_a_tick(
    folder, named, monkeypatch, worth, settled_ns
):
    monkeypatch.setattr(summaries, "WORTH", worth)
    monkeypatch.setattr(summaries, "_SETTLED_NS", settled_ns)
    for cell in named:
        leave(folder, cell)

    assert len(states(folder, {"requests": []})) == 3

    kept = json.loads((folder.root / FILE).read_text())["cells"] if (folder.root / FILE).exists() else {}
    assert kept == {}


def _foreign(_path, patch):
    patch.setattr(summaries.os, "geteuid", lambda: 12345)


def _full(path, patch):
    def write_json(*_, **__):
        raise OSError(28, "No space left on device")

    path.unlink()
    patch.setattr(files, "write_json", write_json)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    "spoil",
    [
        lambda path, _: path.write_text("[]"),
        lambda path, _: path.write_text(path.read_text().replace('"of": "', '"of": "0')),
        lambda path, _: path.write_text(path.read_text().replace('"done"', '"holy"')),
        lambda path, _: path.rename(path.with_name("other")) and path.symlink_to(path.with_name("other")),
        lambda path, _: path.unlink() or path.mkdir(),
        _foreign,
        _full,
    ],
)
def test_a_cache_that_is_damaged_or_foreign_or_cannot_be_written_is_no_error_and_is_not_believed(
    folder, named, monkeypatch, spoil
):
    for cell in named:
        leave(folder, cell)
    first = states(folder, {"requests": []})
    spoil(folder.root / FILE, monkeypatch)

    assert states(folder, {"requests": []}) == first == computed(folder, [])
    assert {state["status"] for state in first.values()} == {"done"}


@pytest.mark.usefixtures("eager")
def test_a_changed_program_believes_nothing_of_what_another_one_has_found(folder, named, monkeypatch):
    leave(folder, named[0])
    states(folder, {"requests": []})
    monkeypatch.setattr(summaries, "_source", lambda: [("jobs/checks.py", 1, 1)])

    assert Summaries(folder, []).of(named[0].id) is None
