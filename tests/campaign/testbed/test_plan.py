"""What is done for a testbed, as a function of what is found: no root, no device."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from pathlib import Path

import pytest

from campaign.errors import EnvironmentFaultError, UsageError
from campaign.testbed import apply, plan, steps
from campaign.testbed.spec import GB, Model, Speed, StorageRequest
from campaign.testbed.state import LoopDevice, ModelServer
from campaign.testbed.steps import CallStep, WriteStep
from campaign.testbed.throttle import CgroupV2Limits
from tests.campaign.testbed.testbeds import (
    BED,
    HDD,
    SSD,
    bed_state,
    costs_of,
    limited,
    requests,
    storage,
    texts,
    up_and_running,
)

OWNER = (1000, 1000)
LOOP0, LOOP1 = LoopDevice("/dev/loop0", "7:0"), LoopDevice("/dev/loop1", "7:1")


def whole(**changes):
    """A testbed of an hdd and an ssd that are up."""
    storages = {"hdd": up_and_running("hdd", LOOP0, HDD), "ssd": up_and_running("ssd", LOOP1, SSD)}
    return bed_state(
        storages, **({"numbers": ["7:0", "7:1"], "device_limits": limited(("7:0", HDD), ("7:1", SSD))} | changes)
    )


def with_hdd(**changes):
    """That testbed with other facts of its hdd."""
    state = whole()
    hdd = dataclasses.replace(state.storages["hdd"], **changes)
    return dataclasses.replace(state, storages={**state.storages, "hdd": hdd})


def up(state, **changes):
    return texts(plan.plan_creation(requests(**changes), OWNER, state))


def position(lines, *words):
    (match,) = [index for index, line in enumerate(lines) if all(word in line for word in words)]
    return match


def test_an_image_has_its_name_when_it_is_whole_and_a_device_is_usable_when_it_is_throttled_and_marked():
    lines = up(bed_state(exists=False))

    made = lines[position(lines, "install -m 600 /dev/null /bed/hdd.img.new") :][:5]
    assert [line.split()[0] for line in made] == ["install", "truncate", "mkfs.ext4", "sync", "mv"]
    assert made[1] == "truncate --size 3000000000 /bed/hdd.img.new"
    assert made[4] == "mv /bed/hdd.img.new /bed/hdd.img"
    order = [
        position(lines, ".tfio-testbed.json", '"numbers": ["7:3", "7:4"]'),
        position(lines, "7:3 163000000", "read_bps"),
        position(lines, "mount -t ext4", "/dev/loop3 /bed/hdd"),
        position(lines, "echo", "/bed/hdd/.tfio-emulated.json"),
        position(lines, "install -d -m 755 -o 1000 -g 1000 /bed/hdd/data"),
    ]
    assert order == sorted(order)
    assert order[0] < position(lines, "7:4 280550000")


@pytest.mark.parametrize(
    ("lacks", "first"),
    [
        ({"owner": None}, "install -d"),
        ({"owner": (0, 0), "empty": True}, "install -d"),
        ({"marker_facts": None, "owner": None}, "echo"),
        ({"mounted": None, "marker_facts": None, "owner": None}, "mount -t"),
        ({"loops": (), "mounted": None, "marker_facts": None, "owner": None}, "losetup --find"),
        ({"costs": None}, "# measure the CPU costs of the kernel to serve hdd, and write /bed/hdd.serving"),
        ({"costs": costs_of(StorageRequest(HDD).facts("hdd")) | {"boot_id": "boot-0"}}, "# measure"),
        ({"costs": costs_of(StorageRequest(SSD).facts("hdd"))}, "# measure"),
    ],
)
def test_what_a_kill_has_left_undone_is_gone_on_with(lacks, first):
    lines = [line for line in up(with_hdd(**lacks)) if ".tfio-testbed.json" not in line]

    assert next(line for line in lines if "throttle" not in line).startswith(first)
    assert not any("mkfs" in line or "ssd" in line for line in lines)


def test_what_is_up_needs_nothing_and_data_that_is_there_keeps_its_owner():
    assert plan.plan_creation(requests(), OWNER, whole()) == []
    assert plan.plan_creation(requests(), OWNER, with_hdd(owner=(7, 7), empty=False)) == []


def test_after_a_reboot_nothing_is_made_anew_and_bounds_of_then_are_not_touched():
    storages = {name: storage(name, size_bytes=3 * GB, point_there=True) for name in ("hdd", "ssd")}
    theirs = limited(("7:0", Speed(1, 1)))
    state = bed_state(storages, numbers=["7:0"], device_limits=theirs, boot_id="boot-2")

    lines = up(state)

    assert "losetup --find /bed/hdd.img" in lines
    assert "mount -t ext4 -o nosuid,nodev /dev/loop3 /bed/hdd" in lines
    assert not any("mkfs" in line or "7:0 0" in line for line in lines)


def test_other_speeds_change_the_bounds_and_what_the_storage_says():
    faster = StorageRequest(Speed(200.0, 133.14, read_iops=80), 3 * GB)

    lines = up(whole(), hdd=faster)

    assert "> /bed/.tfio-testbed.json" in lines[0]
    assert lines[1:3] == [
        "echo '7:0 200000000' > /blkio/blkio.throttle.read_bps_device",
        "echo '7:0 80' > /blkio/blkio.throttle.read_iops_device",
    ]
    assert lines[3] == f"echo '{json.dumps(faster.facts('hdd'))}' > /bed/hdd/.tfio-emulated.json"
    assert [line.partition(",")[0] for line in lines[4:]] == ["# measure the CPU costs of the kernel to serve hdd"]


def test_a_bound_left_on_a_number_that_is_somebody_elses_by_now_is_cleared():
    state = whole(numbers=["7:0", "7:1", "7:5"], device_limits=limited(("7:0", HDD), ("7:1", SSD), ("7:5", SSD)))

    lines = up(state)

    assert lines[:2] == [f"echo '7:5 0' > /blkio/blkio.throttle.{kind}_bps_device" for kind in ("read", "write")]
    assert '"numbers": ["7:0", "7:1"]' in lines[2]


def test_bounds_of_devices_that_we_never_had_stay():
    state = whole(device_limits=limited(("7:0", HDD), ("7:1", SSD), ("7:6", SSD), ("253:0", HDD)))

    lines = up(state) + texts(plan.plan_removal(state, keep=False))

    assert not any("7:6" in line or "253:0" in line for line in lines)


@pytest.mark.parametrize("state", [whole(), bed_state(numbers=[]), bed_state(exists=False)])
def test_what_is_not_asked_for_is_left_alone(state):
    lines = texts(plan.plan_creation({"hdd": StorageRequest(HDD, 3 * GB)}, OWNER, state))

    assert not any("ssd" in line for line in lines if ".tfio-testbed.json" not in line)


def test_down_undoes_it_in_the_other_order_and_the_marker_goes_last():
    assert texts(plan.plan_removal(whole(), keep=False)) == [
        "umount /bed/ssd",
        "losetup --detach /dev/loop1",
        "umount /bed/hdd",
        "losetup --detach /dev/loop0",
        *(f"echo '7:{n} 0' > /blkio/blkio.throttle.{kind}_bps_device" for n in (0, 1) for kind in ("read", "write")),
        "rm -f /bed/hdd.img /bed/hdd.img.new /bed/hdd.serving",
        "rmdir /bed/hdd",
        "rm -f /bed/ssd.img /bed/ssd.img.new /bed/ssd.serving",
        "rmdir /bed/ssd",
        "rm -f /bed/.tfio-testbed.json",
        "rmdir /bed",
    ]


def test_down_touches_no_mount_of_another_device_and_no_folder_without_our_marker():
    theirs = up_and_running("hdd", LOOP0, HDD, mounted="/dev/sdb1")

    lines = texts(plan.plan_removal(bed_state({"hdd": theirs}, numbers=["7:0"]), keep=False))

    assert not any(line.startswith(("umount", "rmdir")) for line in lines)
    assert plan.plan_removal(bed_state(foreign_names=("thesis.tex",)), keep=False) == []
    assert plan.plan_removal(bed_state(), keep=False) == []


def test_what_was_half_made_is_removed_with_a_marker_that_was_being_written():
    half = {"hdd": storage("hdd", unfinished=True, model_there=True), "ssd": storage("ssd")}

    assert texts(plan.plan_removal(bed_state(half, leftovers=("..tfio-testbed.json.7.tmp",)), keep=False)) == [
        "rm -f /bed/hdd.img /bed/hdd.img.new /bed/hdd.serving",
        "rmdir /bed/hdd.model",
        "rm -f /bed/..tfio-testbed.json.7.tmp /bed/.tfio-testbed.json",
        "rmdir /bed",
    ]


@pytest.mark.parametrize(
    ("free_gb", "hdd_gb", "names", "sizes_gb"),
    [
        (100, 3, ("hdd", "ssd"), [3, 12]),
        (20, 3, ("hdd", "ssd"), [3, 12]),
        (10, 3, ("hdd", "ssd"), [3, 6]),
        (9.96, 3, ("hdd", "ssd"), [3, 5.9]),
        (20, None, ("hdd", "ssd", "optane", "lustre"), [4.7] * 4),
    ],
)
def test_a_share_is_what_is_free_and_not_promised_and_at_most_12_gb(free_gb, hdd_gb, names, sizes_gb):
    asked = {name: StorageRequest(HDD, hdd_gb * GB if name == "hdd" and hdd_gb else None) for name in names}
    state = bed_state({name: storage(name) for name in names}, exists=False, free_bytes=round(free_gb * GB))

    lines = texts(plan.plan_creation(asked, OWNER, state))

    assert [int(line.split()[2]) / GB for line in lines if line.startswith("truncate")] == sizes_gb


def test_what_images_may_still_grow_by_is_not_given_away_twice():
    hdd = up_and_running("hdd", LOOP0, HDD, size_bytes=30 * GB, allocated_bytes=10 * GB)

    lines = up(
        bed_state({"hdd": hdd, "ssd": storage("ssd")}, numbers=["7:0"], free_bytes=25 * GB),
        hdd=StorageRequest(HDD),
    )

    assert "truncate --size 4000000000 /bed/ssd.img.new" in lines


@pytest.mark.parametrize(("free_gb", "hdd_gb"), [(5, 30), (1.0, 3), (4.05, 3)])
def test_more_than_there_is_room_for_is_refused_with_the_room(free_gb, hdd_gb):
    with pytest.raises(EnvironmentFaultError, match=rf"{free_gb:.1f} GB are free") as caught:
        up(bed_state(exists=False, free_bytes=round(free_gb * GB)), hdd=StorageRequest(HDD, hdd_gb * GB))

    assert "--folder" in caught.value.hint


def test_an_image_does_not_change_its_size():
    with pytest.raises(UsageError, match="hdd has 3 GB already, not the requested 5 GB"):
        up(whole(), hdd=StorageRequest(HDD, 5 * GB))


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (bed_state({"hdd": storage("hdd", mounted="/dev/sdb1")}, numbers=[]),
         "/dev/sdb1 is mounted at /bed/hdd, and was not"),
        (bed_state({"hdd": storage("hdd", loops=(LOOP0,))}, numbers=["7:0"]), "/bed/hdd.img, was removed"),
        (bed_state({"hdd": up_and_running("hdd", LOOP0, HDD)}, numbers=["7:0"],
                   device_limits=CgroupV2Limits({}, hindrance=("no v2", ""))), "no v2"),
    ],
    ids=["another mount", "an image that is gone", "no bounds"],
)  # fmt: skip
def test_what_stands_in_the_way_of_a_storage_is_refused_and_told_as_what_it_lacks(state, why):
    with pytest.raises((UsageError, EnvironmentFaultError), match=why):
        plan.plan_creation({"hdd": StorageRequest(HDD, 3 * GB)}, OWNER, state)
    hdd = apply.storage_states(state)["hdd"]
    assert hdd["state"] == "incomplete"
    assert why in hdd["missing"]


def test_the_next_step_is_told_as_what_a_storage_lacks_and_other_files_are_refused():
    state = bed_state({"hdd": storage("hdd", size_bytes=3 * GB, loops=(LOOP0,))}, numbers=["7:0"])

    assert "echo '7:0 163000000' >" in apply.storage_states(state)["hdd"]["missing"]
    with pytest.raises(UsageError, match=r"no testbed of this program, and has other files, such as thesis\.tex"):
        up(bed_state(foreign_names=("thesis.tex",)))


MODEL = Model("disk", {"rpm": 7200})
MODELLED = StorageRequest(HDD, 3 * GB, MODEL)
CALMED = ["echo 'eio_to 0' > /bed/hdd.model/faults", "touch /bed/hdd || true", "sync --file-system /bed/hdd || true"]
CUT_OFF = ["umount --lazy /bed/hdd", "losetup --detach /dev/loop0", "umount --lazy /bed/hdd.model"]


PROGRAM = bed_state().program.name
ASKED = ModelServer(7, PROGRAM, MODELLED.server_arguments())


def modelled(**changes):
    """An hdd with a model that is up, but for the changes."""
    facts = {"loops": (), "model_loops": (LOOP0,), "model_there": True, "model_mounted": True, "server": ASKED}
    facts |= {"marker_facts": MODELLED.facts("hdd"), "costs": costs_of(MODELLED.facts("hdd"))} | changes
    state = bed_state({"hdd": up_and_running("hdd", LOOP0, HDD, **facts)}, numbers=["7:0"])
    return dataclasses.replace(state, programs=(state.program.name,))


@pytest.mark.parametrize(
    ("state", "first"),
    [
        (modelled(server=None), CUT_OFF),
        (modelled(server=dataclasses.replace(ASKED, faults=None, stopped=True)), ["kill -KILL 7", *CUT_OFF]),
        (modelled(server=dataclasses.replace(ASKED, faults=("hang",))), ["kill -KILL 7", *CUT_OFF]),
        (modelled(server=dataclasses.replace(ASKED, faults=("eio_to",))), CALMED),
        (modelled(server=ModelServer(7, PROGRAM, ("kind=flash",))), ["umount /bed/hdd"]),
        (modelled(server=dataclasses.replace(ASKED, program="storage_model-0")), ["umount /bed/hdd"]),
        (modelled(failed=True), ["umount /bed/hdd"]),
        (modelled(model_loops=(), loops=(LOOP0,), model_mounted=False, server=None), ["umount /bed/hdd"]),
    ],
    ids=["died", "stopped", "hangs", "faults", "other words", "other version", "failed", "throttled"],
)
def test_a_model_that_is_not_as_asked_for_is_mended_taken_away_or_cut_off_at_once(state, first):
    groups = [texts([group]) for group in plan.plan_creation({"hdd": MODELLED}, OWNER, state)]

    assert next(group for group in groups if ".tfio-testbed.json" not in group[0]) == first
    assert plan.plan_creation({"hdd": MODELLED}, OWNER, modelled())[1:] == []


@pytest.mark.parametrize(
    "planned",
    [
        lambda state: plan.plan_creation({"hdd": MODELLED}, OWNER, state),
        lambda state: plan.plan_removal(state, keep=True),
    ],
)
def test_a_model_that_is_only_silent_is_not_killed_for_it_may_wait_for_the_disk_beneath(planned):
    state = modelled(server=dataclasses.replace(ASKED, faults=None))

    with pytest.raises(EnvironmentFaultError, match=r"the model of hdd \(process 7\) does not answer"):
        planned(state)

    assert "does not answer" in apply.storage_states(state)["hdd"]["missing"]


def test_a_model_behind_the_page_cache_is_refused_for_that_would_answer_in_its_place():
    state = modelled(model_loops=(dataclasses.replace(LOOP0, direct=False),))

    with pytest.raises(EnvironmentFaultError, match="/dev/loop0 of hdd goes through the page cache"):
        plan.plan_creation({"hdd": MODELLED}, OWNER, state)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["true"], "true: this step has changed nothing"),
        (["true", "echo"], "true: this step was done and undone 3 times"),
    ],
    ids=["no effect", "undone again and again"],
)
def test_a_testbed_that_never_gets_ready_is_given_up_and_the_step_named(words, why, monkeypatch):
    monkeypatch.setattr(apply, "_PATIENCE_S", 0.2)
    endless = itertools.cycle([[[steps.program_step(word)]] for word in words])

    with pytest.raises(EnvironmentFaultError, match=why):
        apply._carry_out_plans(bed_state, lambda _: next(endless))  # noqa: SLF001 - whatever is planned


def test_a_step_that_does_not_end_is_ended_and_named(monkeypatch):
    monkeypatch.setattr(steps, "_LIMIT_S", 0.05)

    with pytest.raises(EnvironmentFaultError, match=r"sleep 60: the program did not end within 0\.05 s"):
        steps.program_step("sleep", 60).do()


def test_a_model_is_compiled_once_and_another_storage_beside_it_stays():
    storages = {"hdd": storage("hdd"), "ssd": up_and_running("ssd", LOOP1, SSD)}
    state = bed_state(storages, numbers=["7:1"], device_limits=limited(("7:1", SSD)))
    there = dataclasses.replace(state, programs=(state.program.name,))

    lines, again = (texts(plan.plan_creation({"hdd": MODELLED}, OWNER, each)) for each in (state, there))

    served = f"{state.program} /bed/hdd.model /bed/hdd.img kind=disk read_mb_per_s=163 write_mb_per_s=133.14 rpm=7200"
    assert position(lines, "cc -O2") < position(lines, f"mv {state.program}.new") < position(lines, served)
    assert lines[position(lines, served) + 1] == "losetup --find --direct-io=on /bed/hdd.model/device"
    assert not any("cc" in line or "ssd" in line.partition(">")[0] for line in again if "json" not in line)


def harmless(path):
    """Below the folder, a loop device, a bound of the kernel's, or what an empty file is made from."""
    ours = ".." not in path.parts and (path == BED or BED in path.parents)
    return ours or str(path) == "/dev/null" or re.fullmatch(r"/dev/loop\d+|/blkio/blkio\.throttle\.\w+", str(path))


@pytest.mark.parametrize(
    "groups",
    [
        plan.plan_creation(requests(), OWNER, bed_state(exists=False)),
        plan.plan_removal(whole(leftovers=("..tfio-testbed.json.7.tmp",)), keep=False),
        plan.plan_removal(whole(), keep=True),
    ],
    ids=["up", "down", "keep"],
)
def test_every_path_of_every_step_is_in_the_folder_or_is_the_kernels(groups):
    steps_of_groups = [step for group in groups for step in group]

    paths = [paths_of(step) for step in steps_of_groups]

    assert all(paths)
    assert [each for paths_of_step in paths for each in paths_of_step if not harmless(each)] == []


def paths_of(step):
    """What a program takes for paths: all but its name, its flags, and the figures and words that belong to them."""
    if isinstance(step, WriteStep):
        return [step.path]
    if isinstance(step, CallStep):
        return [each for each in step.call.args if isinstance(each, Path)]
    return [
        Path(word) for word in step.command[1:] if not re.fullmatch(r"-.*|\d+|ext4|nosuid,nodev|lazy_[\w=,]+", word)
    ]
