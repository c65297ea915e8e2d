"""The snapshots of a run: asked for by settings, named in its record, proved, and gone when it is over."""

import os
import signal
import subprocess
import sys
from contextlib import closing, nullcontext
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock

import pytest

from jobs import checks
from jobs.checkpoints import run_snapshots as checkpoint
from jobs.checkpoints import snapshots
from jobs.checkpoints.buffer import DirectTarget
from jobs.checkpoints.snapshots import Snapshots
from jobs.data import manifest
from jobs.errors import BurstBufferError, FolderError, RoomError
from jobs.model import settings
from jobs.model.declared import declared_defaults
from jobs.store.folder import Folder
from jobs.system import files, page_cache
from tests.jobs.checkpoints.shared import snapshots_in
from tests.jobs.jobs_factory import check, make_alexnet_settings, request_of, write_classes
from tests.lies import setup

CHILD = Path(__file__).with_name("child.py")
DIRECT = {**declared_defaults(settings.DirectCheckpoint), "name": "hdd", "root": "/hdd", "every": 2}
SIDES = {"fast": {"name": "optane", "root": "/optane"}, "slow": {"name": "hdd", "root": "/hdd"}}
BUFFERED = {**declared_defaults(settings.BufferedCheckpoint), "name": "burst_buffer", **SIDES, "every": 2}
LONG_STEPS = {"accelerator": "emulated", "step_s": 0.1}
MIB = 1 << 20
TIMES = ("blocked_s", "write_s", "drain_s", "exposed_s", "durable_fast_s", "durable_slow_s")


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classes")
    write_classes(folder, files=32)
    return folder


def places(node, tmp_path):
    roots = [tmp_path / storage["name"] for storage in checkpoint.storages_by_role(node).values()]
    for root in roots:
        root.mkdir(exist_ok=True)
    return [root / "checkpoints" / "cell" for root in roots]


def asked(folders, **changes):
    return {"folders": [str(folder) for folder in folders], "drain_timeout_s": 60.0, "leave": False, **changes}


@pytest.fixture
def save(template, tmp_path, classes):
    """Train eight steps on small images and save as a node `checkpoint` says; returns the figures of the run."""

    def run(node, *, trace=None, drain_timeout_s=60.0, **changes):
        (tmp_path / "held").mkdir(exist_ok=True)
        (tmp_path / "held" / manifest.MANIFEST_NAME).write_text(
            manifest.scan_folder(classes).to_json(), encoding="utf-8"
        )
        settings = make_alexnet_settings(batch_size=4, width=0.1, checkpoint=node, **changes)
        saved = asked(places(node, tmp_path), drain_timeout_s=drain_timeout_s)
        request = request_of(classes, settings, manifest=str(tmp_path / "held"), trace=trace, checkpoint=saved)
        return template.run(request, tmp_path / "run.log", 120)

    return run


def undisturbed(train, holds):
    """Train until something holds that a time slice of another program may prevent, three times at most."""
    for _ in range(3):
        figures = train()
        if holds(figures):
            break
    return figures


def waits_for_its_drain(figures):
    return figures["drain_wait_s"] >= figures["checkpoints"][-1]["exposed_s"] - 0.1


def test_the_seconds_that_training_stood_still_are_a_part_of_the_runtime_and_the_drain_is_none(save):
    figures = undisturbed(lambda: save(BUFFERED, **LONG_STEPS), waits_for_its_drain)

    blocked_s = sum(line["blocked_s"] for line in figures["checkpoints"])
    assert figures["checkpoint_s"] == pytest.approx(blocked_s + figures["checkpoint_finish_s"], rel=0.1)
    assert check(figures, "time_adds_up")["passed"]
    assert figures["wall_parts"] == ["startup_s", "load_s", "compute_s", "checkpoint_s", "other_s"]
    for line in figures["checkpoints"]:
        assert line.keys() >= {*TIMES}
        assert 0 < line["write_s"] < line["durable_fast_s"] <= line["blocked_s"]
        assert 0 < line["drain_s"] < line["durable_slow_s"]
        assert line["durable_slow_s"] > line["durable_fast_s"]
        assert 0 <= line["exposed_s"] <= line["drain_s"]
    assert figures["checkpoints"][-1]["exposed_s"] > 0  # the last one is saved at the last step
    assert waits_for_its_drain(figures)


def waits_for_the_last_one(figures):
    last = figures["checkpoints"][-1]
    return figures["checkpoint_finish_s"] >= last["durable_fast_s"] - last["blocked_s"] - 0.01


