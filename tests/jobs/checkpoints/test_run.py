"""The snapshots of a run: asked for by settings, named in its record, proved, and gone when it is over."""

import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from jobs import checks
from jobs.burst_buffer import snapshots
from jobs.checkpoints import run as checkpoint
from jobs.checkpoints.direct import Direct
from jobs.checkpoints.run import DEFAULTS, DEFAULTS_BUFFERED
from jobs.data import manifest
from jobs.errors import BurstBufferError, FolderError, RoomError
from jobs.system import durable
from tests.jobs.jobs_factory import check, make_alexnet_settings, request_of, write_classes
from tests.lies import setup

CHILD = Path(__file__).parents[1] / "burst_buffer" / "child.py"
DIRECT = {"name": "hdd", "root": "/hdd", **DEFAULTS, "every": 2}
BUFFERED = {
    "name": "burst_buffer",
    "fast": {"name": "optane", "root": "/optane"},
    "slow": {"name": "hdd", "root": "/hdd"},
    **DEFAULTS_BUFFERED,
    "every": 2,
}
LONG_STEPS = {"accelerator": "emulated", "step_s": 0.1}
TIMES = ("blocked_s", "write_s", "drain_s", "exposed_s", "durable_fast_s", "durable_slow_s")


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classes")
    write_classes(folder, files=32)
    return folder


def places(node, tmp_path):
    roots = [tmp_path / storage["name"] for storage in checkpoint.roles(node).values()]
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
        (tmp_path / "held" / manifest.MANIFEST_NAME).write_text(manifest.scan(classes).to_json(), encoding="utf-8")
        settings = make_alexnet_settings(batch_size=4, width=0.1, checkpoint=node, **changes)
        saved = asked(places(node, tmp_path), drain_timeout_s=drain_timeout_s)
        request = request_of(classes, settings, manifest=str(tmp_path / "held"), trace=trace, checkpoint=saved)
        return template.run(request, tmp_path / "run.log", 120)

    return run


@pytest.mark.shows("checkpoint.every")
def test_every_so_many_steps_there_is_a_snapshot(save):
    figures = save({**DIRECT, "every": 3})

    assert figures["status"] == "valid", figures["reason"]
    assert [line["step"] for line in figures["checkpoints"]] == [3, 6]
    assert all(line["bytes"] >= figures["state_bytes"] for line in figures["checkpoints"])
    assert all(line["bytes"] < figures["state_bytes"] + 20_000 for line in figures["checkpoints"])


def test_the_seconds_that_training_stood_still_are_a_part_of_the_runtime_and_the_drain_is_none(save):
    figures = save(BUFFERED, **LONG_STEPS)

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
    assert figures["drain_wait_s"] >= figures["checkpoints"][-1]["exposed_s"] - 0.1


@pytest.mark.shows("checkpoint.mode")
def test_in_the_background_training_stands_still_for_the_copy_alone(save):
    figures = save({**DIRECT, "mode": "async", "every": 4}, **LONG_STEPS)

    first, last = figures["checkpoints"]
    assert figures["status"] == "valid", figures["reason"]
    assert first["blocked_s"] < first["write_s"] < first["durable_fast_s"]
    assert (
        figures["checkpoint_finish_s"] >= last["durable_fast_s"] - last["blocked_s"] - 0.01
    )  # for the last one it waits
    assert figures["checkpoint_s"] >= figures["checkpoint_finish_s"]


@pytest.mark.parametrize("node", [DIRECT, BUFFERED, {**BUFFERED, "mode": "async"}], ids=["direct", "buffer", "async"])
def test_a_run_proves_its_snapshots_and_leaves_nothing_of_them(save, tmp_path, node):
    figures = save({**node, "keep": 2})

    found = check(figures, "checkpoints_durable")
    assert found["passed"] is True, found
    assert (found["observed"]["verified"], found["limit"]["verified"]) == (4, 4)
    assert found["observed"]["written_share"] >= 1
    assert figures["written_bytes"] >= sum(line["bytes"] for line in figures["checkpoints"])
    assert [target["storage"] for target in figures["targets"]] == [path.parts[-3] for path in places(node, tmp_path)]
    for folder in places(node, tmp_path):
        assert list(folder.parent.iterdir()) == []


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
    end = max(float(row[1]) for row in rows if row[-1].strip('"') == "iteration")
    assert figures["drain_wait_s"] > 1
    assert tail[-1] - end == pytest.approx(figures["drain_wait_s"] + 0.3, abs=0.3)
    assert figures["wall_s"] < end + 0.1


