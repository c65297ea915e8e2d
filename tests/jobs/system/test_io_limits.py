"""Limits of control groups on reads and writes, by files as the kernel shows them and by a real group."""

import contextlib
import json
import os
import subprocess
import sys

import pytest

from jobs.system import io_limits
from jobs.system.device import Device, device_of
from tests.lies import groups
from tests.lies.lie import MissingError

V1 = "blkio.throttle.read_bps_device"


@pytest.fixture(autouse=True)
def _the_device(monkeypatch):
    """There is a device 8:16."""
    monkeypatch.setattr(Device, "number", "8:16")


def found(proc):
    limits = io_limits.limits([Device("sdb")], proc)
    return {(limit.kind, limit.per_s, limit.group.rpartition("cgroup")[2]) for limit in limits}


def test_of_version_2_the_limits_of_all_groups_above_act(machine):
    own, above = "8:16 rbps=2097152 wbps=max riops=max wiops=120\n8:32 rbps=1\n", "8:16 rbps=4194304"
    proc = machine(2, {"a/b/io.max": own, "a/io.max": above})

    assert found(proc) == {
        ("read_bps", 2097152, "/a/b"), ("write_iops", 120, "/a/b"), ("read_bps", 4194304, "/a"),
    }  # fmt: skip


def test_of_version_1_those_of_the_own_group_alone_act(machine):
    files = {f"a/b/{V1}": "8:16 2097152\n8:32 1\n", "a/b/blkio.throttle.write_iops_device": "8:16 7\n"}
    proc = machine(1, {**files, f"a/{V1}": "8:16 1000\n"})

    assert found(proc) == {("read_bps", 2097152, "/a/b"), ("write_iops", 7, "/a/b")}


@pytest.mark.parametrize(
    ("version", "files", "path", "hidden"),
    [
        (2, {"a/cgroup.type": "domain", "cgroup.procs": ""}, "/a", False),  # the machine's own top has no type
        (2, {"cgroup.type": "domain"}, "/", True),  # a container's top has one
        (1, {V1: "", "cgroup.type": "?"}, "/", False),  # groups above do not act there
    ],
)
def test_groups_above_are_hidden_in_a_container(version, files, path, hidden, machine):
    assert io_limits.hidden(machine(version, files, path)) is hidden


def test_groups_are_hidden_where_none_is_mounted_and_there_are_none_where_the_kernel_has_none(tmp_path):
    assert io_limits.hidden(tmp_path) is False
    (tmp_path / "cgroup").write_text("0::/\n")
    assert io_limits.hidden(tmp_path) is True


def test_a_real_limit_is_seen_by_the_process_that_it_holds_for(tmp_path, monkeypatch):
    monkeypatch.undo()
    device = device_of(tmp_path)
    if device is None:
        pytest.skip(f"{tmp_path} is on no block device: pass --basetemp on a disk")
    code = (
        "import json\n"
        "from jobs.system import io_limits\n"
        "from jobs.system.device import Device\n"
        f"print(json.dumps(io_limits.limits([Device({device.name!r})])))\n"
    )
    with contextlib.ExitStack() as stack:
        try:
            group = groups.made(stack, f"tfio-test-{os.getpid()}", "blkio")
        except MissingError as error:
            pytest.skip(str(error))
        most = 10**12  # no process of this machine is held back by it
        if (group / V1).exists():
            (group / V1).write_text(f"{device.number} {most}")
        else:
            (group / "io.max").write_text(f"{device.number} rbps={most}")

        done = subprocess.run(
            [*groups.joining(group), sys.executable, "-c", code], text=True, capture_output=True, check=True
        )

    assert json.loads(done.stdout) == [[device.name, "read_bps", most, str(group)]]
