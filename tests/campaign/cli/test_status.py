"""What `status` and `why` say of a cell whose worker is gone."""

import json
import shlex

import pytest

from campaign.cells import requests
from campaign.cells.cell import make_cell
from campaign.cli import status, why
from campaign.storage import checkpoint_targets
from jobs.burst_buffer import __main__ as by_hand
from jobs.burst_buffer.marker import MARKER_NAME
from tests.campaign.fake_template import COLD, failed
from tests.campaign.on_disk import leave_record
from tests.campaign.work_lists import UTC, compose
from tests.jobs.objects.conftest import signed, store  # noqa: F401 - fixtures


@pytest.fixture
def cut(direct_point, folder, tmp_path):
    """A cell whose run was cut, with a snapshot on its storage; returns its id and the folder of its snapshots."""
    direct_point["checkpoint"]["root"] = str(tmp_path / "hdd")
    cell = make_cell(direct_point)
    leave_record(folder, cell, None, data={"path": "/d", "files": 1, "bytes": 2})
    snapshots = tmp_path / "hdd" / "checkpoints" / cell.id
    snapshots.mkdir(parents=True)
    return cell.id, snapshots


def test_status_names_the_snapshots_that_a_cut_run_left(cut, folder, capsys):
    _, snapshots = cut
    said = []

    for _ in range(2):
        status.main([str(folder.root)])
        said.append(" ".join(capsys.readouterr().err.split()))
        if snapshots.exists():
            snapshots.rmdir()

    assert f"snapshots of a run that was cut are left in {snapshots}" in said[0]
    assert "snapshots" not in said[1]


def test_status_names_the_file_that_a_cut_baseline_left(folder, tmp_path, capsys):
    cell = make_cell(compose("benchmark=baseline", "benchmark.access=write"))
    leave_record(folder, cell, None, data={"path": str(tmp_path), "folder": str(tmp_path), "bytes": 5})
    (tmp_path / f"written-{cell.id}.bin").write_bytes(b"12345")

    status.main([str(folder.root)])

    assert f"a run that was cut left {tmp_path}/written-{cell.id}.bin" in capsys.readouterr().err


@pytest.fixture
def cut_in_bucket(folder, tmp_path, store):  # noqa: F811
    """A cell whose run was cut as it drained to a bucket; returns the address of its place there."""
    (tmp_path / "fast").mkdir()
    root = f"{store.storage['endpoint']}/bucket/p"
    sides = f"checkpoint.fast.root={tmp_path / 'fast'}", f"checkpoint.slow.root={root}"
    cell = make_cell(compose("benchmark=alexnet", "checkpoint=burst_buffer", "checkpoint.every=2", *sides))
    leave_record(folder, cell, None, data={"path": "/d", "files": 1, "bytes": 2})
    asked = requests.marked(folder.root, {"token": "first", "utc": UTC, "words": [], "cells": [cell.id]})
    folder.marker.write_text(json.dumps({"schema": 1, "tool": "t", "requests": [asked]}))
    below = f"checkpoints/{checkpoint_targets.campaign_id(folder, 'first')}/{cell.id}"
    marker = json.dumps({"schema": 1, "id": "b", "role": "slow"}).encode()
    names = {
        MARKER_NAME: marker,
        "00000001-step2-0000abcd/000000": b"12",
        "00000001-step2-0000abcd/000001": b"3",
    }
    store.objects = {f"p/{below}/{name}": data for name, data in names.items()}
    store.objects |= {"p/checkpoints/another/cell/000000": b"theirs"}
    return f"{root}/{below}"


def test_status_lists_what_a_cut_run_left_in_a_bucket_with_the_command_that_removes_it(
    cut_in_bucket,
    folder,
    tmp_path,
    store,  # noqa: F811
    capsys,
):
    status.main(["--buckets", str(folder.root)])
    said, _, command = capsys.readouterr().err.splitlines()[0].partition("or: ")

    assert said.startswith(f"snapshots of a run that was cut are left in {cut_in_bucket}")
    assert "(3 objects): the next run of its cell removes them" in said
    words = shlex.split(command)
    assert words[:4] == ["python", "-m", "jobs.burst_buffer", "clear"]
    assert words.pop(4) == "--gone"
    assert words[4] == str(tmp_path / "fast" / "checkpoints" / cut_in_bucket.rpartition("/")[2])
    with pytest.raises(SystemExit) as ended:
        by_hand.main([words[3], "--gone", *words[4:]])
    assert ended.value.code == 0
    assert [*store.objects] == ["p/checkpoints/another/cell/000000"]
    status.main(["--buckets", str(folder.root)])
    assert "snapshots" not in capsys.readouterr().err


