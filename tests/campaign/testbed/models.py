"""The server of a storage's model by itself: built, mounted, asked, and taken away whatever happens."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from campaign.testbed.spec import model_source

MB = 10**6
BLOCK = 4096
DISK = {
    "read_mb_per_s": 163, "write_mb_per_s": 133.14, "path_us": 0, "seek_track_ms": 1, "seek_average_ms": 8.5,
    "rpm": 7200, "capacity_gb": 4000, "queue": 32, "cache_mb": 16, "interface_mb_per_s": 550,
}  # fmt: skip
FLASH = {
    "read_mb_per_s": 280.55, "write_mb_per_s": 195.05, "path_us": 0, "read_us": 100, "write_us": 50, "channels": 8,
}  # fmt: skip
SERVER = {
    "read_mb_per_s": 1968, "write_mb_per_s": 992, "path_us": 0, "round_trip_us": 100, "metadata_us": 1000,
    "seek_average_ms": 8.5, "rpm": 7200, "disk_mb_per_s": 163, "disks": 8, "osts": 24, "stripe_mib": 1,
    "read_ahead_mb": 64,
}  # fmt: skip
KINDS = {"disk": DISK, "flash": FLASH, "server": SERVER}


def needed():
    """Skip where no model can be served."""
    if os.geteuid() != 0 or not shutil.which("cc") or not Path("/dev/fuse").exists():
        pytest.skip("a model needs root, a C compiler and FUSE")


def built(folder, *flags):
    """The program, as `testbed up` builds it but for its flags."""
    program = folder / "model"
    subprocess.run(
        ["cc", "-O2", "-Wall", "-Wextra", "-Werror", *flags, "-o", program, model_source(), "-lm"], check=True
    )
    return program


class Model:
    """A model that is served."""

    def __init__(self, folder):
        self.folder = folder

    @property
    def state(self):
        return json.loads((self.folder / "state").read_text())

    def fault(self, **faults):
        (self.folder / "faults").write_text("".join(f"{key} {value}\n" for key, value in faults.items()))

    @contextlib.contextmanager
    def opened(self):
        """Its device, for direct I/O."""
        device = os.open(self.folder / "device", os.O_RDWR | os.O_DIRECT)
        try:
            yield device
        finally:
            with contextlib.suppress(OSError):  # it is disconnected
                os.close(device)

    def model_s(self, act):
        """What the model itself gave the requests of `act`, in s: what the machine added is left out."""
        before = self.state
        act()
        after = self.state
        return sum(sign * (after[key] - before[key]) for key, sign in (("queue_s", 1), ("late_s", -1)))


@contextlib.contextmanager
def serving(program, folder, kind, **parameters):
    """The model of a sparse image of 64 MB."""
    image, point = folder / "image", folder / "model-of-it"
    point.mkdir()
    image.touch(mode=0o600)
    os.truncate(image, 64 * MB // BLOCK * BLOCK)
    words = [f"{key}={value}" for key, value in (KINDS[kind] | parameters).items()]
    subprocess.run([program, point, image, f"kind={kind}", *words], check=True)
    try:
        yield Model(point)
    finally:
        subprocess.run(["umount", "--lazy", point], check=True)
        point.rmdir()
        image.unlink()


def room(data):
    """Memory that direct I/O takes."""
    memory = mmap.mmap(-1, len(data))
    memory[:] = data
    return memory


def read(device, size, off):
    memory = mmap.mmap(-1, size)
    return memory[: os.preadv(device, [memory], off)]


def write(device, data, off):
    assert os.pwritev(device, [room(data)], off) == len(data)
