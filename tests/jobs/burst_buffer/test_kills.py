"""SIGKILL of the trainer, the drainer or both at every edge of the state machine; then a restart."""

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from jobs.burst_buffer import BurstBuffer, drain_loop, drain_process, lease, restart, snapshots
from jobs.burst_buffer.marker import MARKER_NAME
from tests.jobs.burst_buffer.child import contents, writer
from tests.jobs.jobs_factory import eventually

pytestmark = pytest.mark.long

CHILD = str(Path(__file__).with_name("child.py"))
SAVING = ("marked", "staging", "written", "synced", "sealed", "staged")
EVICTING = ("removing", "removed")
DRAINING = ("copying", "written", "synced", "copied", "committed", "removing", "removed")


@pytest.fixture
def folders(tmp_path):
    """A buffer that keeps one snapshot: step 0 is committed, step 1 staged, nobody at work."""
    folders = tmp_path / "fast", tmp_path / "slow"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drain_process.Drainer, "poke", lambda self: None)
        with contextlib.closing(BurstBuffer(*folders, keep=1)) as buffer:
            buffer.save(0, writer(0))
            assert drain_loop.drain(*folders) == 0
            buffer.save(1, writer(1))
    return folders


def child(*words):
    done = subprocess.run([sys.executable, CHILD, *map(str, words)], stdin=subprocess.DEVNULL, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL, "the edge was not reached"


def newest_step(folders):
    """The step of the newest verified snapshot, compared byte for byte with what was saved."""
    files = restart.latest(*folders)
    step = int(re.search(r"step(\d+)", files.parent.name)[1])
    found = {}
    with contextlib.suppress(FileNotFoundError):
        found = {str(p.relative_to(files)): p.read_bytes() for p in files.rglob("*") if p.is_file()}
    if found != contents(step) and not files.exists():  # a drainer at work: it has committed a newer one
        return newest_step(folders)
    assert found == contents(step)
    return step


def visible_are_whole(folders):
    found = [snapshots.verify(root / name) for root in folders for name in snapshots.names(root)]
    return not any(found)  # a drainer that is still at work may have let one go: None


def temporary(folders):
    return [path.name for root in folders for path in root.iterdir() if re.match(r"[a-z]+-\d|\.\.", path.name)]


@pytest.mark.parametrize("edge", [*SAVING, *EVICTING])
def test_a_trainer_killed_at(edge, folders):
    child("save", edge, "-", 2, *folders)

    assert newest_step(folders) in ({2} if edge == "staged" else {1})
    assert visible_are_whole(folders)

    assert drain_loop.drain(*folders) == 0  # waits for the dead trainer's drainer

    step = newest_step(folders)
    assert step in ({2} if edge in ("sealed", "staged") else {1})
    assert visible_are_whole(folders)
    assert temporary(folders) == []
    assert newest_step((folders[1], folders[1])) == step  # the slow storage alone has it


def test_a_trainer_killed_between_the_two_markers_can_start_again(tmp_path):
    folders = tmp_path / "fast", tmp_path / "slow"
    child("save", "marked", "-", 1, *folders)
    assert [(root / MARKER_NAME).exists() for root in folders] == [False, True]

    with contextlib.closing(BurstBuffer(*folders)) as buffer:
        buffer.save(2, writer(2))
        assert buffer.drained(30)

    assert newest_step(folders) == 2


@pytest.mark.parametrize("edge", DRAINING)
def test_a_drainer_killed_at(edge, folders):
    child("drain", edge, *folders)

    assert newest_step(folders) == 1
    assert visible_are_whole(folders)
    assert newest_step((folders[1], folders[1])) == (0 if DRAINING.index(edge) < 4 else 1)

    assert drain_loop.drain(*folders) == 0

    assert newest_step(folders) == newest_step((folders[1], folders[1])) == 1
    assert temporary(folders) == []
    assert [len(snapshots.names(root)) for root in folders] == [1, 1]


@pytest.mark.parametrize(("saving", "draining"), [*itertools.product(SAVING[1:], DRAINING)])
def test_both_killed_at(saving, draining, folders):
    child("save", saving, draining, 2, *folders)

    assert newest_step(folders) in ({2} if saving == "staged" else {1})
    assert visible_are_whole(folders)

    with contextlib.closing(BurstBuffer(*folders, keep=1)) as buffer:  # the next job
        buffer.save(3, writer(3))
        assert buffer.drained(30)
    assert drain_loop.drain(*folders) == 0

    assert newest_step(folders) == newest_step((folders[1], folders[1])) == 3
    assert visible_are_whole(folders)
    assert temporary(folders) == []


def test_a_drainer_ends_when_its_trainer_is_killed(folders):
    child("save", "staged", "-", 2, *folders)

    assert eventually(lambda: newest_step((folders[1], folders[1])) == 2)
    with lease.lock(folders[0], "drainer").acquire(timeout=30):  # it has ended
        assert temporary(folders) == []


def test_the_next_save_starts_a_drainer_where_the_last_one_was_killed(folders):
    with contextlib.closing(BurstBuffer(*folders, keep=1)) as buffer:
        assert buffer.drained(30)
        process = drain_process.left_running[-1]
        process.kill()
        process.wait()

        with pytest.warns(restart.DrainWarning, match="ended with code -9"):
            buffer.save(2, writer(2))

        assert buffer.drained(30)
    with lease.lock(folders[0], "drainer").acquire(timeout=30):
        assert newest_step((folders[1], folders[1])) == 2


@pytest.mark.parametrize("seed", range(6))
def test_what_save_came_back_from_is_found_after_kills_at_any_moment(tmp_path, seed):
    folders, random = (tmp_path / "fast", tmp_path / "slow"), Random(seed)  # noqa: S311
    acknowledged = -1
    for _ in range(2):
        trainer = subprocess.Popen(
            [sys.executable, CHILD, "train", str(acknowledged + 1), *map(str, folders)],
            stdout=subprocess.PIPE,
            text=True,
        )
        drainer_pid = int(trainer.stdout.readline())
        time.sleep(random.uniform(0.05, 0.5))
        victims = random.choice([[trainer.pid], [trainer.pid, drainer_pid], [drainer_pid, trainer.pid]])
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            time.sleep(random.choice([0, 0.01]))
        acknowledged = max([acknowledged, *map(int, trainer.communicate(timeout=30)[0].split())])

        if acknowledged >= 0:
            assert newest_step(folders) >= acknowledged
        assert visible_are_whole(folders)

    assert drain_loop.drain(*folders) == 0

    if acknowledged >= 0:
        assert newest_step((folders[1], folders[1])) >= acknowledged
    assert visible_are_whole(folders)
    assert temporary(folders) == []