def test_status_says_that_a_bucket_which_is_away_cannot_be_seen_and_goes_on(cut_in_bucket, folder, store, capsys):  # noqa: F811
    store.close()

    assert status.main(["--buckets", str(folder.root)]) == 1

    told = capsys.readouterr().err
    place = cut_in_bucket.rpartition("/")[0]
    assert f"warning: whether a run that was cut left snapshots in {place}" in told
    assert "gives no answer (refused)" in told


def test_status_asks_no_bucket_unless_it_is_told_to(cut_in_bucket, folder, store, capsys):  # noqa: F811
    store.objects.clear()
    store.close()

    status.main([str(folder.root)])

    told = capsys.readouterr().err
    assert "what cut runs left in buckets: python -m campaign status --buckets" in told
    assert "warning" not in told


def test_status_asks_no_bucket_that_a_record_of_others_names(cut_in_bucket, folder, store, capsys, monkeypatch):  # noqa: F811
    marker = json.loads(folder.marker.read_text())
    del marker["requests"][0]["mark"]
    folder.marker.write_text(json.dumps(marker))
    connections = []
    monkeypatch.setattr(store, "process_request", lambda *_: connections.append(1))

    for words in (["--buckets"], []):
        assert status.main([*words, str(folder.root)]) == 1

    assert connections == []
    assert "buckets of cells that you did not ask for in this folder are not asked" in capsys.readouterr().err


def test_why_and_status_call_a_cell_the_same(cut, folder, capsys):
    cell, _ = cut
    status.main(["--json", str(folder.root)])
    told = json.loads(capsys.readouterr().out)["cells"][cell]

    why.main([cell, str(folder.root)])

    assert told["status"] == "interrupted"
    assert capsys.readouterr().out.startswith(f"{cell}: interrupted")


def test_the_commands_that_run_what_is_missing_are_printed_the_one_with_the_most_cells_first(folder, cells, capsys):
    one, other, third = (leave_record(folder, cell, status="failed")["cell"]["id"] for cell in cells[0])
    campaign = json.loads(folder.marker.read_text())
    asked = [("threads=1,2 --yes", [one, other]), ("threads=1 --only x", [one]), ("threads=4 redo=true", [third])]
    mine = [{"words": words.split(), "cells": ids} for words, ids in asked]
    campaign["requests"] = [requests.marked(folder.root, each) for each in mine]
    folder.marker.write_text(json.dumps(campaign))

    for verb in (status.main, status.watched):
        verb([str(folder.root)])

        said = capsys.readouterr().err.splitlines()
        assert said[-2:] == ["  python -m campaign threads=1,2", "  python -m campaign threads=4"]


def test_commands_of_somebody_are_not_printed(folder, cells, capsys):
    leave_record(folder, cells[0][0], status="failed")
    strange = {"words": ["--config-dir", "/theirs"], "cells": [cells[0][0].id]}
    campaign = json.loads(folder.marker.read_text())
    campaign["requests"] = [strange, {**strange, "mark": "0" * 64}, requests.marked(folder.root / "copy", strange)]
    folder.marker.write_text(json.dumps(campaign))

    status.main([str(folder.root)])

    said = capsys.readouterr().err
    assert "/theirs" not in said
    assert "not asked for by you" in said


def test_what_needs_attention_comes_first_each_cell_on_its_line(folder, cells, capsys):
    valid = [{"status": "valid"}] * 3
    leave_record(folder, cells[0][0], *valid, status="done")
    leave_record(folder, cells[0][1], *valid[:2], {"status": "invalid"}, status="invalid")
    reason = "sbatch: error: one\nsbatch: error: two"
    leave_record(folder, cells[0][2], failed(reason), status="failed")

    assert status.main([str(folder.root)]) == 1

    head, *lines = capsys.readouterr().out.splitlines()
    assert head == f"{folder.root}: 3 cells: 1 failed, 1 invalid, 1 done"
    assert [line.split() for line in lines] == [
        ["failed", "0/1", "valid", cells[0][2].id, *f"0 of 1 measured runs valid, 3 needed; {reason}".split()],
        ["invalid", "2/3", "valid", cells[0][1].id, *f"2 of 3 measured runs valid, 3 needed; {COLD}".split()],
        ["done", "3/3", "valid", cells[0][0].id],
    ]
