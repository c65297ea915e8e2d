"""What the group `checkpoint` says reaches the runs, and what it cannot mean is refused with the cure."""

import itertools
import os
from contextlib import nullcontext

import pytest
from filelock import FileLock, Timeout

from campaign.cells.cell import make_cell
from campaign.cells.cell_plan import PlannedCell
from campaign.cells.folder import open_or_create
from campaign.cli import run
from campaign.config import rules
from campaign.config.collect import collect_points, make_cells
from campaign.errors import EnvironmentFaultError, UsageError
from campaign.storage import checkpoint_targets
from campaign.storage.locks import hold_storage
from jobs.checkpoints.run_snapshots import storages_by_role
from jobs.errors import ObjectStoreError
from jobs.system.device import Mount
from tests.campaign.work_lists import WORDS, compose, walk, work_list

SITE = """\
storages:
  hdd: {root: /mnt/hdd}
  optane: {root: /mnt/optane}
  scratch: {root: /scratch/me}
  ceph: {kind: s3, endpoint: https://s3.example.org, bucket: mine, prefix: ours, region: eu-1}
"""
OBJECTS = ("storage=s3", "storage.endpoint=http://h:1", "storage.bucket=other")
ALEXNET = ("benchmark=alexnet", "iterations=4", "checkpoint.every=2")


@pytest.fixture
def of_mine(site):
    """Compose words of a training with a site of the user's own."""
    mine = site(SITE)
    return lambda *words: collect_points(["-m", *mine, "benchmark=alexnet", *words])


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (["checkpoint=hdd"], {"only": ("hdd", "/mnt/hdd")}),
        (["checkpoint=hdd", "checkpoint.root=/x"], {"only": ("hdd", "/x")}),
        (["checkpoint=hdd", "storage=hdd", "storage.root=/y"], {"only": ("hdd", "/y")}),
        (["checkpoint=site", "checkpoint.name=scratch"], {"only": ("scratch", "/scratch/me")}),
        (["checkpoint=ssd"], {"only": ("ssd", None)}),
        (["checkpoint=local", "storage=hdd"], {"only": ("local", "data")}),
        (["checkpoint=burst_buffer"], {"fast": ("optane", "/mnt/optane"), "slow": ("hdd", "/mnt/hdd")}),
        (["checkpoint=burst_buffer", "checkpoint.fast.name=scratch", "checkpoint.slow.root=/z"], {"fast": ("scratch",
         "/scratch/me"), "slow": ("hdd", "/z")}),
        (["checkpoint=burst_buffer", "checkpoint.slow.name=ceph"], {"fast": ("optane", "/mnt/optane"), "slow": ("ceph",
         "https://s3.example.org/mine/ours?region=eu-1")}),
        (["checkpoint=burst_buffer", "checkpoint.slow.name=s3", *OBJECTS], {"fast": ("optane", "/mnt/optane"),
         "slow": ("s3", "http://h:1/other?region=us-east-1&timeout_s=30.0")}),
    ],
)  # fmt: skip
def test_a_target_lies_where_the_site_says_its_storages_are(of_mine, words, where):
    (point,) = of_mine(*words)

    found = {
        role: (storage["name"], storage["root"]) for role, storage in storages_by_role(point["checkpoint"]).items()
    }
    assert found == where


def test_the_device_below_a_bucket_is_no_part_of_a_cell_and_reaches_the_run(tmp_path):
    address, cells = "https://h/b/p?region=eu-1", []
    for device in ("", "&device=/dev/x", "&device=/dev/y"):
        words = f"checkpoint.fast.root={tmp_path}", f'checkpoint.slow.root="{address}{device}"'
        cells += make_cells([compose(*ALEXNET, "checkpoint=burst_buffer", *words)])[0]

    assert len({cell.id for cell in cells}) == 1
    item = {"id": "cell", "settings": cells[1].settings, "access": cells[1].access}
    item["targets"] = checkpoint_targets.target_roots(cells[1].settings)
    folders = checkpoint_targets.snapshot_request(item, {"drain_timeout_s": 1}, "mine")["folders"]
    assert folders == [f"{tmp_path}/checkpoints/cell", "https://h/b/p/checkpoints/mine/cell?region=eu-1&device=/dev/x"]
    assert checkpoint_targets.used_paths({**item, "dataset": {"path": ""}}) == [str(tmp_path)]