def test_in_the_background_training_stands_still_for_the_copy_alone(save):
    background = {**DIRECT, "mode": "async", "every": 4}
    figures = undisturbed(lambda: save(background, **LONG_STEPS), waits_for_the_last_one)

    first, _ = figures["checkpoints"]
    assert figures["status"] == "valid", figures["reason"]
    assert first["blocked_s"] < first["write_s"] < first["durable_fast_s"]
    assert waits_for_the_last_one(figures)
    assert figures["checkpoint_s"] >= figures["checkpoint_finish_s"]


@pytest.mark.parametrize(
    "node",
    [{**DIRECT, "every": 3, "keep": 1}, {**BUFFERED, "keep": 2}, {**BUFFERED, "keep": 2, "mode": "async"}],
    ids=["direct", "buffer", "async"],
)
def test_a_run_proves_each_of_its_snapshots_and_leaves_nothing_of_them(save, tmp_path, node):
    figures = save(node)

    steps = [step for step in range(1, 9) if step % node["every"] == 0]
    proof = check(figures, "checkpoints_durable")
    assert [(line["step"], line["verified"]) for line in figures["checkpoints"]] == [(step, True) for step in steps]
    last = figures["checkpoints"][-1]
    assert all(0 <= line["bytes"] - figures["state_bytes"] < 20_000 for line in figures["checkpoints"])
    assert (proof["passed"], proof["observed"]["verified"], proof["limit"]["verified"]) == (True, *[len(steps)] * 2)
    assert proof["observed"]["written_share"] >= 1
    assert figures["restore_mb_per_s"] == pytest.approx(last["bytes"] / 1e6 / figures["restore_s"])
    assert figures["restore_resident"] in (0.0, None)
    assert figures["written_bytes"] >= sum(line["bytes"] for line in figures["checkpoints"])
    assert [target["storage"] for target in figures["targets"]] == [path.parts[-3] for path in places(node, tmp_path)]
    for folder in places(node, tmp_path):
        assert list(folder.parent.iterdir()) == []


def test_a_snapshot_is_read_back_from_the_disk_below_a_loop_device_not_from_the_memory_of_its_file(
    disk, staged, monkeypatch
):
    image, verify, left = disk / "image", Snapshots.verify, list[int]()
    root = staged(setup.disk, image, disk / "point").point / "cell"
    monkeypatch.setattr(
        Snapshots, "verify", lambda *of: (left.append(page_cache.residency([image]).resident), verify(*of))[1]
    )
    with closing(DirectTarget(root)) as target:
        target.save(1, lambda folder: (folder / "blob").write_bytes(os.urandom(4 * MIB)))
    with closing(checkpoint.RunSnapshots(DIRECT, [Folder(root)], 60.0, MIB)) as made:
        assert page_cache.residency([image]).resident >= 4 * MIB // page_cache.PAGE_BYTES
        figures = made.metrics()

    assert figures["restore_resident"] == left[-1] == 0


def test_a_snapshot_on_a_loop_device_whose_file_is_in_memory_is_not_read_back_cold(tmp_path, staged):
    image = staged(setup.memory, tmp_path / "memory", 100) / "image"
    root = staged(setup.disk, image, tmp_path / "point").point / "cell"
    with closing(DirectTarget(root)) as target:
        target.save(1, lambda folder: (folder / "blob").write_bytes(os.urandom(MIB)))

    with closing(checkpoint.RunSnapshots(DIRECT, [Folder(root)], 60.0, MIB)) as made:
        assert made.metrics()["restore_resident"] == 1.0


@pytest.mark.parametrize("control", ["no_compute", "no_io"])
def test_what_does_not_train_or_does_not_read_is_saved_all_the_same(save, control):
    figures = save(DIRECT, control=control)

    assert figures["status"] == "valid", figures["reason"]
    assert figures["state_bytes"] == 12 * figures["parameters"] + 8 > 8
    assert [line["verified"] for line in figures["checkpoints"]] == [True] * 4
    assert bool(figures["step_loss"]) == (control == "no_io")


def test_the_trace_goes_on_until_the_drain_has_ended_and_its_tail(save, tmp_path):
    """The cap makes the drain of 3 MB a snapshot last for seconds."""
    trace = {"interval_s": 0.1, "tail_s": 0.3, "file": str(tmp_path / "trace.csv")}

    figures = save({**BUFFERED, "bandwidth_mb_per_s": 4.0}, trace=trace)

    rows = [line.split(",") for line in (tmp_path / "trace.csv").read_text().splitlines()[2:]]
    tail = [float(row[1]) for row in rows if row[-1].strip('"') == "tail"]
    late_s = max(after - before for before, after in pairwise(tail))  # a busy machine lets a sample wait
    end = max(float(row[1]) for row in rows if row[-1].strip('"') == "iteration")
    assert figures["drain_wait_s"] > 1
    assert tail[-1] - end == pytest.approx(figures["drain_wait_s"] + 0.3, abs=0.2 + late_s)
    assert figures["wall_s"] < end + 0.1


