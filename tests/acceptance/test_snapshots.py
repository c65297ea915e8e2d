"""A burst buffer under kills, damage and full storages: what `save` came back from is found again, byte for byte."""

import itertools
import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from jobs.burst_buffer import BurstBuffer
from tests.acceptance import door

MB = 10**6
DEEDS = {"os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink"}
TRAINER = "import sys; from tests.acceptance.test_snapshots import train; train(*sys.argv[1:])"
SIDES = "fast", "slow"


def contents(step, size=300_000):
    """Return the files of the snapshot of a step."""
    return {"index": str(step).encode(), "shards/data-0": bytes([step % 251]) * size, "empty": b""}


def writer(step, size=300_000):
    """Return what writes them into a folder."""

    def write(folder):
        (folder / "shards").mkdir()
        for name, data in contents(step, size).items():
            (folder / name).write_bytes(data)

    return write


def train(fast, slow, first, end, size):
    """Save these steps in turn, print each that is saved, and be gone without a last word."""
    buffer = BurstBuffer(fast, slow, keep=1)
    for step in range(int(first), int(end)):
        buffer.save(step, writer(step, int(size)))
        print(step, flush=True)
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)


def apart(act, point=None):
    """Do something in a process of its own, which is killed just before its deed of this number and starts no other.

    A deed makes, removes or renames a file or a folder, opens a file to write, or flushes one to the device.
    """
    with tempfile.TemporaryFile("w+", 1) as out, tempfile.TemporaryFile("w+", 1) as err:
        if not (child := os.fork()):
            sys.stdout, sys.stderr, code = out, err, 1
            try:
                warnings.simplefilter("ignore")
                count_deeds(point)
                act()
                code = 0
            except SystemExit as ended:
                code = ended.code or 0
            except BaseException:  # noqa: BLE001 - as Python itself does
                traceback.print_exc()
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return door.Done(code, *((file.seek(0), file.read())[1] for file in (out, err)))


def count_deeds(point):
    numbers, fsync = itertools.count(), os.fsync

    def deed():
        if next(numbers) == point:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event, words):
        if event == "subprocess.Popen":
            raise OSError("this process may start no other")
        if event in DEEDS or (event == "open" and words[2] & (os.O_WRONLY | os.O_RDWR)):
            deed()

    os.fsync = lambda descriptor: (deed(), fsync(descriptor))[1]
    sys.addaudithook(hook)


def here(verb, words):
    """Give `python -m jobs.burst_buffer` in this process."""
    sys.argv = ["burst_buffer", verb, *map(str, words)]
    runpy.run_module("jobs.burst_buffer", run_name="__main__")


def command(verb, *words):
    """Give it in a process of its own, which takes a tenth of the time of a new one."""
    return apart(partial(here, verb, words))


def save(places, *steps, size=300_000, **options):
    with closing(BurstBuffer(*places, **{"keep": 1, **options})) as buffer:
        for step in steps:
            buffer.save(step, writer(step, size))


def saved(places, *steps, **options):
    """Save these steps while nobody drains."""
    done = apart(lambda: save(places, *steps, **options))
    assert done.code == 0, done.err


def newest(*places, size=300_000):
    """Return the step of the snapshot that is restored, whose every byte is compared."""
    done = command("restore", *places)
    assert done.code == 0, done.err
    files = door.files(Path(done.out.strip()))
    step = int(files["index"])
    assert files == contents(step, size)
    return step


def newest_of(slow, **size):
    """Return what is restored from the slow side alone, on a node where nothing is."""
    with tempfile.TemporaryDirectory() as node:
        return newest(node, slow, **size)


def listed(*places):
    """Return step, state and side of each copy."""
    lines = map(str.split, command("list", *places).out.splitlines())
    return [(int(name.split("step")[1].split("-")[0]), state, Path(side).name) for name, state, side in lines]


def on_both(*steps):
    return [(step, "complete", side) for side in SIDES for step in steps]