def test_two_campaigns_have_two_places_in_a_bucket_and_each_keeps_its_own(tmp_path):
    sides = f"checkpoint.fast.root={tmp_path}", "checkpoint.slow.root=https://h/b"
    cells, conduct = make_cells([compose(*ALEXNET, "checkpoint=burst_buffer", *sides)])
    data = {cells[0].id: {"path": str(tmp_path), "lock": str(tmp_path / "lock"), "checksum": "c"}}

    def asked(name, *earlier):
        where = open_or_create(tmp_path / name)[0]
        request = run._make_request(where, conduct, WORDS, after=[{"token": token} for token in earlier])  # noqa: SLF001
        return where, request.work_list("local", [PlannedCell(cells[0], "planned", 1, 1)], data)

    (folder, mine), *others = asked("a", "first"), asked("a"), asked("a"), asked("a copy", "first")
    template, _ = walk(folder, mine)
    own = mine["campaign_id"]
    assert template.asked[0][0]["checkpoint"]["folders"][1].startswith(f"https://h/b/checkpoints/{own}/{cells[0].id}?")
    assert len({own, *(work["campaign_id"] for _, work in others)}) == 4
    assert asked("a", "first", "second")[1]["campaign_id"] == own


@pytest.mark.parametrize(
    ("data", "storage", "more", "places"),
    [
        ({}, {}, {}, ["/d", "/t"]),
        ({"staged": {"root": "/fast"}}, {}, {"nodes": 2}, ["/d", "/fast", "/t"]),
        ({"folder": "/d/own"}, {}, {}, ["/d/own", "/t"]),
        ({}, {"node_root": "/n{rank}"}, {}, ["/n0/.", "/t"]),
        ({}, {"node_root": "/n{rank}"}, {"nodes": 2}, ["/n0/.", "/n1/.", "/t"]),
    ],
)
def test_what_a_cell_uses_of_a_machine_is_where_its_ranks_read_the_copies_and_the_targets(data, storage, more, places):
    item = {"dataset": {"path": "/d", **data}, "targets": ["https://h/b", "/t"]}
    item["settings"] = {"storage": {"root": "/d", "node_root": None, **storage}, **more}

    assert [*map(os.path.normpath, checkpoint_targets.used_paths(item))] == [*map(os.path.normpath, places)]


def test_a_bucket_that_does_not_answer_is_told_before_anything_is_started(monkeypatch, tmp_path):
    def away(bucket):
        raise ObjectStoreError(f"{bucket} is away", "try again")

    monkeypatch.setattr(checkpoint_targets.Bucket, "entries", away)
    sides = f"checkpoint.fast.root={tmp_path}", "checkpoint.slow.root=https://h/b"

    with pytest.raises(EnvironmentFaultError, match=r"https://h/b/checkpoints.* is away"):
        checkpoint_targets.require_storages(compose(*ALEXNET, "checkpoint=burst_buffer", *sides))


@pytest.mark.parametrize("exclusive", ["lock", "none"])
def test_without_a_home_folder_a_bucket_is_locked_in_the_campaign_folder_or_not_at_all(folder, monkeypatch, exclusive):
    monkeypatch.setenv("HOME", "/proc/nowhere")
    item = {"dataset": {"lock": "", "path": "s3://b/x"}, "targets": ["https://h/b"], "access": {"exclusive": exclusive}}

    if exclusive == "none":
        assert [lock.parent for lock in checkpoint_targets.target_locks(item, folder)] == [folder.root]
    else:
        with pytest.raises(EnvironmentFaultError, match=r"storage.exclusive=lock: cannot make the lock file"):
            checkpoint_targets.target_locks(item, folder)


@pytest.fixture
def saved(tmp_path):
    """Cells that save straight to a storage and through a burst buffer, whose roots are there."""
    roots = [tmp_path / name for name in ("one", "fast", "slow")]
    for root in roots:
        root.mkdir()
    sides = f"checkpoint.fast.root={roots[1]}", f"checkpoint.slow.root={roots[2]}"
    targets = ("checkpoint=hdd", f"checkpoint.root={roots[0]}"), ("checkpoint=burst_buffer", *sides)
    return make_cells([compose(*ALEXNET, *target) for target in targets])


