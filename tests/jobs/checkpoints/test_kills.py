"""SIGKILL of trainer and drainer at every step that changes what is stored, and at any moment; then a restart."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from jobs.burst_buffer import BurstBuffer
from jobs.checkpoints import drain_loop, drain_process, restart
from jobs.checkpoints.lease import MARKER_NAME
from tests.jobs.checkpoints.child import contents, writer
from tests.jobs.checkpoints.shared import drainer_lock, saved, snapshots_in, steps
from tests.jobs.durability import killed
from tests.jobs.jobs_factory import eventually

CHILD = [sys.executable, str(Path(__file__).with_name("child.py"))]
MOST_POINTS = 60


def begun(places):
    """Make a buffer that keeps one snapshot: step 0 is committed, step 1 waits, nobody is at work."""
    saved(places, 0, keep=1)
    assert drain_loop.drain_snapshots(*places) == 0
    saved(places, 1, keep=1)


def newest_step(*places):
    """The step of the newest verified snapshot, compared byte for byte with what was saved."""
    files = restart.latest_snapshot(*places)
    step = int(re.search(r"step(\d+)", str(files.parent))[1])
    found = {}
    with contextlib.suppress(FileNotFoundError):
        found = {str(p.relative_to(files)): p.read_bytes() for p in files.rglob("*") if p.is_file()}
    if found != contents(step) and not files.exists():  # a drainer at work: it has committed a newer one
        return newest_step(*places)
    assert found == contents(step)
    return step


def complete_are_whole(*places):
    found = [side.verify(name) for side in map(snapshots_in, places) for name in side.names()]
    return not any(found)  # a drainer that is still at work may have let one go: None


def left_behind(*folders):
    """What is neither ours to keep nor part of a complete snapshot."""
    temporary = [path.name for root in folders for path in Path(root).rglob(".*.tmp")]
    return temporary + [name for root in folders for name in snapshots_in(root).names("incomplete", "unreadable")]


def everywhere(tmp_path, begin, act):
    """Do something again and again, killed at each of its deeds in turn; yields the sides after each kill."""
    for point in range(MOST_POINTS):
        places = tmp_path / f"{point}-fast", tmp_path / f"{point}-slow"
        begin(places)
        if not killed(lambda places=places: act(places), point):
            assert point >= 8
            return
        yield places
    pytest.fail(f"more than {MOST_POINTS} deeds")


@pytest.mark.usefixtures("idle")
def test_a_trainer_killed_at_any_step_of_a_save_loses_nothing(tmp_path):
    found = []
    for places in everywhere(tmp_path, begun, lambda places: saved(places, 2, keep=1)):
        found.append(newest_step(*places))
        assert complete_are_whole(*places)
        assert drain_loop.drain_snapshots(*places) == 0
        assert newest_step(*places) == newest_step(places[1]) == found[-1]  # the slow side alone has it
        assert left_behind(*places) == []
    assert (found, set(found)) == (sorted(found), {1, 2})


@pytest.mark.usefixtures("idle")
def test_a_drainer_killed_at_any_step_loses_nothing_and_the_next_one_ends_what_it_began(tmp_path):
    found = []
    for places in everywhere(tmp_path, begun, lambda places: drain_loop.drain_snapshots(*places)):
        found.append(newest_step(places[1]))
        assert newest_step(*places) == 1
        assert complete_are_whole(*places)
        assert drain_loop.drain_snapshots(*places) == 0
        assert newest_step(places[1]) == 1
        assert left_behind(*places) == []
        assert [len(snapshots_in(place).names()) for place in places] == [1, 1]
    assert (found, set(found)) == (sorted(found), {0, 1})


@pytest.mark.usefixtures("idle")
def test_a_trainer_killed_while_it_opens_its_places_can_start_again(tmp_path):
    for places in everywhere(tmp_path, lambda _: None, lambda places: BurstBuffer(*places)):
        saved(places, 2)
        assert drain_loop.drain_snapshots(*places) == 0
        assert newest_step(places[1]) == 2
        assert all((place / MARKER_NAME).exists() for place in places)


@pytest.mark.long
@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("kind", ["bucket"], indirect=True)
def test_a_drainer_killed_at_any_request_loses_nothing(kind, raw, places, tmp_path, applied):
    """The store kills it: before it does what it is asked for, or when that is done and not answered."""
    begun(places)
    store, found, before = raw.root, [], (dict(raw.root.objects), tmp_path / "before")
    handler = store.RequestHandlerClass
    places[0].rename(before[1])
    for point in range(MOST_POINTS):
        subprocess.run(["cp", "-a", before[1], places[0]], check=True)
        store.objects, asked, drainer = dict(before[0]), [], []

        class Killing(handler):
            def _killed(self, act, point=point, asked=asked, drainer=drainer):
                asked.append(self.path)
                if len(asked) == point + 1:
                    if applied:
                        act()
                    os.kill(drainer[0].pid, signal.SIGKILL)
                else:
                    act()

            def do_PUT(self):  # noqa: N802
                self._killed(super().do_PUT)

            def do_POST(self):  # noqa: N802
                self._killed(super().do_POST)

        store.RequestHandlerClass = Killing
        drainer.append(subprocess.Popen([*CHILD, "drain", *map(str, places)], stdin=subprocess.DEVNULL))
        code = drainer[0].wait(120)
        store.RequestHandlerClass = handler
        if code == 0:
            break
        assert code == -signal.SIGKILL
        assert complete_are_whole(*places)
        found.append(steps(places[1], "complete")[-1])
        assert drain_loop.drain_snapshots(*places) == 0
        assert steps(places[1], "complete") == [1]
        subprocess.run(["rm", "-r", places[0]], check=True)
    assert len(found) > 6
    assert (found, set(found)) == (sorted(found), {0, 1})


@pytest.mark.long
def test_a_drainer_ends_when_its_trainer_is_killed(folders):
    assert subprocess.run([*CHILD, "save", "saved", "2", *folders], check=False).returncode == -signal.SIGKILL

    assert eventually(lambda: steps(folders[1]) == [2])
    with drainer_lock(folders[0]).acquire(timeout=120):  # it has ended
        assert left_behind(*folders) == []


@pytest.mark.long
def test_the_next_save_starts_a_drainer_where_the_last_one_was_killed(folders):
    with contextlib.closing(BurstBuffer(*folders, keep=1)) as buffer:
        buffer.save(1, writer(1))
        assert buffer.wait_until_drained(120)
        process = drain_process.left_running[-1]
        process.kill()
        process.wait()

        with pytest.warns(restart.DrainWarning, match="ended with exit code -9"):
            buffer.save(2, writer(2))

        assert buffer.wait_until_drained(120)
    with drainer_lock(folders[0]).acquire(timeout=120):
        assert newest_step(folders[1]) == 2


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_what_save_came_back_from_is_found_after_kills_at_any_moment(folders, seed):
    random, acknowledged = Random(seed), -1  # noqa: S311
    for _ in range(5):
        words = [*CHILD, "train", str(acknowledged + 1), *map(str, folders)]
        trainer = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        drainer_pid = int(trainer.stdout.readline())
        time.sleep(random.uniform(0.05, 0.5))
        victims = random.choice([[trainer.pid], [trainer.pid, drainer_pid], [drainer_pid, trainer.pid]])
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            time.sleep(random.choice([0, 0.01]))
        acknowledged = max([acknowledged, *map(int, trainer.communicate(timeout=120)[0].split())])

        if acknowledged >= 0:
            assert newest_step(*folders) >= acknowledged
        assert complete_are_whole(*folders)

    assert drain_loop.drain_snapshots(*folders) == 0

    assert acknowledged >= 0
    assert newest_step(folders[1]) >= acknowledged
    assert complete_are_whole(*folders)
    assert left_behind(*folders) == []
