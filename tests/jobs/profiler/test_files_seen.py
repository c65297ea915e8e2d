"""The files that a program and all that it starts read, seen by the hooks that are preloaded there."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from jobs.events.posix_window import COUNTERS, add_rows
from jobs.profiler import build, files_seen
from jobs.profiler.hook_library import ProfilerError

CHILDREN = """
import multiprocessing, os, subprocess, sys
def size(path): return len(open(path, "rb").read())
def size_together(path):
    barrier.wait()  # so that each worker takes one of the two files
    return size(path)
if __name__ == "__main__":
    size("whole")
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(2)
    context.Pool(2).map(size_together, ["of_worker", "link"])
    subprocess.run(["cat", "of_cat"], stdout=subprocess.DEVNULL, check=True)
    if os.fork() == 0:
        os.setsid()
        size("of_orphan")
        os.kill(os.getpid(), 9)
    os.wait()
"""
MAPPED = "import mmap; f = open('whole', 'rb'); mmap.mmap(f.fileno(), 0, prot=1)[0]"
WRITES = (
    "open('out', 'w').write('x'); open('out').read(); open('new', 'w').write('x'); import os; os.rename('new', 'whole')"
)


@pytest.fixture
def seen(tmp_path):
    """Run a program of Python in a folder with some files; returns what was seen of it."""
    folder, held = tmp_path / "data", tmp_path / "held"
    folder.mkdir()
    held.mkdir()
    for name in ("whole", "of_worker", "of_cat", "of_orphan", "target", "never"):
        (folder / name).write_bytes(b"x" * 100)
    (folder / "link").symlink_to("target")

    def run(script, **environment):
        told = {**os.environ, **files_seen.recording_environment(held), **environment}
        subprocess.run([sys.executable, "-c", script], cwd=folder, env=told, check=True)
        found = files_seen.read_files_seen(held)
        names = [{path.name for path in paths if path.parent == folder} for paths in (found.read, found.written)]
        return *names, found

    return run


@pytest.mark.parametrize(
    ("script", "read", "written", "processes"),
    [
        (CHILDREN, {"whole", "of_worker", "of_cat", "of_orphan", "link"}, set(), 5),
        (MAPPED + "; import os; os.stat('never'); open('of_cat')", {"whole"}, set(), 1),
        (WRITES, {"out"}, {"out", "new", "whole"}, 1),
    ],
    ids=["children, workers and a killed orphan", "mapped, and only looked at", "written, and the target of a rename"],
)
def test_the_files_that_a_program_and_its_children_read_and_write_are_seen(script, read, written, processes, seen):
    *names, found = seen(script)

    assert names == [read, written]
    assert found.processes >= processes


def test_the_calls_of_all_processes_on_a_file_are_one_row_whatever_they_called_it(seen, tmp_path):
    data, began_ns = tmp_path / "data", time.time_ns()
    seen(f"import os; open('whole').read()\nif os.fork() == 0: open('{data}/link').read(); os._exit(0)\n"
         "os.wait(); open('./whole').read(); open('never')")  # fmt: skip

    window = files_seen.window_of_files(tmp_path / "held", [data / "whole", data / "target"], began_ns, time.time_ns())

    whole, target = (window.files[str(data / name)] for name in ("whole", "target"))
    assert len(window.paths) == 2
    assert (whole["POSIX_OPENS"], whole["POSIX_BYTES_READ"], target["POSIX_BYTES_READ"]) == (2, 200, 100)
    assert whole["POSIX_SIZE_READ_0_100"] == whole["POSIX_READS"] > 2
    assert 0 < whole["POSIX_F_OPEN_START_TIMESTAMP"] < whole["POSIX_F_CLOSE_END_TIMESTAMP"] < window.wall_s
    assert (whole["POSIX_MAX_BYTE_READ"], target["POSIX_OPENS"]) == (99, 1)


def test_a_program_that_took_no_hooks_has_no_window(tmp_path):
    with pytest.raises(ProfilerError, match="recorded no process"):
        files_seen.window_of_files(tmp_path, [], 0, 1)


def test_a_program_without_a_folder_for_it_is_left_alone(seen):
    assert seen("open('whole').read()", **{files_seen.VARIABLE: "/no/such/folder"})[2].processes == 0


def test_where_no_library_can_be_built_it_is_said(monkeypatch, tmp_path):
    def none():
        raise build.BuildError("no C compiler was found")

    monkeypatch.setattr(build, "build_library", none)

    with pytest.raises(ProfilerError, match="no C compiler"):
        files_seen.recording_environment(tmp_path)


def test_of_two_processes_the_sizes_that_were_most_frequent_stay_with_their_numbers():
    rows = np.zeros(2, COUNTERS)
    rows["access_size"][:, :2], rows["access_count"][:, :2] = [[4096, 512], [65536, 4096]], [[1000, 2], [1, 5]]

    (row,) = add_rows(rows, np.array([0, 0]), 1)

    assert dict(zip(row["access_size"].tolist(), row["access_count"].tolist(), strict=True)) == {
        4096: 1005, 512: 2, 65536: 1, 0: 0,
    }  # fmt: skip
