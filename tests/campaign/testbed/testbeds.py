"""Testbeds as they may be found, and real ones that are taken away whatever happens."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from campaign.testbed import apply, serving, throttle
from campaign.testbed.spec import GB, Speed, StorageRequest
from campaign.testbed.state import LoopDevice, StorageState, TestbedState
from campaign.testbed.throttle import CgroupV1Limits

BED = Path("/bed")
HDD, SSD = Speed(163.0, 133.14), Speed(280.55, 195.05)
SMALL = {"hdd": StorageRequest(HDD, 64_000_000)}
BOOT = "boot-1"


def storage(name, **changes):
    return StorageState(BED / f"{name}.img", BED / name, **changes)


def up_and_running(name, loop, speed, owner=(1000, 1000), **changes):
    """A storage as `up` leaves it."""
    facts = {"size_bytes": 3 * GB, "allocated_bytes": 0, "point_there": True, "loops": (loop,), "mounted": loop.path}
    says = StorageRequest(speed).facts(name)
    return storage(name, **(facts | {"marker_facts": says, "owner": owner, "costs": costs_of(says)} | changes))


def costs_of(says):
    """What `up` measured, in this boot, of a storage that says so of itself."""
    return {"boot_id": BOOT, "storage": says, "request_cpu_s": 1e-5}


def bed_state(storages=None, *, numbers=None, device_limits=None, exists=True, **changes):
    """A testbed: without storages there is nothing yet; `numbers` makes it one that has its marker."""
    storages = {"hdd": storage("hdd"), "ssd": storage("ssd")} if storages is None else storages
    storage_facts = {
        name: StorageRequest(speed).facts(name) for name, speed in (("hdd", HDD), ("ssd", SSD)) if name in storages
    }
    marker = None if numbers is None else {"schema": 1, "storages": storage_facts, "boot_id": BOOT, "numbers": numbers}
    free_loops = tuple(LoopDevice(f"/dev/loop{n}", f"7:{n}") for n in range(3, 9))
    facts = {
        "folder": BED,
        "exists": exists,
        "marker": marker,
        "leftovers": (),
        "foreign_names": (),
        "storages": storages,
    }
    facts |= {
        "device_limits": device_limits or CgroupV1Limits(Path("/blkio"), {}),
        "free_loops": free_loops,
        "free_bytes": 100 * GB,
        "boot_id": BOOT,
    }
    return TestbedState(**(facts | changes))


def limited(*pairs):
    """Version 1 with bounds for these devices."""
    return CgroupV1Limits(Path("/blkio"), {number: speed.limits() for number, speed in pairs})


def texts(groups):
    return [str(step) for group in groups for step in group]


def required():
    """Skip where no loop device can be made and throttled."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("losetup", "mkfs.ext4", "mount"))):
        pytest.skip("a testbed needs root, losetup, mkfs.ext4 and mount")
    bounds = throttle.find_throttle()
    if getattr(bounds, "hindrance", None):
        pytest.skip(bounds.hindrance[0])
    if not Path("/dev/loop-control").exists():
        pytest.skip("a testbed needs loop devices")


def measure_briefly(change=setattr):
    """Let `up` measure what serving costs in one short window; `change` sets an attribute of a module."""
    change(serving, "_TIMES", 1)
    change(serving, "_WINDOW_S", 0.01)


def bounds(number):
    """What the kernel says that a device is bounded to."""
    throttled = throttle.find_throttle()
    steps = throttled.steps(number, {})
    return {step.path.name: step.text for step in steps}


def attached(folder):
    """What losetup says is attached to files of a folder."""
    done = subprocess.run(
        ["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"], stdout=subprocess.PIPE, check=True
    )
    return [line.split()[0] for line in done.stdout.decode().splitlines() if f"{folder}/" in line]


def traces(folder, numbers=()):
    """Everything that a testbed may leave behind."""
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {folder}/" in line]
    free = (each for each in numbers if not Path(f"/sys/dev/block/{each}/loop/backing_file").exists())  # nobody else's
    left = [*attached(folder), *mounts, *(number for number in free if bounds(number))]
    return left + ([str(folder)] if folder.exists() else [])


def killed_at(step, act):
    """Do `act` in a process that is killed with SIGKILL before its n-th step; tells whether it came so far."""
    pid = os.fork()
    if pid == 0:
        left = iter(range(step))
        do = apply._do_step  # noqa: SLF001 - the steps are counted where they are done

        def counted(each):
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            do(each)

        apply._do_step = counted  # noqa: SLF001
        try:
            act()
        finally:
            os._exit(0)
    return os.waitpid(pid, 0)[1] == signal.SIGKILL