@pytest.mark.shows("drain_timeout_s")
def test_a_drain_that_does_not_end_in_time_makes_the_run_invalid(save, tmp_path):
    figures = save({**BUFFERED, "bandwidth_mb_per_s": 2.0}, drain_timeout_s=0.5)

    assert figures["status"] == "invalid"
    assert "checkpoints_durable: " in figures["reason"]
    assert "the drain was not over after drain_timeout_s=0.5" in figures["reason"]
    assert check(figures, "checkpoints_durable")["observed"]["verified"] < 4
    assert None in [line["durable_slow_s"] for line in figures["checkpoints"]]
    for folder in places(BUFFERED, tmp_path):
        assert list(folder.parent.iterdir()) == []


def test_a_storage_too_small_for_all_that_is_kept_ends_the_run_before_the_training(save, tmp_path, staged):
    staged(setup.memory, tmp_path / "hdd", 8)

    figures = save(DIRECT)

    assert figures["status"] == "failed"
    assert "snapshots of 3 MB do not fit" in figures["log_tail"]


def opened(node, folders, **changes):
    return checkpoint.opened(node, asked(folders, **changes), lambda: (4, 1000))


@pytest.mark.shows(
    "checkpoint.keep",
    "checkpoint.when_full",
    "checkpoint.bandwidth_mb_per_s",
    "checkpoint.direct",
    "checkpoint.streams",
)
@pytest.mark.parametrize(
    ("key", "value"),
    [("keep", 3), ("when_full", "fall_through"), ("bandwidth_mb_per_s", 7.0), ("direct", True), ("streams", 3)],
)
def test_each_key_of_a_target_reaches_it(tmp_path, key, value, monkeypatch):
    given = []

    def buffer(*folders, **options):
        given.append(options)
        for folder in folders:
            folder.mkdir()
        return Direct(tmp_path / "other")

    monkeypatch.setattr(checkpoint, "BurstBuffer", buffer)

    with opened({**BUFFERED, key: value}, places(BUFFERED, tmp_path)):
        pass

    assert given == [{"snapshot_bytes": 1000, "keep": 5, **{k: BUFFERED[k] for k in _OF_DRAIN}, key: value}]


_OF_DRAIN = ("when_full", "bandwidth_mb_per_s", "direct", "streams")


@pytest.mark.parametrize(
    ("planned", "keep", "told"),
    [
        ((3, 1_000), 5, ""),
        ((4, 1_000), 5, "4 snapshots of 0 MB do not fit on .*/hdd/"),
        ((9, 1_000), 2, ""),
        ((9, 1_000), 3, "4 snapshots of 0 MB do not fit on .*/hdd/"),
        ((1, 1 << 60), 5, "does not fit"),
        ((0, 1_000), 5, "every=2 is more than there are steps"),
    ],
)
def test_all_that_lie_on_the_last_storage_at_once_must_fit(tmp_path, monkeypatch, planned, keep, told):
    monkeypatch.setattr(durable, "free_bytes", lambda _: 3_999)
    folders = places(DIRECT, tmp_path)

    with pytest.raises((RoomError, BurstBufferError), match=told) if told else nullcontext():  # noqa: SIM117
        with checkpoint.opened({**DIRECT, "keep": keep}, asked(folders), lambda: planned):
            pass

    assert not folders[0].exists()


