"""Recorded numbers are not repeated for data, or an emulated storage, that changed after the runs."""

import pytest

from campaign.cells.cell import make_cell
from campaign.errors import UsageError
from campaign.storage import unchanged
from campaign.storage.datasets import list_own_files
from jobs.judging.judge import CampaignJudge
from jobs.system.layers import BOUNDS
from tests.campaign.on_disk import leave_record
from tests.campaign.work_lists import compose

LIMITS = dict.fromkeys(BOUNDS) | {"read_mb_per_s": 100.0}
BEFORE = {
    "name": "ssd",
    **LIMITS,
    "model": {"kind": "flash", "rpm": 1},
    "expected": {"mb_per_s": 90.0, "ceiling_mb_per_s": 99.0},
}
NOW = {name: fact for name, fact in BEFORE.items() if name != "expected"}


@pytest.fixture
def recorded(tmp_path, folder, monkeypatch):
    """A function: the judged record of a cell on two images of a user, on an emulated storage of these facts now."""
    images = tmp_path / "images"
    images.mkdir()
    for name in ("a.jpg", "b.jpg"):
        (images / name).write_bytes(b"x" * 10)
    cell = make_cell(compose("dataset=folder", f"dataset.path={images}", f"storage.root={tmp_path}"))
    listed = list_own_files(cell.settings)
    newest = max(image.stat().st_ctime_ns for image in images.iterdir())
    data = {"path": str(images), "checksum": listed.checksum, "listed_ns": newest}

    def record(now=NOW, status="done"):
        monkeypatch.setattr(unchanged, "emulated_storage", lambda _: now)
        made = leave_record(folder, cell, data=data, status=status, provenance={"emulated": {"storage": BEFORE}})
        return CampaignJudge().judge(made)

    record.images = images
    return record


def test_nothing_that_stays_is_refused(recorded):
    unchanged.require_unchanged(recorded())


@pytest.mark.parametrize("change", ["add", "remove", "rewrite"])
def test_data_that_changed_are_refused_with_a_cure(recorded, change):
    made = recorded()
    images = recorded.images
    if change == "remove":
        (images / "a.jpg").unlink()
    else:
        (images / ("c.jpg" if change == "add" else "a.jpg")).write_bytes(b"y" * 10)

    with pytest.raises(UsageError, match=f"was measured before {images} changed") as refused:
        unchanged.require_unchanged(made)

    assert refused.value.hint.startswith("measure the cell again with redo=true, or keep")


@pytest.mark.parametrize("now", [NOW | {"read_mb_per_s": 50.0}, NOW | {"model": {"kind": "flash", "rpm": 2}}])
def test_an_emulated_storage_that_is_faster_or_slower_now_is_refused(recorded, now):
    with pytest.raises(UsageError, match="was measured before the emulated storage local changed") as refused:
        unchanged.require_unchanged(recorded(now), redo=False)

    assert refused.value.hint.startswith("keep the old results and use another folder")


def test_a_cell_without_a_run_and_a_storage_that_is_down_refuse_nothing(recorded):
    unchanged.require_unchanged(recorded(None))
    unchanged.require_unchanged(recorded(NOW | {"read_mb_per_s": 50.0}, status="running"))


def test_another_change_is_named_too(recorded):
    with pytest.raises(UsageError, match=r"before train\.py changed"):
        unchanged.require_unchanged(recorded(), ["train.py"])
