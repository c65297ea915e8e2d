"""What the tests of the burst buffer share: buffers filled and closed, what lies where, and the verbs by hand."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from jobs.burst_buffer import BurstBuffer, lease, snapshots
from jobs.burst_buffer.__main__ import main
from jobs.burst_buffer.drain_journal import Failure, Journal
from tests.jobs.burst_buffer.child import writer

ROOT = Path(__file__).parents[3]


def saved(folders, *steps, size=None, **options):
    """Save these steps in a buffer and close it; returns the names of the snapshots."""
    with closing(BurstBuffer(*folders, **options)) as buffer:
        return [buffer.save(step, writer(step, size)).name for step in steps]


def steps(root, state=None):
    return [snapshots.step(name) for name in snapshots.names(root, state)]


def reasons(fast):
    """What the journal says of the failures of a drain."""
    return [event["reason"] for event in Journal(fast).read(Failure)[0]]


def blob(folder):
    return (folder / "blob").read_bytes()


def bytes_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def drainer_ended(fast):
    """Wait until no drainer is at work."""
    with lease.lock(fast, "drainer"):
        pass


def waits_for_drainer(fast):
    """Say whether somebody waits for the lock of the drainer (proc(5), /proc/locks)."""
    file = f":{Path(lease.lock(fast, 'drainer').lock_file).stat().st_ino} "
    return any("->" in line and file in line for line in Path("/proc/locks").read_text().splitlines())


def in_this_process(capsys, *words):
    """Give a verb as by hand, but here; returns its exit code and what it printed."""
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, words)))
    return ended.value.code, *capsys.readouterr()


def command(verb, *folders):
    return [sys.executable, "-m", "jobs.burst_buffer", verb, *map(str, folders)]


def by_hand(verb, *folders, stdout=subprocess.PIPE):
    return subprocess.run(
        command(verb, *folders), cwd=ROOT, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