def test_files_of_somebody_else_in_the_cells_folder_are_refused_and_stay_and_a_missing_storage_is_named(tmp_path):
    (folder,) = places(DIRECT, tmp_path)
    folder.mkdir(parents=True)
    (folder / "thesis.tex").write_text("years")

    for place, told in ((folder, "thesis.tex"), (tmp_path / "gone" / "checkpoints" / "cell", "is missing")):
        with pytest.raises(FolderError, match=told), opened(DIRECT, [place]):
            pass

    assert (folder / "thesis.tex").read_text() == "years"


def test_the_next_run_of_a_cell_tidies_up_after_one_that_was_killed(tmp_path):
    folders = places(BUFFERED, tmp_path)
    for folder in folders:
        folder.parent.mkdir()
    killed = subprocess.run([sys.executable, CHILD, "save", "staged", "-", "1", *folders], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert snapshots.names(folders[0])

    with opened(BUFFERED, folders):
        left = [name for folder in folders for name in snapshots.names(folder)]

    assert left == []
    assert [list(folder.parent.iterdir()) for folder in folders] == [[], []]


def test_by_hand_the_snapshots_stay_and_the_next_run_adds_its_own_and_a_buffer_is_drained(job, classes, tmp_path):
    words = [str(classes), "--batch-size", "4", "--image-size", "32", "--width", "0.05", "--cache", "as_is"]
    words += ["--accelerator", "cpu", "--every", "4", "--checkpoint"]
    mine, fast, slow = (str(tmp_path / name) for name in ("mine", "f", "s"))

    told = [
        job("by_hand", benchmark="alexnet", words=[*words, *more])
        for more in ([mine], [mine, "--background"], [fast, "--drain-to", slow])
    ]

    assert [code for _, code in told] == [0, 0, 0]
    assert [snapshots.step(name) for name in snapshots.names(tmp_path / "mine")] == [4, 8, 4, 8]
    assert [line["where"] for line in told[-1][0]["checkpoints"]] == ["fast", "fast"]
    assert len(snapshots.names(tmp_path / "s")) == 2


def test_by_hand_a_folder_of_somebody_else_ends_with_two(job, classes, tmp_path):
    assert job("by_hand", benchmark="alexnet", words=[str(classes), "--checkpoint", str(classes)]) == [None, 2]


LINES = [{"verified": True}, {"verified": True}]
RUN = {
    "checkpoints_asked": 2,
    "checkpoints": LINES,
    "checkpoint_troubles": [],
    "targets": [{"storage": "hdd", "source": "dsk/sda", "bytes": 2000, "written_bytes": 2500}],
}


def _sides(fast, slow, *, one_device=False, image_on_fast=False):
    return [
        {"storage": "optane", "source": "dsk/nvme0n1", "bytes": 2000, "written_bytes": fast},
        {
            "storage": "hdd",
            "source": "dsk/nvme0n1" if one_device else "dsk/sda",
            "bytes": 2000,
            "written_bytes": slow,
            **({"below": ["dsk/nvme0n1", "dsk/vda"]} if image_on_fast else {}),
        },
    ]


@pytest.mark.parametrize(
    ("changes", "passed"),
    [
        ({}, True),
        ({"checkpoints": LINES[:1]}, False),
        ({"checkpoints": [{"verified": True}, {"verified": False}]}, False),
        ({"checkpoints_asked": 0, "checkpoints": []}, False),
        ({"targets": [{**RUN["targets"][0], "written_bytes": 1999}]}, False),
        ({"targets": [{**RUN["targets"][0], "source": None, "written_bytes": None}]}, None),
        ({"targets": _sides(2000, 2000)}, True),
        ({"targets": _sides(2000, 1000)}, False),
        ({"targets": _sides(2000, None)}, None),
        ({"targets": _sides(3999, 3999, one_device=True)}, False),
        ({"targets": _sides(4000, 4000, one_device=True)}, True),
        ({"targets": _sides(3999, 2000, image_on_fast=True)}, False),
        ({"targets": _sides(4000, 2000, image_on_fast=True)}, True),
    ],
)
def test_snapshots_are_durable_where_each_was_read_back_and_its_bytes_came_to_the_device(changes, passed):
    assert checks.checkpoints_durable({**RUN, **changes}, checks.Limits())["passed"] is passed
