"""Emulated nodes of a testbed: one file system, mounted for each of them past a page cache of its own."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess

import pytest

from campaign import doctor_node as doctor
from campaign.__main__ import run_guarded
from campaign.errors import EnvironmentFaultError
from campaign.storage.roots import require_folder_on_ranks
from campaign.testbed import apply, plan, throttle
from campaign.testbed.spec import Speed, StorageRequest
from campaign.testbed.state import LoopDevice, inspect_testbed
from jobs.system import page_cache
from jobs.system.device import mount_of
from jobs.system.layers import emulated_storage, has_own_cache
from tests.campaign.command_line import TINY
from tests.campaign.testbed.testbeds import (
    BED,
    attached,
    bed_state,
    killed_at,
    measure_briefly,
    required,
    storage,
    texts,
    traces,
)  # fmt: skip

OWNER = (1234, 2345)
NODE = StorageRequest(Speed(60.0, None), 64_000_000, node=True)
NODES = {"node0": NODE, "node1": NODE}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """A testbed with both nodes up, for tests that leave it so."""
    required()
    folder = tmp_path_factory.mktemp("nodes") / "bed"
    with pytest.MonkeyPatch.context() as patch:
        measure_briefly(patch.setattr)
        apply.bring_up(folder, NODES, OWNER)
        yield folder
        apply.take_down(folder)


def written(first):
    """What somebody makes while the nodes are filled: 4 MB."""
    (first.root / "file").write_bytes(bytes(range(256)) * 16_000)
    return 0


def test_the_image_is_marked_before_any_node_has_it_and_each_node_has_it_by_a_name_of_its_own():
    lines = texts(plan.plan_creation(NODES, OWNER, bed_state({name: storage(name) for name in NODES}, numbers=[])))
    made = [line for line in lines if "throttle" not in line and ".tfio-testbed.json" not in line]

    assert [line.split()[0] for line in made] == [
        "install", "truncate", "mkfs.ext4", "sync", "mv",
        "mkdir", "mount", "echo", "install", "umount", "e2fsck", "losetup",
        "ln", "losetup",
        "mkdir", "mount", "#", "mkdir", "mount", "#",
    ]  # fmt: skip
    assert made[6] == "mount -t ext4 -o loop,nosuid,nodev /bed/node0.img /bed/node0"
    assert made[13] == "losetup --find --read-only --direct-io=on --sector-size=4096 /bed/node1.img"
    assert made[18] == "mount -t ext4 -o ro,nosuid,nodev /dev/loop4 /bed/node1"
    assert "7:4 60000000" in " ".join(lines)


@pytest.mark.parametrize("odd", [{"direct": False}, {"read_only": False}])
def test_a_device_that_a_node_must_not_have_is_taken_away_first(odd):
    loop = dataclasses.replace(LoopDevice("/dev/loop0", "7:0", direct=True, read_only=True), **odd)
    facts = {
        "size_bytes": 64_000_000,
        "inode": 7,
        "point_there": True,
        "marker_facts": NODE.facts("node0"),
        "owner": OWNER,
    }
    found = storage("node0", **facts, loops=(loop,), mounted=loop.path)

    lines = texts(plan.plan_creation({"node0": NODE}, OWNER, bed_state({"node0": found}, numbers=["7:0"])))

    assert lines[:2] == [f"umount {BED}/node0", "losetup --detach /dev/loop0"]


def test_what_one_node_reads_is_in_no_other_s_page_cache_and_each_is_bounded(nodes):
    assert apply.write_on_first_node(nodes, written) == 0
    found = inspect_testbed(nodes)
    files = [each.root / "file" for each in found.storages.values()]
    page_cache.evict_pages(files)

    page_cache.read_through(files[:1])

    assert [page_cache.residency([file]).fraction for file in files] == [1.0, 0.0]
    for each, file in zip(found.storages.values(), files, strict=True):
        assert has_own_cache(file)
        assert dict(throttle.find_throttle().limits[each.loops[0].number]) == {"read_bps": 60_000_000}
        assert emulated_storage(file) == {"name": "nodes", "model": None, **dataclasses.asdict(NODE.speed)}
        assert (each.root.stat().st_uid, each.root.stat().st_gid) == OWNER
        with pytest.raises(OSError, match="Read-only file system"):
            file.write_text("x")
    assert {each["state"] for each in apply.storage_states(found).values()} == {"up"}


@pytest.mark.long
def test_up_again_changes_nothing_and_another_link_keeps_the_data(bed):
    apply.bring_up(bed, NODES, OWNER)
    apply.write_on_first_node(bed, written)
    before = inspect_testbed(bed)
    kept = {"free_bytes": 0, "free_loops": ()}

    again = apply.bring_up(bed, NODES, OWNER)
    faster = StorageRequest(Speed(90.0, None), node=True)
    apply.bring_up(bed, dict.fromkeys(("node0", "node1", "node2"), faster), OWNER)

    assert dataclasses.replace(again, **kept) == dataclasses.replace(before, **kept)
    for name in ("node0", "node2"):
        assert emulated_storage(bed / name)["read_mb_per_s"] == 90.0
        assert (bed / name / "data/file").stat().st_size == 4_096_000
    apply.take_down(bed)
    assert traces(bed) == []


@pytest.mark.long
@pytest.mark.parametrize("act", ["up", "fill"])
def test_killed_before_any_step_the_next_up_goes_on(bed, act):
    def act_once():
        apply.bring_up(bed, NODES, OWNER) if act == "up" else apply.write_on_first_node(bed, written)

    step = 0
    if act == "fill":
        apply.bring_up(bed, NODES, OWNER)
    while killed_at(step, act_once):
        step += 1
        states = apply.storage_states(apply.bring_up(bed, NODES, OWNER))
        assert [each["state"] for each in states.values()] == ["up", "up"], step
        if act == "up":
            apply.take_down(bed)

    assert step > 8
    assert len(attached(bed)) == 2


@pytest.mark.long
def test_a_file_system_that_lost_its_power_while_it_was_filled_is_mended(bed):
    def cut(first):
        written(first)
        subprocess.run(["sync", "--file-system", first.point], check=True)
        shutil.copyfile(first.image, bed.parent / "copy")
        return 0

    apply.bring_up(bed, NODES, OWNER)
    apply.write_on_first_node(bed, cut)
    apply.take_down(bed, keep=True)
    (bed / "node0.img").write_bytes((bed.parent / "copy").read_bytes())
    told = subprocess.run(["dumpe2fs", "-h", bed / "node0.img"], capture_output=True, text=True, check=True).stdout
    assert "needs_recovery" in told

    apply.bring_up(bed, NODES, OWNER)

    assert (bed / "node1/data/file").stat().st_size == 4_096_000


def test_what_nobody_made_cannot_be_filled(bed):
    with pytest.raises(EnvironmentFaultError, match="no emulated nodes in") as caught:
        apply.write_on_first_node(bed, written)

    assert "testbed up nodes=4" in caught.value.hint


def test_a_rank_without_a_node_is_named_and_doctor_says_what_the_others_share(nodes):
    described = {"name": "nodes", "root": str(nodes / "node0/data"), "node_root": str(nodes / "node{rank}/data")}
    asked = {**described, "cold": True, "exclusive": "lock"}

    with pytest.raises(EnvironmentFaultError, match=r"no folder .*node2/data for rank 2"):
        require_folder_on_ranks({"storage": described, "nodes": 3})
    found = {each.what: each for each in doctor.examine_storage({**asked, "nodes": 2})}
    too_many = {each.what: each for each in doctor.examine_storage({**asked, "nodes": 3})}
    subprocess.run(["mount", "--bind", nodes / "node0", nodes / "node1"], check=True)
    shared = {each.what: each for each in doctor.examine_storage({**asked, "nodes": 2})}
    subprocess.run(["umount", nodes / "node1"], check=True)

    assert (found["caches"].passed, found["caches"].message) == (True, "2 emulated nodes with a page cache each")
    assert found["write"].passed is True
    assert too_many["caches"].passed is False
    assert shared["caches"].passed is None


@pytest.mark.long
def test_a_campaign_is_filled_by_its_words_and_its_ranks_share_no_cache(bed, command, capsys):
    words = (*TINY, "site=twin", "storage=nodes", "nodes=2", "sync=barrier")
    assert run_guarded(["testbed", "up", "nodes=2", "node.size_gb=0.1", "--folder", str(bed)]) == 0

    empty = command(*words, CAMPAIGN_TESTBED=str(bed))
    filled = command("testbed", "fill", *TINY, "--folder", str(bed))
    done = command(*words, CAMPAIGN_TESTBED=str(bed))

    assert (empty.returncode, "testbed fill" in empty.stderr) == (3, True), empty.stderr
    assert filled.returncode == 0, filled.stderr
    (path,) = (command.cwd / "results/records").glob("*/record.json")
    record = json.loads(path.read_text())
    assert {run["private_caches"] for run in record["runs"]} == {1}, done.stderr
    assert mount_of(bed / "node0/data").source != mount_of(bed / "node1/data").source
    capsys.readouterr()
