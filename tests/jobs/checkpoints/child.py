"""Trainers and a drainer that are killed, and what their snapshots hold.

``child.py save MOMENT STEP FAST SLOW`` kills itself while it writes (``writing``) or when `save` has come back
(``saved``); ``child.py drain FAST SLOW`` drains.  ``child.py train STEP FAST SLOW`` saves from that step on until it is
killed, and prints the process id of its drainer and then each step that `save` has come back from.
"""

import hashlib
import itertools
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from jobs.burst_buffer import BurstBuffer
from jobs.checkpoints import drain_loop, drain_process
from jobs.store import bucket

STEP_S = 0.05  # of a training; a drainer that is killed all the time would never end otherwise
SIZES = {"ckpt.index": 100, "shards/ckpt.data-0": 300_001, "empty": 0}


def contents(step):
    """The bytes of a step's snapshot, by file: the truth that tests compare with."""
    return {
        name: (hashlib.sha256(f"{step} {name}".encode()).digest() * (size // 32 + 1))[:size]
        for name, size in SIZES.items()
    }


def writer(step, size=None):
    """Return a function that writes a step's snapshot, or one file of `size` bytes."""

    def write(folder):
        files = contents(step) if size is None else {"blob": bytes([step % 256]) * size}
        for name, data in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(data)

    return write


def _die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def save(moment, step, *places):
    buffer = BurstBuffer(*places, snapshot_bytes=1)
    buffer.save(int(step), _die if moment == "writing" else writer(int(step)))
    _die()


def train(step, *places):
    buffer = BurstBuffer(*places, keep=2)
    print(drain_process.left_running[-1].pid, flush=True)
    for each in itertools.count(int(step)):
        buffer.save(each, writer(each))
        print(each, flush=True)
        time.sleep(STEP_S)


def drain(*places):
    sys.exit(drain_loop.drain_snapshots(*places, sys.stdin.fileno()))


if __name__ == "__main__":
    bucket.PIECE_BYTES = 100_000  # so that a file has several objects
    drain_process.COMMAND = (sys.executable, __file__, "drain")
    {"save": save, "train": train, "drain": drain}[sys.argv[1]](*sys.argv[2:])
