"""The quota of the processors, by files as the kernel shows them and by a real group.

Limits of control groups on reads and writes, by files as the kernel shows them and by a real group.
"""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.system import cgroup
from jobs.system.device import Device, device_of
from tests.lies import groups
from tests.lies.lie import MissingError

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

    assert cgroup.quota_cores(proc) == 0.2
    assert cgroup.throttled_time(proc) == cgroup.ThrottledTime(48, 3.9)


def test_pressure_of_io_is_that_of_the_nearest_group_else_of_the_machine_else_unknown(machine):
    proc = machine(2, {"a/b/cgroup.procs": "1"})
    found = [cgroup.io_pressure_s(proc)]
    for place, seconds in (("pressure/io", 9), ("cgroup/a/io.pressure", 5), ("cgroup/a/b/io.pressure", 2)):
        (proc.parent / place).parent.mkdir(exist_ok=True)
        (proc.parent / place).write_text(
            f"some avg10=0.00 avg300=0.00 total={seconds}500000\nfull avg10=0.00 total=7\n"
        )
        found.append(cgroup.io_pressure_s(proc))

    assert found == [None, 9.5, 5.5, 2.5]


@pytest.mark.parametrize(
    "files", [{}, {"a/b/cpu.max": "max 100000", "a/b/cpu.stat": STAT}, {"a/b/cpu.cfs_quota_us": "-1"}]
)
def test_without_a_quota_there_is_nothing_to_tell(files, machine):
    proc = machine(2, files)

    assert cgroup.quota_cores(proc) is None
    assert cgroup.throttled_time(proc) is None


@pytest.mark.parametrize(
    ("files", "place", "cores"),
    [
        ({"cgroup.procs": "", "a/cpu.max": "150000 100000", "a/b/cpu.max": "max 100000"}, {}, 1.5),
        ({"job/cpu.max": "50000 100000"}, {"path": "/docker/77/job", "root": "/docker/77"}, 0.5),
    ],
    ids=["nested groups", "a container's group, whose path begins at its own mount"],
)
def test_the_least_quota_of_all_groups_counts(files, place, cores, machine):
    assert cgroup.quota_cores(machine(2, files, **place)) == cores


def test_a_mount_point_with_any_letters_in_its_name_is_one_line(machine):
    proc = machine(2, {"a/b/cpu.max": "20000 100000"})
    with (proc / "mountinfo").open("a", encoding="utf-8", newline="") as mounts:
        mounts.write("31 20 0:26 / /home/u/x\x0c\x1c\u2028\ry rw - fuse me rw\n")

    assert cgroup.quota_cores(proc) == 0.2


def test_a_machine_that_tells_nothing_has_no_quota(tmp_path):
    assert cgroup.quota_cores(tmp_path) is None


@pytest.fixture
def fiftieth_of_a_core():
    """A group of the first version with a quota of 0.02 cores; the file that takes its processes."""
    group = V1 / f"tfio-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no group of cgroup v1 can be made: {error}")
    (group / "cpu.cfs_quota_us").write_text("2000")
    yield group / "cgroup.procs"
    group.rmdir()


def test_a_real_quota_is_seen_and_what_it_holds_back_too(fiftieth_of_a_core):
    code = (
        "import json, os, sys\n"
        "from jobs.system import cgroup\n"
        "join = lambda group: open(group, 'w').write(str(os.getpid()))\n"
        "join(sys.argv[1])\n"
        "before = cgroup.throttled_time()\n"
        "while (after := cgroup.throttled_time()).seconds == before.seconds: pass\n"
        "told = cgroup.quota_cores(), after.periods - before.periods, after.seconds - before.seconds\n"
        "join(sys.argv[2])\n"
        "print(json.dumps(told))\n"
    )
    words = [sys.executable, "-c", code, fiftieth_of_a_core, V1 / "cgroup.procs"]

    done = subprocess.run(words, text=True, capture_output=True, check=True)

    cores, periods, seconds = json.loads(done.stdout)
    assert cores == 0.02
    assert periods > 0
    assert seconds > 0


READ_BPS = "blkio.throttle.read_bps_device"


@pytest.fixture(autouse=True)
def _the_device(monkeypatch):
    """There is a device 8:16."""
    monkeypatch.setattr(Device, "number", "8:16")


def found(proc):
    limits = cgroup.io_limits([Device("sdb")], proc)
    return {(limit.kind, limit.per_s, limit.group.rpartition("cgroup")[2]) for limit in limits}


def test_of_version_2_the_limits_of_all_groups_above_act(machine):
    own, above = "8:16 rbps=2097152 wbps=max riops=max wiops=120\n8:32 rbps=1\n", "8:16 rbps=4194304"
    proc = machine(2, {"a/b/io.max": own, "a/io.max": above})

    assert found(proc) == {
        ("read_bps", 2097152, "/a/b"), ("write_iops", 120, "/a/b"), ("read_bps", 4194304, "/a"),
    }  # fmt: skip


def test_of_version_1_those_of_the_own_group_alone_act(machine):
    files = {f"a/b/{READ_BPS}": "8:16 2097152\n8:32 1\n", "a/b/blkio.throttle.write_iops_device": "8:16 7\n"}
    proc = machine(1, {**files, f"a/{READ_BPS}": "8:16 1000\n"})

    assert found(proc) == {("read_bps", 2097152, "/a/b"), ("write_iops", 7, "/a/b")}


@pytest.mark.parametrize(
    ("version", "files", "path", "hidden"),
    [
        (2, {"a/cgroup.type": "domain", "cgroup.procs": ""}, "/a", False),  # the machine's own top has no type
        (2, {"cgroup.type": "domain"}, "/", True),  # a container's top has one
        (1, {READ_BPS: "", "cgroup.type": "?"}, "/", False),  # groups above do not act there
    ],
)
def test_groups_above_are_hidden_in_a_container(version, files, path, hidden, machine):
    assert cgroup.has_hidden_groups(machine(version, files, path)) is hidden


def test_groups_are_hidden_where_none_is_mounted_and_there_are_none_where_the_kernel_has_none(tmp_path):
    assert cgroup.has_hidden_groups(tmp_path) is False
    (tmp_path / "cgroup").write_text("0::/\n")
    assert cgroup.has_hidden_groups(tmp_path) is True


def test_a_real_limit_is_seen_by_the_process_that_it_holds_for(tmp_path, monkeypatch):
    monkeypatch.undo()
    device = device_of(tmp_path)
    if device is None:
        pytest.skip(f"{tmp_path} is on no block device: pass --basetemp on a disk")
    code = (
        "import json\n"
        "from jobs.system.cgroup import io_limits\n"
        "from jobs.system.device import Device\n"
        f"print(json.dumps(io_limits([Device({device.name!r})])))\n"
    )
    with contextlib.ExitStack() as stack:
        try:
            group = groups.made(stack, f"tfio-test-{os.getpid()}", "blkio")
        except MissingError as error:
            pytest.skip(str(error))
        most = 10**12  # no process of this machine is held back by it
        if (group / READ_BPS).exists():
            (group / READ_BPS).write_text(f"{device.number} {most}")
        else:
            (group / "io.max").write_text(f"{device.number} rbps={most}")

        done = subprocess.run(
            [*groups.joining(group), sys.executable, "-c", code], text=True, capture_output=True, check=True
        )

    assert json.loads(done.stdout) == [[device.name, "read_bps", most, str(group)]]