def test_a_drain_that_does_not_end_in_time_makes_the_run_invalid(save, tmp_path):
    figures = save({**BUFFERED, "bandwidth_mb_per_s": 2.0}, drain_timeout_s=0.5)

    assert figures["status"] == "invalid"
    assert "checkpoints_durable: " in figures["reason"]
    assert "the drain has not ended within drain_timeout_s=0.5" in figures["reason"]
    assert check(figures, "checkpoints_durable")["observed"]["verified"] < 4
    assert None in [line["durable_slow_s"] for line in figures["checkpoints"]]
    for folder in places(BUFFERED, tmp_path):
        assert list(folder.parent.iterdir()) == []


def opened(node, folders, **changes):
    return checkpoint.open_target(node, asked(folders, **changes), lambda: (4, 1000))


KEYS = {"keep": 3, "bandwidth_mb_per_s": 7.0, "streams": 3}


@pytest.mark.parametrize(("key", "value"), KEYS.items())
def test_each_key_of_a_target_reaches_it(tmp_path, key, value, monkeypatch):
    given = []

    def buffer(*folders, **options):
        given.append(options)
        for folder in folders:
            Path(str(folder)).mkdir()
        return DirectTarget(tmp_path / "other")

    monkeypatch.setattr(checkpoint, "BurstBuffer", buffer)

    with opened({**BUFFERED, key: value}, places(BUFFERED, tmp_path)):
        pass

    assert given == [{"snapshot_bytes": 1000, **{each: BUFFERED[each] for each in KEYS}, key: value}]


@pytest.mark.parametrize(
    ("node", "planned", "told"),
    [
        (DIRECT, (3, 1_000), ""),
        (DIRECT, (4, 1_000), "4 snapshots of 0 MB do not fit on .*/hdd/"),
        ({**DIRECT, "keep": 2}, (9, 1_000), ""),
        ({**DIRECT, "keep": 3}, (9, 1_000), "4 snapshots of 0 MB do not fit on .*/hdd/"),
        (BUFFERED, (3, 1_000), ""),
        (BUFFERED, (4, 1_000), "4 snapshots of 0 MB do not fit on .*/hdd/"),
        (DIRECT, (1, 1 << 60), "does not fit"),
        (DIRECT, (0, 1_000), "every=2 is more than the number of steps"),
    ],
)
@pytest.mark.usefixtures("idle")
def test_all_that_lie_on_the_last_storage_at_once_must_fit(tmp_path, monkeypatch, node, planned, told):
    monkeypatch.setattr(files, "free_bytes", lambda folder: 3_999 if "hdd" in str(folder) else 1_000)
    folders = places(node, tmp_path)

    with pytest.raises((RoomError, BurstBufferError), match=told) if told else nullcontext():  # noqa: SIM117
        with checkpoint.open_target(node, asked(folders), lambda: planned):
            pass

    assert not any(folder.exists() for folder in folders)


def test_a_bucket_is_asked_for_the_room_of_all_that_it_holds_at_once(tmp_path, monkeypatch, store):
    fast, _ = places(BUFFERED, tmp_path)
    fast.mkdir(parents=True)
    monkeypatch.setattr(checkpoint, "BurstBuffer", Mock())
    slow = f"{store.storage['endpoint']}/bucket/p"
    for left, fits in ((2_999, False), (3_000, True)):
        store.room = {"X-RGW-Bytes-Used": "1000", "X-RGW-Quota-Bucket-Size": str(1000 + left)}
        asked_for = asked([fast, slow], leave=True)
        with nullcontext() if fits else pytest.raises(RoomError, match="3 snapshots of 0 MB do not fit on http"):  # noqa: SIM117
            with checkpoint.open_target({**BUFFERED, "keep": 2}, asked_for, lambda: (9, 1_000)):
                pass


TIMES_UP = [((4.9, False), False), ((5.0, False), True), ((5.1, False), True), ((5.1, True), False)]


@pytest.mark.parametrize(("drain", "late"), TIMES_UP)
def test_a_drain_that_is_not_over_when_its_time_is_up_is_told(tmp_path, monkeypatch, clock, drain, late):
    target = Mock(wait_until_drained=lambda _: clock.sleep(drain[0]) or drain[1], troubles=lambda: ("of the target",))
    monkeypatch.setattr(checkpoint, "DirectTarget", lambda *_, **__: target)
    clock.sleep(-clock.now())  # no digit is lost

    figures = checkpoint.RunSnapshots(DIRECT, [Folder(tmp_path)], 5.0, 1_000).metrics()

    told = ["the drain has not ended within drain_timeout_s=5"] * late
    assert (figures["drain_wait_s"], figures["checkpoint_troubles"]) == (drain[0], [*told, "of the target"])


