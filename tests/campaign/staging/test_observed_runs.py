"""What is read of a profile: the files of the data set, in each valid run."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from campaign.cells.cell import make_cell
from campaign.cells.verdicts import Verdicts
from campaign.cli import stage
from campaign.errors import EnvironmentFaultError, UsageError
from campaign.staging import observed_runs
from campaign.staging.observed_runs import FilesFromMemory
from jobs.events import posix_window
from jobs.events.posix_window import COUNTERS, Window
from jobs.profiler import Profile
from tests.campaign.fake_template import TERMS
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
                    if name == "sub/b.bin":
                        with (data / name).open("rb", buffering=0) as file:
                            for place in (60_000, 20_000, 20_100, 5):
                                os.pread(file.fileno(), 100, place)
                (data.parent / "written").write_bytes(b"x")
            profile.save(folder.cell(cell.id) / f"profile-{number}.npz")
            runs.append(
                {
                    "status": status,
                    "load_s": 1e-9,
                    "wall_s": 1e-9,
                    "other_s": 0.0,
                    "images_per_s": 512e9,
                    "read_mb_per_s": 57_344_000e3,
                    "profile": {"file": f"profile-{number}.npz"},
                }
            )
        leave_record(folder, cell, *runs, data={"path": str(data)})
        return cell.id

    return leave


@pytest.mark.parametrize("mode", ["counters", "trace"])
def test_the_valid_runs_of_a_cell_say_what_each_file_took(mode, profiled, folder, data):
    cell = profiled(mode)

    found = observed_runs.observe_cell(folder, observed_runs.profiled_records(Verdicts(folder, TERMS))[cell])

    assert (found.names, found.source, found.origin, len(found.runs)) == (sorted(SIZES), data, cell, 2)
    for run in found.runs:
        assert run.bytes_read.tolist() == [SIZES[name] + 400 * (name == "sub/b.bin") for name in found.names]
        assert run.seeks.tolist() == [1, 1, 4]
        assert 0 < run.in_calls_s <= run.spent_s.sum() * (1 + 1e-9)
        assert run.in_calls_s <= run.wall_s
        assert run.waited_s == 1e-9
        assert np.argsort(run.ended_s).tolist() == [0, 2, 1]  # places of a, sub/b and c, as they were read
    assert found.calls_at_once == pytest.approx(1, rel=0.01)


def test_a_cell_that_read_copies_says_nothing_of_the_slow_storage_alone(profiled, folder):
    profiled("counters", staging="advised")

    assert observed_runs.profiled_records(Verdicts(folder, TERMS)) == {}
    with pytest.raises(UsageError, match="no valid profiled run"):
        stage.main(["plan", str(folder.root), "--fast", str(folder.root)])


def test_a_record_leads_to_no_profile_out_of_its_cell(profiled, folder):
    cell = profiled("counters")
    recorded = observed_runs.profiled_records(Verdicts(folder, TERMS))[cell]
    inside = observed_runs.observe_cell(folder, recorded)
    for run in recorded["runs"]:
        elsewhere = folder.root.parent / run["profile"]["file"]
        elsewhere.write_bytes(b"somebody else's")
        run["profile"]["file"] = str(elsewhere)

    assert np.array_equal(observed_runs.observe_cell(folder, recorded).runs[0].spent_s, inside.runs[0].spent_s)


@pytest.mark.parametrize(
    ("changed", "error", "why"),
    [
        ({"ended_ns": 0}, UsageError, r"a window of -\S+ s"),
        ({"dropped": 1}, UsageError, "1 calls or files were dropped"),
        (None, EnvironmentFaultError, "is no profile"),
    ],
)
def test_a_profile_that_is_not_whole_gives_no_plan(changed, error, why, profiled, folder):
    cell = profiled("counters")
    path = folder.cell(cell) / "profile-0.npz"
    window = posix_window.read_window(path)
    path.write_bytes(b"") if changed is None else posix_window.write_window(path, replace(window, **changed))

    with pytest.raises(error, match=why):
        observed_runs.observe_cell(folder, observed_runs.profiled_records(Verdicts(folder, TERMS))[cell])


@pytest.fixture
def cold(monkeypatch):
    """A function: what is seen of three files, the first the slowest for its size, of which a device gave so much."""

    def of_file(device_bytes):
        counters = np.zeros(4, COUNTERS)
        counters["bytes_read"][:3] = 3_000_000, 1_000_000, 2_000_000
        counters["read_time"][:3] = 1_550_000, 55_000_000, 10_500_000  # 1, 100 and 10 times as long as from memory
        paths = [*(f"/data/{name}" for name in "cab"), "/data/never-read"]
        window = Window(
            "counters", 0, 10**9, 1, paths, ["POSIX"] * 4, counters, None, 0, 0, 0, device_bytes=device_bytes
        )
        monkeypatch.setattr(observed_runs, "read_complete_window", lambda _: window)
        monkeypatch.setattr(observed_runs, "has_device", lambda _: True)
        return observed_runs.observe_profile(Path("a.npz"), Path("/data"))

    return of_file


@pytest.mark.parametrize(
    ("device_bytes", "names", "memory"),
    [
        (None, "abc", None),
        *((fetched, "abc", FilesFromMemory(0, 0, 6_000_000 - fetched, 0.0)) for fetched in (6_000_000, 5_400_000)),
        (5_399_999, "ab", FilesFromMemory(1, 3_000_000, 600_001, pytest.approx(10))),
        (3_000_000, "ab", FilesFromMemory(1, 3_000_000, 3_000_000, pytest.approx(10))),
        (2_999_999, "a", FilesFromMemory(2, 5_000_000, 3_000_001, pytest.approx(10))),
    ],
)
def test_the_fastest_files_are_those_from_memory_as_far_as_no_device_gave_them(device_bytes, names, memory, cold):
    found = cold(device_bytes)

    assert (found.names, found.from_memory) == ([*names], memory)
    assert found.runs[0].spent_s.tolist() == [{"a": 0.055, "b": 0.0105, "c": 0.00155}[name] for name in names]


@pytest.mark.parametrize("device_bytes", [0, 600_000, 999_999])
def test_a_profile_of_reads_from_memory_says_nothing(device_bytes, cold):
    with pytest.raises(
        UsageError, match=rf"at least {(6_000_000 - device_bytes) / 1e6:.1f} of 6\.0 MB came from memory"
    ):
        cold(device_bytes)
