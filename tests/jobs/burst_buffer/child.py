"""A trainer and a drainer that kill themselves at a named edge, and what their snapshots hold.

``child.py save TRAINER_EDGE DRAINER_EDGE STEP FAST SLOW`` and ``child.py drain EDGE FAST SLOW``; the edge
``-`` is never reached.  ``child.py train STEP FAST SLOW`` saves from that step on until it is killed, and prints
the process id of its drainer and then each step that `save` has come back from.
"""

import hashlib
import itertools
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from jobs.burst_buffer import bucket, drain_loop, drain_process, slow_storage, snapshots
from jobs.burst_buffer import buffer as burst_buffer
from jobs.system import durable

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


def kill_at(wanted, before=lambda: None):
    def edge(name):
        if name == wanted:
            before()
            os.kill(os.getpid(), signal.SIGKILL)

    for module in (snapshots, drain_loop, slow_storage, bucket, burst_buffer):
        module.edge = edge


def save(trainer_edge, drainer_edge, step, fast, slow):
    drain_process.COMMAND = (sys.executable, __file__, "drain", drainer_edge)

    def drainer_is_dead():
        if drainer_edge != "-":
            for process in drain_process.left_running:
                process.wait()

    kill_at(trainer_edge, drainer_is_dead)
    if trainer_edge in ("removing", "removed"):
        durable.free_bytes = lambda folder: 0 if len(snapshots.names(Path(fast))) > 1 else 1 << 40
    buffer = burst_buffer.BurstBuffer(fast, slow, keep=1, snapshot_bytes=1)
    buffer.save(int(step), writer(int(step)))


def train(step, fast, slow):
    drain_process.COMMAND = (sys.executable, __file__, "drain", "-")
    buffer = burst_buffer.BurstBuffer(fast, slow, keep=2)
    print(drain_process.left_running[-1].pid, flush=True)
    for each in itertools.count(int(step)):
        buffer.save(each, writer(each))
        print(each, flush=True)


if __name__ == "__main__":
    bucket.PART_BYTES = 100_000  # so that a file has several objects
    if sys.argv[1] == "save":
        save(*sys.argv[2:])
    elif sys.argv[1] == "train":
        train(*sys.argv[2:])
    else:
        kill_at(sys.argv[2])
        sys.exit(drain_loop.drain(Path(sys.argv[3]), slow_storage.place_of(sys.argv[4]), sys.stdin.fileno()))