def test_each_cell_has_a_folder_of_its_own_on_each_storage_of_its_target(saved, work, folder, tmp_path):
    assert {argument["checkpoint"] for argument, *_ in walk(folder, work)[0].asked} == {None}  # it saves nothing
    cells, conduct = saved
    template, _ = walk(folder, work_list(folder, cells, {**conduct, "runs": 2, "drain_timeout_s": 7.0}))

    asked = [argument["checkpoint"] for argument, *_ in template.asked]
    places = [[tmp_path / "one"], [tmp_path / "fast", tmp_path / "slow"]]
    assert [each["folders"] for each in asked[::2]] == [
        [str(root / "checkpoints" / cell.id) for root in roots] for cell, roots in zip(cells, places, strict=True)
    ]
    assert {each["drain_timeout_s"] for each in asked} == {7.0}
    assert not any(each["leave"] for each in asked)


def test_the_storages_of_the_target_are_held_during_a_run(saved, folder, tmp_path):
    cells, conduct = saved
    item = work_list(folder, cells, conduct)["cells"][1]
    also = checkpoint_targets.target_locks(item, folder)

    with hold_storage("license", tmp_path / "unused", {}, also) as proof:
        for root in ("fast", "slow"):
            with pytest.raises(Timeout):
                FileLock(tmp_path / root / ".tfio-campaign.lock").acquire(timeout=0)

    assert proof["also"] == [str(tmp_path / root / ".tfio-campaign.lock") for root in ("fast", "slow")]
    assert not (tmp_path / "unused").exists()


def test_the_storage_that_holds_the_dataset_is_held_once(saved, folder, tmp_path):
    cells, conduct = saved
    item = work_list(folder, cells, conduct)["cells"][0]
    item["dataset"]["lock"] = str(tmp_path / "one" / ".tfio-campaign.lock")

    assert checkpoint_targets.target_locks(item, folder) == []


def test_two_cells_that_read_where_the_other_saves_do_not_wait_for_each_other_for_ever(tmp_path, monkeypatch):
    order = []
    monkeypatch.setattr("campaign.storage.locks.acquire_lock", lambda path, _: order.append(path.name) or nullcontext())

    for mine, other in (("a", "b"), ("b", "a")):
        with hold_storage("lock", tmp_path / mine, {}, [tmp_path / other]):
            pass

    assert order == ["a", "b", "a", "b"]


def test_a_target_that_is_not_mounted_is_told_before_anything_is_started(saved, tmp_path):
    cells, _ = saved
    (tmp_path / "slow").rmdir()

    checkpoint_targets.require_storages(cells[0].settings)
    with pytest.raises(EnvironmentFaultError) as refused:
        checkpoint_targets.require_storages(cells[1].settings)

    assert str(tmp_path / "slow") in refused.value.message
    assert "checkpoint.slow.root=…" in refused.value.hint


def test_a_target_that_is_unmounted_between_two_runs_takes_no_more(saved, folder, monkeypatch):
    cells, conduct = saved
    before, after = Mount("/mnt", "hdd", "ext4", "rw"), Mount("/", "vda", "ext4", "rw")
    mounts = itertools.chain([before] * 2, itertools.repeat(after))  # of the beginning, the first run, later ones
    monkeypatch.setattr(checkpoint_targets, "mount_of", lambda _: next(mounts))

    template, (recorded,) = walk(folder, work_list(folder, cells[:1], {**conduct, "runs": 3}))

    first, second = recorded["runs"]
    assert len(template.asked) == 1
    assert first["status"] == "valid"
    assert (second["status"], second["end"]["code"]) == ("failed", "storage_moved")
    assert "was on hdd (mounted at /mnt) when the worker started, but is on vda now" in second["end"]["words"]


def test_a_relative_root_belongs_to_the_folder_the_campaign_is_started_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cell = make_cell(compose(*ALEXNET, "checkpoint=local"))

    checkpoint_targets.require_storages(cell.settings)

    assert checkpoint_targets.target_roots(cell.settings) == [str(tmp_path / "data")]
    assert (tmp_path / "data").is_dir()


def test_one_storage_under_two_names_is_no_burst_buffer(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "other").symlink_to("one")
    sides = [f"checkpoint.{side}.root={tmp_path / name}" for side, name in (("fast", "one"), ("slow", "other"))]

    with pytest.raises(UsageError, match="are both in"):
        rules.check_point(compose("benchmark=alexnet", "checkpoint=burst_buffer", *sides))
