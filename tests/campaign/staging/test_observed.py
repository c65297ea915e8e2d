"""What is read of a profile: the files of the data set, in each valid run."""

from dataclasses import replace

import numpy as np
import pytest

from campaign.cells.cell import make_cell
from campaign.cli import stage
from campaign.errors import UsageError
from campaign.staging import observed
from jobs.profiler import Profile, table
from tests.campaign.on_disk import leave_record

SIZES = {"a.bin": 5_000, "sub/b.bin": 70_000, "c.bin": 200}


@pytest.fixture
def data(tmp_path):
    """Three files."""
    for name, size in SIZES.items():
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_bytes(bytes(size))
    return tmp_path / "data"


@pytest.fixture
def profiled(point, folder, data):
    """A function: leave the record of a profiled cell whose runs read the files; the second run is not valid."""

    def leave(mode, **changed):
        cell = make_cell({**point, "profile": {"posix": mode}, **changed})
        runs = []
        folder.cell(cell.id).mkdir(parents=True)
        for number, status in enumerate(("valid", "invalid", "valid")):
            with Profile(mode, only=[data.parent]) as profile:
                for name in SIZES:
                    (data / name).read_bytes()
                (data.parent / "written").write_bytes(b"x")
            profile.save(folder.cell(cell.id) / f"profile-{number}.npz")
            runs.append({"status": status, "load_s": 1e-9, "profile": {"file": f"profile-{number}.npz"}})
        leave_record(folder, cell, *runs, data={"path": str(data)})
        return cell.id

    return leave


@pytest.mark.parametrize("mode", ["counters", "trace"])
def test_the_valid_runs_of_a_cell_say_what_each_file_took(mode, profiled, folder, data):
    cell = profiled(mode)

    found = observed.of_cell(folder, observed.profiled(folder)[cell])

    assert (found.names, found.source, found.origin, len(found.runs)) == (sorted(SIZES), data, cell, 2)
    for run in found.runs:
        assert run.bytes_read.tolist() == [SIZES[name] for name in found.names]
        assert run.seeks.tolist() == [1, 1, 1]
        assert 0 < run.in_calls_s <= run.spent_s.sum() * (1 + 1e-9)
        assert run.in_calls_s <= run.wall_s
        assert run.waited_s == 1e-9
        assert np.argsort(run.ended_s).tolist() == [0, 2, 1]  # places of a, sub/b and c, as they were read
    assert found.calls_at_once == pytest.approx(1, rel=0.01)


def test_a_cell_that_read_copies_says_nothing_of_the_slow_storage_alone(profiled, folder):
    profiled("counters", staging="advised")

    assert observed.profiled(folder) == {}
    with pytest.raises(UsageError, match="no valid profiled run"):
        stage.main(["plan", str(folder.root), "--fast", str(folder.root)])


def test_of_several_profiled_cells_one_is_to_be_named(profiled, folder, capsys):
    cell, _ = profiled("counters"), profiled("trace")
    words = ["plan", str(folder.root), "--fast", str(folder.root)]

    with pytest.raises(UsageError, match="2 cells were profiled"):
        stage.main(words)
    assert stage.main([*words, "--cell", cell]) == 0
    assert cell in capsys.readouterr().out
    assert (folder.staging / "plan.json").exists()


def test_a_record_leads_to_no_profile_out_of_its_cell(profiled, folder):
    cell = profiled("counters")
    recorded = observed.profiled(folder)[cell]
    inside = observed.of_cell(folder, recorded)
    for run in recorded["runs"]:
        elsewhere = folder.root.parent / run["profile"]["file"]
        elsewhere.write_bytes(b"somebody else's")
        run["profile"]["file"] = str(elsewhere)

    assert np.array_equal(observed.of_cell(folder, recorded).runs[0].spent_s, inside.runs[0].spent_s)


def test_a_window_that_ends_before_it_begins_gives_no_plan(profiled, folder):
    cell = profiled("counters")
    path = folder.cell(cell) / "profile-0.npz"
    window = table.read(path)
    table.write(path, replace(window, ended_ns=window.started_ns - 1))

    with pytest.raises(UsageError, match="a window of -1e-09 s"):
        observed.of_cell(folder, observed.profiled(folder)[cell])
