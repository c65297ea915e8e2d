"""The files that a program and all that it starts read, seen by the hooks that are preloaded there."""

import os
import subprocess
import sys

import pytest

from jobs.profiler import build, files_seen
from jobs.profiler.hook_library import ProfilerError

CHILDREN = """
import multiprocessing, os, subprocess, sys
def size(path): return len(open(path, "rb").read())
if __name__ == "__main__":
    size("whole")
    multiprocessing.get_context("fork").Pool(2).map(size, ["of_worker", "link"])
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
        told = {**os.environ, **files_seen.environment(held), **environment}
        subprocess.run([sys.executable, "-c", script], cwd=folder, env=told, check=True)
        found = files_seen.seen(held)
        names = [{path.name for path in paths if path.parent == folder} for paths in (found.read, found.written)]
        return *names, found

    return run


def test_files_of_children_workers_and_orphans_are_seen_even_of_those_that_are_killed(seen):
    read, written, found = seen(CHILDREN)

    assert read == {"whole", "of_worker", "of_cat", "of_orphan", "link"}
    assert written == set()
    assert found.processes >= 5
    assert not found.full


def test_a_mapped_file_is_read_and_one_that_is_only_looked_at_is_not(seen):
    read, _, _ = seen(MAPPED + "; import os; os.stat('never'); open('of_cat')")

    assert read == {"whole"}


def test_what_is_written_and_what_a_file_is_renamed_to_is_told_apart(seen):
    read, written, _ = seen(WRITES)

    assert (read, written) == ({"out"}, {"out", "new", "whole"})


def test_a_program_without_a_folder_for_it_is_left_alone(seen):
    assert seen("open('whole').read()", **{files_seen.VARIABLE: "/no/such/folder"})[2].processes == 0


def test_where_no_library_can_be_built_it_is_said(monkeypatch, tmp_path):
    def none():
        raise build.BuildError("no C compiler was found")

    monkeypatch.setattr(build, "build", none)

    with pytest.raises(ProfilerError, match="no C compiler"):
        files_seen.environment(tmp_path)
