"""What the tests of snapshots share: buffers filled and closed, what lies where, and the verbs by hand."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from jobs.burst_buffer import BurstBuffer, main
from jobs.checkpoints import lease, snapshots
from jobs.checkpoints.drain_loop import STAGED
from jobs.checkpoints.drain_process import DrainFailure, DrainJournal
from jobs.checkpoints.snapshots import Snapshots, store_of
from jobs.store.folder import Folder
from tests.jobs.checkpoints.child import writer

ROOT = Path(__file__).parents[3]


def saved(places, *steps, size=None, **options):
    """Save these steps in a buffer and close it; returns the names of the snapshots."""
    with closing(BurstBuffer(*places, **options)) as buffer:
        return [buffer.save(step, writer(step, size)).name for step in steps]


def snapshots_in(place):
    return Snapshots(store_of(place))


def steps(place, *states):
    return [snapshots.training_step(name) for name in snapshots_in(place).names(*(states or STAGED))]


def reasons(fast):
    """What the journal says of the failures of a drain."""
    return [event["reason"] for event in DrainJournal(fast).read(DrainFailure)[0]]


def blob(folder):
    return (folder / "blob").read_bytes()


def bytes_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def drainer_lock(fast):
    return lease.folder_lock(Folder(Path(fast)), "drainer")


def drainer_ended(fast):
    """Wait until no drainer is at work."""
    with drainer_lock(fast):
        pass


def waits_for_drainer(fast):
    """Say whether somebody waits for the lock of the drainer (proc(5), /proc/locks)."""
    file = f":{Path(drainer_lock(fast).lock_file).stat().st_ino} "
    return any("->" in line and file in line for line in Path("/proc/locks").read_text().splitlines())


def in_this_process(capsys, *words):
    """Give a verb as by hand, but here; returns its exit code and what it printed."""
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, words)))
    return ended.value.code, *capsys.readouterr()


def command(verb, *places):
    return [sys.executable, "-m", "jobs.burst_buffer", verb, *map(str, places)]


def by_hand(verb, *places, stdout=subprocess.PIPE):
    return subprocess.run(
        command(verb, *places), cwd=ROOT, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
