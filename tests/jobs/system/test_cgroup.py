"""The quota of the processors, by files as the kernel shows them and by a real group."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.system import cgroup

V1 = Path("/sys/fs/cgroup/cpu")


@pytest.mark.parametrize(
    ("version", "files", "limit"),
    [
        (2, {"a/memory.max": "max", "a/memory.high": "4096"}, 4096),
        (2, {"a/memory.max": "8192", "a/b/memory.high": "9000", "a/memory.high": "max"}, 8192),
        (1, {"a/memory.limit_in_bytes": "8192"}, 8192),
        (1, {"a/memory.limit_in_bytes": "9223372036854771712"}, None),
        (1, {"a/memory.limit_in_bytes": str((1 << 62) - 1)}, (1 << 62) - 1),
        (1, {"a/memory.limit_in_bytes": str(1 << 62)}, None),
        (2, {}, None),
    ],
)
def test_the_least_limit_of_memory_counts_of_all_groups(version, files, limit, machine):
    assert cgroup.memory_limit_bytes(machine(version, files)) == limit


STAT = "nr_periods 50\nnr_throttled 48\n"
V1_FIFTH = {"a/b/cpu.cfs_quota_us": "20000", "a/b/cpu.cfs_period_us": "100000"}


@pytest.mark.parametrize(
    ("version", "files"),
    [
        (2, {"a/b/cpu.max": "20000 100000", "a/b/cpu.stat": STAT + "throttled_usec 3900000"}),
        (1, {**V1_FIFTH, "a/b/cpu.stat": STAT + "throttled_time 3900000000"}),
    ],
)
def test_both_versions_say_the_same(version, files, machine):
    more = "nr_periods 90\nnr_throttled 7\nthrottled_usec 5\nthrottled_time 5000\n"  # held back for less long
    proc = machine(version, {**files, "a/cpu.max": "30000 100000", "a/cpu.stat": more})

    assert cgroup.quota(proc) == 0.2
    assert cgroup.throttled(proc) == cgroup.Throttled(48, 3.9)


@pytest.mark.parametrize(
    "files", [{}, {"a/b/cpu.max": "max 100000", "a/b/cpu.stat": STAT}, {"a/b/cpu.cfs_quota_us": "-1"}]
)
def test_without_a_quota_there_is_nothing_to_tell(files, machine):
    proc = machine(2, files)

    assert cgroup.quota(proc) is None
    assert cgroup.throttled(proc) is None


@pytest.mark.parametrize(
    ("files", "place", "cores"),
    [
        ({"cgroup.procs": "", "a/cpu.max": "150000 100000", "a/b/cpu.max": "max 100000"}, {}, 1.5),
        ({"job/cpu.max": "50000 100000"}, {"path": "/docker/77/job", "root": "/docker/77"}, 0.5),
    ],
    ids=["nested groups", "a container's group, whose path begins at its own mount"],
)
def test_the_least_quota_of_all_groups_counts(files, place, cores, machine):
    assert cgroup.quota(machine(2, files, **place)) == cores


def test_a_mount_point_with_any_letters_in_its_name_is_one_line(machine):
    proc = machine(2, {"a/b/cpu.max": "20000 100000"})
    with (proc / "mountinfo").open("a", encoding="utf-8", newline="") as mounts:
        mounts.write("31 20 0:26 / /home/u/x\x0c\x1c\u2028\ry rw - fuse me rw\n")

    assert cgroup.quota(proc) == 0.2


def test_a_machine_that_tells_nothing_has_no_quota(tmp_path):
    assert cgroup.quota(tmp_path) is None


@pytest.fixture
def fifth_of_a_core():
    """A group of the first version with a quota of 0.2 cores; the file that takes its processes."""
    group = V1 / f"tfio-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no group of cgroup v1 can be made: {error}")
    (group / "cpu.cfs_quota_us").write_text("20000")
    yield group / "cgroup.procs"
    group.rmdir()


def test_a_real_quota_is_seen_and_what_it_holds_back_too(fifth_of_a_core):
    code = (
        "import json, time\n"
        "from jobs.system import cgroup\n"
        "before, end = cgroup.throttled(), time.process_time() + 0.2\n"
        "while time.process_time() < end: pass\n"
        "after = cgroup.throttled()\n"
        "print(json.dumps([cgroup.quota(), after.periods - before.periods, after.seconds - before.seconds]))\n"
    )
    words = ["/bin/sh", "-c", f"echo $$ > {fifth_of_a_core} && exec {sys.executable} -"]

    done = subprocess.run(words, input=code, text=True, capture_output=True, check=True)

    cores, periods, seconds = json.loads(done.stdout)
    assert cores == 0.2
    assert periods > 0
    assert seconds > 0