def test_files_of_somebody_else_in_the_cells_folder_are_refused_and_stay_and_a_missing_storage_is_named(tmp_path):
    (folder,) = places(DIRECT, tmp_path)
    folder.mkdir(parents=True)
    (folder / "thesis.tex").write_text("years")
    gone, file = (
        folder.parents[2] / name / "checkpoints" / "cell" for name in ("gone", "hdd/checkpoints/cell/thesis.tex")
    )

    for place, told in ((folder, "thesis.tex"), (gone, "is missing"), (file, "cannot make .*: Not a directory")):
        with pytest.raises(FolderError, match=told), opened(DIRECT, [place]):
            pass

    assert (folder / "thesis.tex").read_text() == "years"


def test_the_next_run_of_a_cell_tidies_up_after_one_that_was_killed(tmp_path):
    folders = places(BUFFERED, tmp_path)
    for folder in folders:
        folder.parent.mkdir()
    killed = subprocess.run([sys.executable, CHILD, "save", "saved", "1", *folders], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert snapshots_in(folders[0]).names()

    with opened(BUFFERED, folders):
        left = [name for folder in folders for name in snapshots_in(folder).states()]

    assert left == []
    assert [list(folder.parent.iterdir()) for folder in folders] == [[], []]


def test_by_hand_the_snapshots_stay_and_the_next_run_adds_its_own_and_a_buffer_is_drained(job, classes, tmp_path):
    words = [str(classes), "--batch-size", "4", "--image-size", "32", "--width", "0.05", "--cache", "as_is"]
    words += ["--accelerator", "emulated", "--step-s", "0.05", "--every", "4", "--checkpoint"]
    mine, fast, slow = (str(tmp_path / name) for name in ("mine", "f", "s"))

    told = [
        job("by_hand", benchmark="alexnet", words=[*words, *more])
        for more in ([mine], [mine, "--background"], [fast, "--drain-to", slow])
    ]

    assert [code for _, code in told] == [0, 0, 0]
    assert [snapshots.training_step(name) for name in snapshots_in(tmp_path / "mine").names()] == [4, 8, 4, 8]
    assert [line["where"] for line in told[-1][0]["checkpoints"]] == ["fast", "fast"]
    assert len(snapshots_in(tmp_path / "s").names()) == 2


def _sides(fast, slow, device="dsk/sda", **more):
    """The targets of a burst buffer: 2,000 bytes went to each, and so many came to their devices."""
    return [
        {"storage": "optane", "source": "dsk/nvme0n1", "bytes": 2000, "written_bytes": fast},
        {"storage": "hdd", "source": device, "bytes": 2000, "written_bytes": slow, **more},
    ]


ON_FAST = {"below": ["dsk/nvme0n1", "dsk/vda"]}  # the slow one's image lies on the fast one's device


@pytest.mark.parametrize(
    ("verified", "asked_for", "targets", "passed"),
    [
        ([True, True], 2, _sides(2000, 2500)[1:], True),
        ([True], 2, _sides(2000, 2500)[1:], False),
        ([True, False], 2, _sides(2000, 2500)[1:], False),
        ([], 0, _sides(2000, 2500)[1:], False),
        ([True, True], 2, _sides(2000, 2000)[1:], True),
        ([True, True], 2, _sides(2000, 1999)[1:], False),
        ([True, True], 2, _sides(2000, None, None)[1:], None),
        ([True, True], 2, _sides(2000, 2000), True),
        ([True, True], 2, _sides(2000, 1999), False),
        ([True, True], 2, _sides(2000, None), None),
        ([True, True], 2, _sides(3999, 3999, "dsk/nvme0n1"), False),
        ([True, True], 2, _sides(4000, 4000, "dsk/nvme0n1"), True),
        ([True, True], 2, _sides(3999, 2000, **ON_FAST), False),
        ([True, True], 2, _sides(4000, 2000, **ON_FAST), True),
    ],
)
def test_snapshots_are_durable_where_each_was_read_back_and_its_bytes_came_to_the_device(
    verified, asked_for, targets, passed
):
    run = {"checkpoints_asked": asked_for, "checkpoints": [{"verified": each} for each in verified]}
    run |= {"checkpoint_troubles": [], "targets": targets}

    assert checks.checkpoints_durable(run, checks.Limits())["passed"] is passed
