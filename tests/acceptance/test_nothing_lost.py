"""Whatever is killed, full, changed or moved: measured runs are kept, and the same command measures what is missing."""

import contextlib
import json
import os
import shutil
from collections import Counter

import pytest
from PIL import Image

from tests.acceptance import door

PROGRAM = "cat $1/* && sleep 0.3 && if [ -e hang ]; then sleep 600; fi"
WORDS = (
    *("benchmark=command", "benchmark.argv=[sh,program.sh,'{data}','{threads}']"),
    *("dataset=folder", "dataset.path=files", "trace.interval_s=null", *door.SHARED),
)


def make_program(folder):
    """Write a program that reads its data in 0.3 s, and hangs while there is a file `hang`."""
    (folder / "program.sh").write_text(PROGRAM)
    (folder / "files").mkdir()
    (folder / "files" / "a").write_text("data")


@pytest.fixture(params=["program", pytest.param("tensorflow", marks=pytest.mark.long)])
def grid(request, tmp_path):
    """Return a grid of two cells with many short runs."""
    make_program(tmp_path)
    return "-m", "threads=1,2", *(WORDS if request.param == "program" else door.TINY), "runs=15"


def ended_runs(results):
    return [run for record in door.records(results) for run in record["runs"] if run["status"] == "ended"]


def wait_for_some_runs(results):
    door.wait(lambda: len(ended_runs(results)) > 2)


def require_all(results, before):
    """Find all runs of the grid, those of before among them as they were, and at most one that was lost."""
    runs = [run for record in door.records(results) for run in record["runs"]]
    assert [run for run in before if run not in runs] == []
    states = Counter((run["role"], run["status"]) for run in runs)
    assert states["measured", "ended"] == 28
    assert sum(number for (_, status), number in states.items() if status != "ended") <= 1
    assert 2 <= states["warmup", "ended"] <= 3


def test_a_killed_worker_ends_its_run_loses_no_other_and_the_same_command_goes_on(grid, start, cli, tmp_path):
    front = start(*grid)
    wait_for_some_runs(tmp_path / "results")

    door.worker(front).kill()
    done = door.end(front)
    before = ended_runs(tmp_path / "results")

    assert (done.code, door.is_one_cure(done.err)) == (3, True)
    door.wait(lambda: door.processes_in(tmp_path) == [], 60)
    assert not {"done", "running"} & {cell["status"] for cell in door.status(tmp_path / "results").values()}
    assert cli(*grid).code == 0
    require_all(tmp_path / "results", before)


@pytest.mark.long
def test_a_second_front_is_refused_and_after_ctrl_c_the_same_command_goes_on(grid, start, cli, tmp_path):
    front = start(*grid)
    wait_for_some_runs(tmp_path / "results")

    second = cli("threads=8", *grid[2:])
    door.interrupt(front)
    done = door.end(front)
    before = ended_runs(tmp_path / "results")

    assert (second.code, door.is_one_cure(second.err), str(front.pid) in second.err) == (3, True, True)
    assert (done.code, "Traceback" in done.err) == (130, False)
    assert door.processes_in(tmp_path) == []
    assert cli(*grid).code == 0
    require_all(tmp_path / "results", before)
    assert len(door.records(tmp_path / "results")) == 2


@pytest.mark.long
def test_after_the_front_is_killed_the_same_command_measures_no_run_twice(grid, start, cli, tmp_path):
    front = start(*grid)
    wait_for_some_runs(tmp_path / "results")

    front.kill()
    front.wait()
    before = ended_runs(tmp_path / "results")

    assert cli(*grid).code == 0
    require_all(tmp_path / "results", before)
    assert door.processes_in(tmp_path) == []


@pytest.mark.long
def test_a_full_disk_under_the_records_loses_none_and_the_same_command_goes_on(grid, start, cli, small_disk):
    grid = (*grid, f"campaign_dir={small_disk}/results")
    front = start(*grid)
    wait_for_some_runs(small_disk / "results")

    ballast = small_disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass
    done = door.end(front)
    before = ended_runs(small_disk / "results")
    ballast.unlink()

    assert (done.code, os.strerror(28) in done.err, "Traceback" in done.err) == (3, True, False)
    assert len(before) > 2
    assert cli(*grid).code == 0
    require_all(small_disk / "results", before)


def test_a_run_that_hangs_is_killed_with_its_program_at_its_limit_and_measured_when_it_hangs_no_more(cli, tmp_path):
    make_program(tmp_path)
    (tmp_path / "hang").touch()
    words = (*WORDS, "runs=3", "run_timeout_s=1")

    hung = cli(*words)
    (state,) = door.status(tmp_path / "results").values()
    left = door.processes_in(tmp_path)
    (tmp_path / "hang").unlink()
    mended = cli(*words)

    assert (hung.code, state["status"], "run_timeout_s=1" in state["reason"], left) == (1, "failed", True, [])
    assert mended.code == 0
    (record,) = door.records(tmp_path / "results")
    assert [run["status"] for run in record["runs"]] == [*["failed"] * 2, *["ended"] * 3]