def rot(folder, step):
    """Change a byte in the middle of the copy of a step that is below a folder."""
    (index,) = [path for path in folder.rglob("index") if path.read_text() == str(step)]
    with (index.parent / "shards" / "data-0").open("r+b") as data:
        data.seek(150_000)
        data.write(b"\xff")


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """Return the folder of a buffer that keeps one snapshot: step 0 is on both sides, step 1 on the fast one alone."""
    folder = tmp_path_factory.mktemp("begun")
    places = folder / "fast", folder / "slow"
    saved(places, 0)
    assert command("drain", *places).code == 0
    saved(places, 1)
    return folder


@pytest.fixture
def places(begun, tmp_path):
    """Return the sides of a copy of that buffer."""
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)
    return tmp_path / "fast", tmp_path / "slow"


def killed_everywhere(begin, folder, act, stride):
    """Do something again and again, killed before each of its deeds in turn; yield the sides after each kill."""
    for point in itertools.count(step=stride):
        begin(folder / str(point))
        places = [folder / str(point) / side for side in SIDES]
        done = apart(partial(act, places), point)
        if done.code != -signal.SIGKILL:
            assert (done.code, point > 9) == (0, True), done.err
            return
        yield places


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("act", "steps"), [(lambda places: save(places, 2), {1, 2}), (partial(here, "drain"), {1})], ids=["save", "drain"]
)
def test_a_kill_at_any_deed_loses_nothing_and_the_next_drainer_ends_what_was_begun(begun, tmp_path, act, steps, stride):
    found = []
    for places in killed_everywhere(partial(shutil.copytree, begun), tmp_path, act, stride):
        found.append(newest(*places))
        assert newest_of(places[1]) in {0, found[-1]}
        assert command("drain", *places).code == 0
        assert listed(*places) == on_both(found[-1])
        assert newest_of(places[1]) == found[-1]
    assert (found, set(found)) == (sorted(found), steps)


def test_a_trainer_killed_at_any_deed_of_its_opening_can_start_again(tmp_path):
    for places in killed_everywhere(Path.mkdir, tmp_path, lambda places: BurstBuffer(*places).close(), 3):
        saved(places, 2)
        assert (command("drain", *places).code, listed(*places)) == (0, on_both(2))


@pytest.mark.parametrize(("side", "step"), [(0, "2"), (1, "1")])
def test_all_that_a_copy_consists_of_is_flushed_to_the_device_before_it_counts(places, side, step):
    def act():
        fsync = os.fsync
        os.fsync = lambda descriptor: (print(os.fstat(descriptor).st_ino), fsync(descriptor))[1]
        here("drain", places) if side else save(places, 2)

    flushed = set(apart(act).out.split())

    (files,) = [path.parent for path in places[side].rglob("index") if path.read_text() == step]
    assert {str(path.stat().st_ino) for path in (places[side], files.parent, *files.parent.rglob("*"))} <= flushed


def test_a_drainer_goes_on_when_its_trainer_is_killed(places, tmp_path):
    done = door.script(TRAINER, *places, 2, 4, 300_000, cwd=tmp_path)

    assert (done.code, done.out) == (-signal.SIGKILL, "2\n3\n")
    door.wait(lambda: listed(*places) == on_both(3), 60)
    assert newest(*places) == newest_of(places[1]) == 3


@pytest.mark.parametrize(("options", "why"), [("size=3m", "No space left"), ("ro", "Read-only")])
def test_a_full_or_forbidden_slow_side_keeps_the_fast_copies_until_it_is_mended(small_disk, tmp_path, options, why):
    places, size = (tmp_path / "fast", small_disk / "slow"), 2 * MB
    saved(places, 1, 2, size=size, snapshot_bytes=size, keep=2, attempts=2, backoff_s=0.01)
    subprocess.run(["mount", "-o", f"remount,{options}", small_disk], check=True)

    done = command("drain", *places)
    kept = newest(*places, size=size)
    subprocess.run(["mount", "-o", "remount,rw,size=16m", small_disk], check=True)

    assert (done.code, door.is_one_cure(done.err), why in done.err, kept) == (3, True, True, 2)
    assert command("drain", *places).code == 0
    assert listed(*places) == on_both(1, 2)
    assert newest_of(places[1], size=size) == 2


