"""What `why` says of runs that have less than others."""

from __future__ import annotations

import json

import pytest

from campaign.cells import record
from campaign.cli import why
from campaign.config.collect import collect
from campaign.config.points import cells_of
from campaign.errors import EnvironmentFaultError, UsageError


@pytest.mark.parametrize(
    ("trace", "told"),
    [
        (None, []),
        ({"error": None, "sources": {"dsk/vda": "ok"}}, []),
        ({"error": "No space left on device", "sources": {}}, ["not written: No space left on device"]),
        ({"error": None, "sources": {"llite/x": "not readable"}}, ["llite/x: not readable"]),
    ],
)
def test_a_run_is_told_whatever_its_trace_lacks(trace, told, cells, folder, capsys):
    made = record.new(cells[0][0], {"token": "t", "words": ["threads=1"]}, {"path": "/d", "files": 1, "bytes": 2})
    run = record.begin_run(made, "measured", "t")
    run |= {"status": "failed", "reason": "because", "trace": trace}
    made["status"] = "failed"
    record.write(folder.record(made["cell"]["id"]), made)

    why.main([made["cell"]["id"], str(folder.root)])

    out = capsys.readouterr().out
    assert "  reason       because" in out
    assert [line.split(None, 1)[1] for line in out.splitlines() if line.startswith("  trace ")] == told


def test_a_flag_may_stand_between_cell_and_folder(cells, folder, capsys):
    made = record.new(cells[0][0], {"token": "t", "words": []}, {"path": "/d", "files": 1, "bytes": 2})
    record.write(folder.record(made["cell"]["id"]), made)

    why.main([made["cell"]["id"], "--json", str(folder.root)])

    assert json.loads(capsys.readouterr().out)["cell"]["id"] == made["cell"]["id"]


def test_a_record_that_is_damaged_inside_is_told(cells, folder):
    made = record.new(cells[0][0], {"token": "t", "words": ["-m"]}, {"path": "/d", "files": 1})
    record.write(folder.record(made["cell"]["id"]), made)

    with pytest.raises(EnvironmentFaultError, match="is damaged inside"):
        why.main([made["cell"]["id"], str(folder.root)])


def test_a_folder_in_the_place_of_the_cell_is_told_with_the_right_order(folder):
    with pytest.raises(UsageError, match="the cell comes first") as caught:
        why.main([str(folder.root), "399c"])

    assert caught.value.hint == f"python -m campaign why 399c {folder.root}"


def test_a_baseline_is_told_though_it_has_no_images(folder, capsys):
    cell = cells_of(collect(["-m", "benchmark=baseline"]))[0][0]
    made = record.new(cell, {"token": "t", "words": []}, {"path": "/hdd/baseline", "bytes": 5_000_000_000})
    run = record.begin_run(made, "measured", "t")
    why_added = {"until_spread": 0.01, "n": 5, "interval": [150.0, 160.0], "confidence": 0.9375, "width": 0.07}
    run |= {"status": "valid", "read_mb_per_s": 155.0, "checks": [], "added": why_added}
    record.write(folder.record(cell.id), made)

    why.main([cell.id, str(folder.root)])

    out = capsys.readouterr().out
    assert "data       /hdd/baseline: 5000.0 MB" in out
    assert "valid, 155.0 MB/s" in out
    assert "was 150.0 to 160.0 MB/s" in out
