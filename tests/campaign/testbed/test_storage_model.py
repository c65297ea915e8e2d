"""The server under an emulated storage, for real: its bytes, what each parameter and fault does, what it counts.

No time of a clock is asserted: the server says how long requests took and by how much the machine was late for them;
the difference is the model's.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from campaign.testbed.spec import Disk, Flash, Server, Speed
from tests.campaign.testbed.models import BLOCK, MB, built, needed, read, serving, write

MIB = 1 << 20
PLACES = [turn * 7919 % (64 * MB // BLOCK) * BLOCK for turn in range(1, 13)]  # a prime: they lie scattered


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The program; that the compiler warns of nothing is part of each test."""
    needed()
    return built(tmp_path_factory.mktemp("model"))


@pytest.fixture
def flash(program, tmp_path):
    with serving(program, tmp_path, "flash") as model:
        yield model


def in_turn(device):
    for place in range(4):
        read(device, MIB, place * MIB)


def small_in_turn(device):
    for place in range(8):
        read(device, MIB // 8, place * MIB // 8)


def scattered(device):
    for place in PLACES:
        read(device, BLOCK, place)


def at_once(device):
    with ThreadPoolExecutor(len(PLACES)) as pool:
        list(pool.map(lambda place: read(device, BLOCK, place), PLACES))


def large(device):
    for place in range(0, 48, 12):
        read(device, MIB, place * MIB)


def cached(device):
    for place in range(4):
        write(device, bytes(MIB), place * MIB)


def written(device):
    cached(device)
    os.fsync(device)


ONE_DISK = {"disks": 1, "osts": 1}
EFFECTS = [  # a value of less time, one of more
    ("disk", "read_mb_per_s", 160, 20, in_turn, {}),
    ("disk", "write_mb_per_s", 160, 20, written, {}),
    ("disk", "path_us", 1000, 0, cached, {}),
    ("disk", "seek_track_ms", 0.1, 30, scattered, {}),
    ("disk", "seek_average_ms", 8.5, 60, scattered, {"capacity_gb": 0.1}),
    ("disk", "capacity_gb", 4000, 0.1, scattered, {"seek_average_ms": 60}),
    ("disk", "rpm", 7200, 1200, scattered, {}),
    ("disk", "queue", 32, 1, at_once, {"rpm": 1200}),
    ("disk", "cache_mb", 16, 1, cached, {"write_mb_per_s": 40}),
    ("disk", "interface_mb_per_s", 550, 50, cached, {}),
    ("flash", "read_mb_per_s", 280, 40, in_turn, {}),
    ("flash", "write_mb_per_s", 280, 40, cached, {}),
    ("flash", "path_us", 2000, 0, scattered, {"read_us": 3000}),
    ("flash", "read_us", 100, 3000, scattered, {}),
    ("flash", "write_us", 50, 10000, written, {}),
    ("flash", "channels", 8, 1, at_once, {"read_us": 10000}),
    ("server", "read_mb_per_s", 2000, 20, in_turn, {}),
    ("server", "write_mb_per_s", 1000, 40, cached, {}),
    ("server", "path_us", 2000, 0, cached, {"round_trip_us": 5000}),
    ("server", "round_trip_us", 100, 10000, cached, {}),
    ("server", "metadata_us", 1000, 40000, scattered, {}),
    ("server", "seek_average_ms", 8.5, 40, scattered, {}),
    ("server", "rpm", 7200, 600, scattered, {}),
    ("server", "disk_mb_per_s", 163, 10, large, {}),
    ("server", "disks", 64, 1, at_once, {"osts": 1}),
    ("server", "osts", 64, 1, at_once, {"disks": 1}),
    ("server", "stripe_mib", 0.0625, 64, at_once, {"disks": 1}),
    ("server", "read_ahead_mb", 64, 0, small_in_turn, {"round_trip_us": 20000, "read_mb_per_s": 10}),
]


def took_s(program, folder, effect, value):
    """What the model gives the requests of an effect with one value of its key, in s."""
    kind, key, _, _, act, others = effect
    with serving(program, folder, kind, **others | {key: value}) as model, model.opened() as device:
        assert model.state["parameters"][key] == value
        return model.model_s(lambda: act(device))


@pytest.mark.parametrize("effect", EFFECTS, ids=lambda effect: f"{effect[0]}.{effect[1]}")
def test_each_parameter_takes_its_time(program, tmp_path, effect):
    """A reader that this machine holds up for 2 ms is one of another file to a server: so one pair of ten must do."""
    _, _, less, more, _, _ = effect
    pairs = ([took_s(program, tmp_path, effect, value) for value in (less, more)] for _ in range(10))

    assert any(slow > 1.3 * fast > 0 for fast, slow in pairs)


def flushed_one_by_one(device):
    for place in range(4):
        write(device, bytes(BLOCK), place * BLOCK)
        os.fsync(device)


def test_each_flush_of_a_log_costs_a_turn_for_the_head_has_gone_on(program, tmp_path):
    with serving(program, tmp_path, "disk") as model, model.opened() as device:
        took = model.model_s(lambda: flushed_one_by_one(device))

    assert took > 3 * 60 / 7200 / 1.5  # the model's own seconds; the machine's are left out


@pytest.mark.skipif(not shutil.which("fio"), reason="fio is not installed")
def test_a_read_is_not_overtaken_for_ever_by_writes_that_continue_each_other(program, tmp_path):
    """Two seconds of writes come at once, and each is where the arm is."""
    words = "fio --name=x --rw=write --bs=1M --size=40M --ioengine=libaio --direct=1 --iodepth=32 --allow_file_create=0"
    slow = {"write_mb_per_s": 20, "queue": 4, "cache_mb": 1}
    with serving(program, tmp_path, "disk", **slow) as model, model.opened() as device:
        command = [*words.split(), f"--filename={model.folder / 'device'}"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as writer:
            while model.state["in_flight"] < 8:
                assert writer.poll() is None
            read(device, BLOCK, 60 * MIB)
            assert model.state["in_flight"] > 0


def test_a_file_beside_one_that_was_read_is_another_one_on_a_server(program, tmp_path):
    """It pays for its own call and its own seek: nobody here knows where files end, but when they are read."""
    with serving(program, tmp_path, "server") as model, model.opened() as device:
        took = []
        for place in range(4):
            took.append(model.model_s(lambda place=place: read(device, BLOCK, place * BLOCK)))
            time.sleep(0.005)

    assert min(took) > 0.0095


def test_no_parameter_is_without_effect():
    speed = {field.name for field in dataclasses.fields(Speed)} - {"read_mb_per_s", "write_mb_per_s"}
    keys = {
        (kind.__name__.lower(), name)
        for kind in (Disk, Flash, Server)
        for name in kind.__struct_fields__
        if name not in speed | {"size_gb"}
    }

    assert {effect[:2] for effect in EFFECTS} == keys


@pytest.mark.parametrize("kind", ["disk", "flash", "server"])
def test_what_was_written_is_read_whatever_comes_at_once_and_is_counted(program, tmp_path, kind):
    pieces = {turn * 48 * BLOCK: os.urandom(BLOCK * (1, 3, 1, 40)[turn % 4]) for turn in range(300)}
    with serving(program, tmp_path, kind, rpm=60000, seek_track_ms=0.01, seek_average_ms=0.02) as model:
        with model.opened() as device, ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda piece: write(device, piece[1], piece[0]), pieces.items()))
            os.fsync(device)
            found = list(pool.map(lambda piece: read(device, len(piece[1]), piece[0]), pieces.items()))
            straddling = read(device, MIB, 64 * MB // BLOCK * BLOCK - BLOCK)
            with pytest.raises(OSError, match="No space left"):
                write(device, bytes(BLOCK), 64 * MB)
        state = model.state
        image = (tmp_path / "image").read_bytes()

    moved = sum(map(len, pieces.values()))
    assert found == list(pieces.values())
    assert all(image[place : place + len(piece)] == piece for place, piece in pieces.items())
    assert len(straddling) == BLOCK
    assert (state["reads"], state["writes"], state["flushes"]) == (len(pieces) + 1, len(pieces) + 1, 1)
    assert (state["read_bytes"], state["written_bytes"], state["in_flight"]) == (moved + BLOCK, moved, 0)
    assert state["queue_s"] >= state["busy_s"] > 0


def failures(device, places):
    """Which of these reads fail, and how."""
    failed = []
    for place in places:
        try:
            read(device, BLOCK, place)
        except OSError as error:
            failed.append((error.errno, place))
    return failed


def test_faults_fail_what_they_name_and_nothing_more(flash):
    places = range(0, 12 * BLOCK, BLOCK)
    with flash.opened() as device:
        flash.fault(eio_every=4)
        every = failures(device, places)
        flash.fault(eio_every=0, eio_from=2 * BLOCK, eio_to=3 * BLOCK + 1)
        region = failures(device, places)
        with pytest.raises(OSError, match="Input/output error"):
            write(device, b"x" * BLOCK, 2 * BLOCK)
        flash.fault(eio_from=0, eio_to=0, spike_every=6, spike_ms=40)
        spikes = flash.model_s(lambda: failures(device, places))
        flash.fault(spike_every=0)
        calm = flash.model_s(lambda: failures(device, places))
        flash.fault(eio_every=0.5, spike_every=0.5)
        assert failures(device, places) == []

    assert len(every) == 3
    with (flash.folder.parent / "image").open("rb") as image:
        assert image.read(3 * BLOCK) == bytes(3 * BLOCK)  # not what could not be written
    assert region == [(errno.EIO, 2 * BLOCK), (errno.EIO, 3 * BLOCK)]
    assert spikes == pytest.approx(calm + 2 * 0.040, abs=0.010)
    assert flash.state["spoiled"] == len(every) + len(region) + 1 + 2


def test_a_server_that_hangs_is_asked_and_goes_on_and_one_that_disconnects_is_gone(flash):
    with flash.opened() as device, ThreadPoolExecutor(1) as pool:
        flash.fault(hang=1)
        asked = pool.submit(read, device, BLOCK, 0)
        while not flash.state["in_flight"]:
            assert not asked.done()
        flash.fault(hang=0)
        assert asked.result() == bytes(BLOCK)
        with pytest.raises(OSError, match="not connected"):
            flash.fault(disconnect=1)
        with pytest.raises(OSError, match="not connected"):
            read(device, BLOCK, 0)


REFUSED = ["eio_every", "eio_every -1", "spike_ms 1e300", "eio_every nan", "eio_every 1\nmore 2", "x" * 9000]


@pytest.mark.parametrize("words", REFUSED)
def test_a_fault_that_is_none_is_refused_and_changes_nothing(flash, words):
    with pytest.raises(OSError, match="Invalid argument"):
        (flash.folder / "faults").write_text(words)

    assert not any(flash.state["faults"].values())


@pytest.mark.parametrize("words", [[], ["kind=tape"], ["kind=disk", "rpm=fast"], ["kind=disk", "rpm"], ["kind=flash"]])
def test_a_command_line_that_makes_no_model_is_refused_before_anything_is_mounted(program, tmp_path, words):
    (tmp_path / "image").touch()

    done = subprocess.run([program, tmp_path, tmp_path / "image", *words], capture_output=True, check=False)

    assert done.returncode == 1
    assert b"storage_model: " in done.stderr


def test_others_see_the_state_and_neither_bytes_nor_faults(flash):
    done = [
        subprocess.run(["cat", name], cwd=flash.folder, user=65534, capture_output=True, check=False)
        for name in ("state", "device", "faults")
    ]

    assert [each.returncode for each in done] == [0, 1, 1]
    assert (flash.folder / "faults").read_text().splitlines()[-1] == "disconnect 0"
