"""What `status` and `why` say of a cell whose worker is gone."""

from __future__ import annotations

import json

import pytest

from campaign.cells import record
from campaign.cli import status, why
from campaign.config.collect import collect
from campaign.config.points import cells_of


@pytest.fixture
def cut(direct_point, folder, tmp_path):
    """A cell whose run was cut, with a snapshot on its storage; returns its id and the folder of its snapshots."""
    direct_point["checkpoint"]["root"] = str(tmp_path / "hdd")
    cell = cells_of([direct_point])[0][0]
    made = record.new(cell, {"token": "t", "words": ["threads=1"]}, {"path": "/d", "files": 1, "bytes": 2})
    record.begin_run(made, "measured", "t")
    record.write(folder.record(cell.id), made)
    snapshots = tmp_path / "hdd" / "checkpoints" / cell.id
    snapshots.mkdir(parents=True)
    return cell.id, snapshots


def test_status_names_the_snapshots_that_a_cut_run_left(cut, folder, capsys):
    _, snapshots = cut

    status.main([str(folder.root)])

    assert f"snapshots of a run that was cut are left in {snapshots}" in " ".join(capsys.readouterr().err.split())


def test_status_names_no_snapshots_where_none_are_left(cut, folder, capsys):
    cut[1].rmdir()

    status.main([str(folder.root)])

    assert "snapshots" not in capsys.readouterr().err


def test_status_names_the_file_that_a_cut_baseline_left(folder, tmp_path, capsys):
    cell = cells_of(collect(["-m", "benchmark=baseline", "benchmark.access=write"]))[0][0]
    made = record.new(cell, {"token": "t", "words": []}, {"path": str(tmp_path), "folder": str(tmp_path), "bytes": 5})
    record.begin_run(made, "measured", "t")
    record.write(folder.record(cell.id), made)
    (tmp_path / f"written-{cell.id}.bin").write_bytes(b"12345")

    status.main([str(folder.root)])

    assert f"a run that was cut left {tmp_path}/written-{cell.id}.bin" in capsys.readouterr().err


def test_why_and_status_call_a_cell_the_same(cut, folder, capsys):
    cell, _ = cut
    status.main(["--json", str(folder.root)])
    told = json.loads(capsys.readouterr().out)["cells"][cell]

    why.main([cell, str(folder.root)])

    assert told["status"] == "interrupted"
    assert capsys.readouterr().out.startswith(f"{cell}: interrupted")