def test_a_full_fast_side_is_waited_for_until_the_drainer_has_made_room(small_disk, tmp_path):
    places = small_disk / "fast", tmp_path / "slow"

    done = door.script(TRAINER, *places, 0, 6, MB, cwd=tmp_path)

    assert (done.code, done.out.split(), command("drain", *places).code) == (-signal.SIGKILL, list("012345"), 0)
    assert newest(*places, size=MB) == 5


def test_a_full_fast_side_that_nobody_drains_is_told_and_the_last_snapshot_kept(small_disk, tmp_path):
    places, size = (small_disk / "fast", tmp_path / "slow"), 13 * MB // 10

    assert apart(lambda: save(places, snapshot_bytes=4 * MB)).code == 1
    done = apart(lambda: save(places, 1, 2, 3, size=size))

    assert (done.code, str(places[0]) in done.err, newest(*places, size=size)) == (1, True, 2)
    assert listed(*places) == [(step, "waiting", "fast") for step in (1, 2)]


@pytest.mark.parametrize(("rotten", "found"), [((0,), 1), ((1,), 1), ((0, 1), 0)])
def test_a_damaged_copy_is_named_and_a_whole_one_restored(places, rotten, found):
    assert listed(*places) == [(0, "complete", "fast"), (1, "waiting", "fast"), (0, "complete", "slow")]
    saved(places, keep=2)
    assert command("drain", *places).code == 0
    for side in rotten:
        rot(places[side], 1)

    verified, restored = command("list", "--verify", *places), command("restore", *places)

    bad = [line for line in verified.out.splitlines() if not line.endswith("good")]
    assert (verified.code, newest(*places), "warning: " in restored.err) == (1, found, 0 in rotten)
    for line, side in zip(bad, rotten, strict=True):
        assert all(part in line for part in ("step1", f"{places[side]} ", "data-0"))


def test_a_snapshot_that_is_damaged_before_it_is_drained_never_comes_to_the_slow_side(places):
    rot(places[0], 1)

    done = command("drain", *places)

    assert (done.code, door.is_one_cure(done.err), "step1" in done.err) == (1, True, True)
    assert [step for step, _, side in listed(*places) if side == "slow"] == [newest(*places)] == [0]


@pytest.mark.parametrize("gone", [(), ("--gone",)])
def test_clear_removes_all_snapshots_and_nothing_else(places, tmp_path, gone):
    (places[1] / "thesis.tex").write_text("years")
    if gone:
        shutil.rmtree(places[0])

    assert [command("clear", *gone, *places).code, command("restore", *places).code] == [0, 2]
    assert door.files(tmp_path) == {"slow/thesis.tex": b"years"}


WRONG = """drain fast empty|drain slow fast|restore empty empty|list fast other|clear fast empty|clear empty slow|
clear typo slow|clear fast other|clear --gone fast slow|clear --gone typo fast"""


def test_sides_that_do_not_belong_together_are_refused_and_not_touched(places, tmp_path):
    (tmp_path / "empty").mkdir()
    saved((tmp_path / "third", tmp_path / "other"), 1)
    before = door.files(tmp_path)

    for words in WRONG.replace("\n", "").split("|"):
        verb, *more = words.split()
        done = command(verb, *(word if word == "--gone" else tmp_path / word for word in more))
        assert (done.code, door.is_one_cure(done.err), door.files(tmp_path) == before) == (2, True, True), words


def refused(*places):
    """Say whether a buffer there is refused with one of its folders named."""
    done = apart(lambda: BurstBuffer(*places))
    return done.code == 1 and any(str(place) in done.err.splitlines()[-1] for place in places)


def test_a_second_trainer_is_refused_and_the_first_one_not_cleared(places, tmp_path):
    with closing(BurstBuffer(*places)):
        assert refused(*places)
        assert refused(tmp_path / "another", places[1])
        assert (command("clear", *places).code, (tmp_path / "another").exists()) == (2, False)
    assert newest(*places) == 1


def test_an_unmounted_slow_side_and_folders_with_files_of_others_are_refused_and_not_touched(places, tmp_path):
    shutil.rmtree(places[1])
    places[1].mkdir()
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.tex").write_text("years")
    before = door.files(tmp_path)

    assert all(refused(*each) for each in (places, (home, tmp_path / "a"), (tmp_path / "b", home)))
    assert (door.files(tmp_path), [*places[1].iterdir()]) == (before, [])