@pytest.mark.long
def test_a_truncated_image_is_named(cli, tmp_path):
    (tmp_path / "images" / "cats").mkdir(parents=True)
    for number in range(16):
        Image.effect_noise((64, 64), 50).convert("RGB").save(tmp_path / f"images/cats/{number}.jpg")
    broken = tmp_path / "images" / "cats" / "7.jpg"
    whole = broken.read_bytes()
    broken.write_bytes(whole[: len(whole) // 2])
    words = ("dataset=folder", "dataset.path=images", "batch_size=4", "runs=2", *door.SHARED)

    done = cli(*words)
    (cell,) = door.status(tmp_path / "results")
    shown = cli("show", cell)
    broken.write_bytes(whole)
    mended = cli(*words, "redo=true")

    assert (done.code, shown.code, "cats/7.jpg" in shown.out, "cats/6.jpg" in shown.out) == (1, 1, True, False)
    assert mended.code == 0
    assert len(door.files(tmp_path / "images")) == 16


def test_changed_data_are_refused_until_they_are_measured_anew_and_the_old_record_is_kept(cli, tmp_path):
    make_program(tmp_path)
    words = (*WORDS, "runs=2")
    assert cli(*words).code == 0
    (file,) = (tmp_path / "results").glob("records/*/record.json")
    old = file.read_text()
    (tmp_path / "files" / "a").write_text("other")

    refused = cli(*words, "runs=3")
    unchanged = file.read_text()
    redone = cli(*words, "redo=true")

    assert (refused.code, door.is_one_cure(refused.err), "redo=true" in refused.err) == (2, True, True)
    assert unchanged == old
    assert (redone.code, door.set_aside(tmp_path / "results")) == (0, [old])
    before, after = json.loads(old), json.loads(file.read_text())
    assert before["dataset"]["checksum"] != after["dataset"]["checksum"]
    assert not any(run in before["runs"] for run in after["runs"])


# What is done with a campaign that has ended: each test has a copy of its folder of results.


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Return the folder where a campaign of two cells was measured."""
    folder = tmp_path_factory.mktemp("ended")
    make_program(folder)
    assert door.cli("-m", "threads=1,2", "runs=3", *WORDS, cwd=folder).code == 0
    return folder


@pytest.fixture
def again(ended, tmp_path):
    """Give the command of that campaign again, in a copy of its folder of results, with other words."""
    shutil.copytree(ended / "results", tmp_path / "results")

    def go(*words):
        where = f"campaign_dir={tmp_path}/results"
        return door.cli("-m", "threads=1,2", "runs=3", *WORDS, where, *words, cwd=ended)

    return go


def test_the_same_command_again_measures_nothing_in_a_folder_that_was_moved_too(again, ended, tmp_path):
    before = door.files(tmp_path / "results" / "records")

    done = again()

    assert done.code == 0
    assert door.files(tmp_path / "results" / "records") == before
    assert door.table(tmp_path / "results", "medians").equals(door.table(ended / "results", "medians"))
    assert door.status(tmp_path / "results") == door.status(ended / "results")


def test_a_new_point_is_measured_alone(again, tmp_path):
    before = door.files(tmp_path / "results" / "records")

    assert again("threads=1,4").code == 0

    after = door.files(tmp_path / "results" / "records")
    assert {name: after[name] for name in before} == before
    cells = {record["cell"]["settings"]["threads"]: record for record in door.records(tmp_path / "results")}
    assert sorted(cells) == [1, 2, 4]
    assert [run["run"] for run in cells[4]["runs"]] == [0, 1, 2]


def test_runs_of_another_machine_are_not_mixed_with_those_of_this_one(again, tmp_path):
    results = tmp_path / "results"
    file, _ = sorted(results.glob("records/*/record.json"))
    foreign = json.loads(file.read_text())
    foreign["provenance"]["cpu"] = "Z80"
    foreign["runs"].pop()  # so that a run is missing
    file.write_text(json.dumps(foreign))

    refused = again()
    unchanged = json.loads(file.read_text())
    redone = again("redo=true", f"threads={foreign['cell']['settings']['threads']}")

    assert (refused.code, door.is_one_cure(refused.err), "redo=true" in refused.err) == (2, True, True)
    assert ("Z80" in refused.err, unchanged) == (True, foreign)
    assert (redone.code, door.set_aside(results)) == (0, [json.dumps(foreign)])
    new = json.loads(file.read_text())
    assert new["provenance"]["cpu"] != "Z80"
    assert ([run["run"] for run in new["runs"]], any(run in foreign["runs"] for run in new["runs"])) == (
        [0, 1, 2],
        False,
    )


def test_a_damaged_record_is_set_aside_as_it_is_and_its_cell_alone_measured_anew(again, tmp_path):
    results = tmp_path / "results"
    damaged, whole = sorted(results.glob("records/*/record.json"))
    damaged.write_text("{")
    before = whole.read_bytes()

    assert again().code == 0

    assert door.set_aside(results) == ["{"]
    assert whole.read_bytes() == before
    assert [run["status"] for run in json.loads(damaged.read_text())["runs"]] == ["ended"] * 3
