"""Testbeds for real: loop devices, mounts and bounds of the kernel. Needs root, and cgroup v1 or v2."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from campaign.__main__ import run_guarded
from campaign.cli import testbed
from campaign.config.collect import collect_points
from campaign.errors import EnvironmentFaultError, UsageError
from campaign.testbed import apply, throttle
from campaign.testbed.spec import DEFAULT_FOLDER, Speed, StorageRequest
from campaign.testbed.state import ModelServer, inspect_testbed
from jobs.system.device import mount_of
from jobs.system.layers import emulated_storage
from tests.campaign.command_line import TINY
from tests.campaign.testbed.testbeds import SMALL, attached, bounds, killed_at, required, traces
from tests.judged import records_of

OWNER = (1234, 2345)
MORE = {**SMALL, "ssd": StorageRequest(Speed(280.55, 195.05, 900, 800), 64_000_000)}


def test_what_is_up_is_mounted_throttled_marked_and_its_users(bed):
    state = apply.bring_up(bed, MORE, OWNER)

    for name, request in MORE.items():
        storage = state.storages[name]
        (loop,) = storage.loops
        assert storage.mounted == mount_of(storage.root).source == loop.path
        assert dict(throttle.find_throttle().limits[loop.number]) == request.speed.limits()
        assert emulated_storage(storage.root) == request.facts(name)
        assert (storage.root.stat().st_uid, storage.root.stat().st_gid) == OWNER
    assert {storage["state"] for storage in apply.storage_states(state).values()} == {"up"}


def test_devices_are_given_in_their_order_and_a_server_is_known_by_the_folder_that_it_serves(tmp_path):
    required()
    shutil.copy("/bin/cat", tmp_path / "storage_model-0")  # which waits for somebody to write to the first of its files
    os.mkfifo(tmp_path / "hdd.model")
    command = [tmp_path / "storage_model-0", tmp_path / "hdd.model", "-", "kind=disk", "rpm=7200"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            state = inspect_testbed(tmp_path, ["hdd", "ssd"])
        finally:
            server.kill()

    numbers = [int(loop.path.removeprefix("/dev/loop")) for loop in state.free_loops]
    assert numbers == sorted(numbers)
    assert state.foreign_names == ("hdd.model", "storage_model-0")
    assert state.storages["ssd"].server is None
    assert state.storages["hdd"].server == ModelServer(
        server.pid, "storage_model-0", ("kind=disk", "rpm=7200"), faults=None
    )


def test_down_leaves_nothing_and_down_that_keeps_the_files(bed):
    (loop,) = apply.bring_up(bed, SMALL, OWNER).storages["hdd"].loops
    (bed / "hdd/data/precious").write_text("x")

    kept = apply.storage_states(apply.take_down(bed, keep=True))
    left = [each for each in traces(bed, [loop.number]) if each != str(bed)]
    back = apply.bring_up(bed, SMALL, OWNER)
    survived = (bed / "hdd/data/precious").read_text()
    apply.take_down(bed)

    assert kept["hdd"]["state"] == "down"
    assert left == []
    assert survived == "x"
    assert traces(bed, [loop.number, *(each.number for each in back.storages["hdd"].loops)]) == []


@pytest.mark.long
@pytest.mark.parametrize("ends", ["down", "up"])
def test_killed_before_any_step_of_up_it_ends_well(bed, ends):
    numbers, step = set(), 0
    while killed_at(step, lambda: apply.bring_up(bed, SMALL, OWNER)):
        step += 1
        if ends == "up":
            seen = apply.bring_up(bed, SMALL, OWNER)
            numbers |= {loop.number for loop in seen.storages["hdd"].loops}
            assert apply.storage_states(seen)["hdd"]["state"] == "up"
        else:
            numbers |= {loop.number for loop in inspect_testbed(bed, SMALL).storages["hdd"].loops}
        apply.take_down(bed)
        if bed.exists():  # killed between its making and its marker: nothing says that it is ours
            bed.rmdir()
        assert traces(bed, numbers) == [], step

    assert step > 10


@pytest.mark.long
def test_killed_before_any_step_of_down_it_ends_well(bed):
    step = 0
    while True:
        (loop,) = apply.bring_up(bed, SMALL, OWNER).storages["hdd"].loops
        killed = killed_at(step, lambda: apply.take_down(bed))
        step += 1
        apply.take_down(bed)
        if bed.exists():  # killed between the removal of the marker and that of the folder
            bed.rmdir()
        assert traces(bed, [loop.number]) == [], step
        if not killed:
            break

    assert step > 5


def test_two_at_once_wait_for_each_other(bed):
    script = (
        "from pathlib import Path; from tests.campaign.testbed.testbeds import SMALL, measure_briefly\n"
        "from campaign.testbed import apply; measure_briefly()\n"
        f"print(apply.bring_up(Path({str(bed)!r}), SMALL, (0, 0)).storages['hdd'].loops)"
    )
    processes = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) for _ in range(2)]

    outputs = [each.communicate()[0] for each in processes]

    assert [each.returncode for each in processes] == [0, 0]
    assert outputs[0] == outputs[1]
    assert len(attached(bed)) == 1


def test_a_bound_that_was_left_on_anothers_device_is_cleared(bed, tmp_path):
    (loop,) = apply.bring_up(bed, SMALL, OWNER).storages["hdd"].loops
    subprocess.run(["umount", bed / "hdd"], check=True)
    subprocess.run(["losetup", "--detach", loop.path], check=True)
    theirs = tmp_path / "theirs.img"
    theirs.write_bytes(bytes(1 << 20))
    subprocess.run(["losetup", loop.path, theirs], check=True)
    try:
        assert bounds(loop.number) != {}

        apply.take_down(bed)

        assert attached(tmp_path) == [loop.path]
        assert bounds(loop.number) == {}
    finally:
        subprocess.run(["losetup", "--detach", loop.path], check=True)


def test_a_storage_in_use_is_said_to_be_and_stays(bed, tmp_path, monkeypatch):
    (loop,) = apply.bring_up(bed, SMALL, OWNER).storages["hdd"].loops
    (tmp_path / "other").mkdir()
    with (bed / "hdd/data/open").open("w"):
        busy = rf"hdd is busy: process {os.getpid()} has {bed}/hdd/data/open open"
        with pytest.raises(EnvironmentFaultError, match=busy):
            apply.take_down(bed)
    assert apply.storage_states(inspect_testbed(bed))["hdd"]["state"] == "up"
    monkeypatch.setattr(apply, "_PATIENCE_S", 0.3)
    subprocess.run(["mount", loop.path, tmp_path / "other"], check=True)  # a second time
    try:
        with pytest.raises(EnvironmentFaultError, match="this step has changed nothing"):
            apply.take_down(bed)
    finally:
        subprocess.run(["umount", tmp_path / "other"], check=True)
    apply.take_down(bed)

    assert traces(bed, [loop.number]) == []


def test_a_file_of_another_in_the_folder_stays(bed):
    apply.bring_up(bed, SMALL, OWNER)
    (bed / "thesis.tex").write_text("x")

    apply.take_down(bed)

    assert [path.name for path in bed.iterdir()] == ["thesis.tex"]
    with pytest.raises(UsageError, match="has other files"):
        apply.bring_up(bed, SMALL, OWNER)


@pytest.mark.parametrize("below", ["", "bed", "more/bed"], ids=["itself", "its parent", "further up"])
@pytest.mark.parametrize("how", ["link", "writable", "theirs", "file"])
def test_a_folder_in_which_others_could_lay_a_trap_is_refused(how, below, tmp_path, monkeypatch):
    required()
    trap = tmp_path / "trap"
    if how == "link":
        (tmp_path / "there").mkdir()
        trap.symlink_to(tmp_path / "there")
    elif how == "file":
        trap.write_text("x")
    else:
        trap.mkdir()
        trap.chmod(0o777 if how == "writable" else 0o755)
        os.chown(trap, 1234 if how == "theirs" else 0, 2345 if how == "theirs" else 0)
    if below and how != "file":
        (trap / below).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)

    for folder in (trap / below, trap / below / "not there yet", Path("trap") / below):
        with pytest.raises(UsageError, match=r"no folder|users other than root"):
            inspect_testbed(folder)


def test_a_folder_of_root_may_lie_below_a_sticky_one_as_in_tmp(tmp_path):
    required()
    tmp_path.chmod(0o1777)
    (tmp_path / "bed").mkdir(mode=0o755)

    assert inspect_testbed(tmp_path / "bed").exists
    assert not inspect_testbed(tmp_path / "not there yet").exists


def test_nobody_but_root_reads_an_image(bed):
    apply.bring_up(bed, {"ssd": MORE["ssd"]}, OWNER)
    marker = bed / ".tfio-testbed.json"  # as it is while hdd is made
    facts = json.loads(marker.read_text())
    marker.write_text(json.dumps(facts | {"storages": facts["storages"] | {"hdd": SMALL["hdd"].facts("hdd")}}))
    unfinished = bed / "hdd.img.new"  # of one that was killed, and that somebody has open
    unfinished.write_bytes(b"half")
    unfinished.chmod(0o644)
    with unfinished.open("rb") as theirs:
        apply.bring_up(bed, SMALL, OWNER)
        nothing_new = theirs.read()

    assert (bed / "hdd.img").stat().st_mode & 0o777 == 0o600
    assert nothing_new == b"half"


@pytest.mark.parametrize("ours", ["no testbed", "a testbed", "a testbed that is not mounted"])
def test_what_has_the_name_of_a_storage_and_is_not_ours_is_neither_taken_nor_removed(bed, ours):
    bed.mkdir(mode=0o755)
    files = [bed / "hdd.img", bed / "hdd.img.new", bed / "hdd/thesis"]
    if ours == "a testbed":
        apply.bring_up(bed, {"ssd": MORE["ssd"]}, OWNER)
    elif ours == "a testbed that is not mounted":
        apply.bring_up(bed, SMALL, OWNER)
        subprocess.run(["umount", str(bed / "hdd")], check=True)
        del files[:2]  # its image is ours
    (bed / "hdd").mkdir(exist_ok=True)
    for file in files:  # each of them alone
        file.write_bytes(b"years" * 1000)
        with pytest.raises(UsageError, match=r"not made by this program|no testbed of this program"):
            apply.bring_up(bed, MORE, OWNER)
        file.rename(bed.parent / file.name)
    for file in files:
        (bed.parent / file.name).rename(file)

    apply.take_down(bed)

    assert {file.read_bytes() for file in files} == {b"years" * 1000}
    assert attached(bed) == []
    shutil.rmtree(bed)


def test_the_bounds_of_another_testbed_stay(bed, tmp_path):
    other = tmp_path / "other"
    number = apply.bring_up(bed, SMALL, OWNER).storages["hdd"].loops[0].number
    subprocess.run(["umount", str(bed / "hdd")], check=True)
    subprocess.run(["losetup", "--detach", *attached(bed)], check=True)
    try:
        assert apply.bring_up(other, SMALL, OWNER).storages["hdd"].loops[0].number == number
        before = bounds(number)

        apply.take_down(bed)

        assert bounds(number) == before != {}
    finally:
        apply.take_down(other)


@pytest.mark.parametrize(
    "marker",
    ['{"schema": 1}', '{"schema": 1e400}', '{"schema": 1, "storages": 7, "numbers": []}',
     '{"schema": 1, "storages": {"hdd": {}}, "numbers": []}', '{"schema": 1, "storages": {}, "numbers": [7]}'],
)  # fmt: skip
def test_half_a_marker_is_said_to_be_none(bed, marker):
    bed.mkdir(mode=0o755)
    (bed / ".tfio-testbed.json").write_text(marker)

    with pytest.raises(EnvironmentFaultError, match="is no marker file of this program"):
        inspect_testbed(bed)

    shutil.rmtree(bed)


def test_a_folder_of_nobodys_home_is_a_folder(bed, monkeypatch, capsys):
    monkeypatch.chdir(bed.parent)

    assert testbed.main(["status", "--folder", "~nosuch/x"]) == 1

    assert "~nosuch/x" in capsys.readouterr().out


def test_the_command_makes_tells_and_takes_away(bed, capsys):
    def answer(verb, *words):
        code = run_guarded(["testbed", verb, *words, "--folder", str(bed)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    words = ("storages=[hdd]", "hdd.size_gb=0.1")
    preview = answer("up", "--dry-run", *words)
    is_made = bed.exists()
    up, status, down, after = answer("up", *words), answer("status", "--json"), answer("down"), answer("status")

    assert [each[0] for each in (preview, up, status, down, after)] == [0, 0, 0, 0, 1]
    assert is_made is False
    assert f"losetup --find --direct-io=on {bed}/hdd.model/device" in preview[1]
    assert "emulated" in up[1]
    assert f"export CAMPAIGN_TESTBED={bed}" in up[2]
    status = json.loads(status[1])
    hdd = status["storages"]["hdd"]
    assert (hdd["emulated"], hdd["state"], hdd["read_mb_per_s"], hdd["size_bytes"]) == (True, "up", 163.0, 100_000_000)
    assert status["beneath"]["point"] == mount_of(bed.parent).point
    assert "no testbed in" in after[1]
    assert traces(bed) == []


@pytest.mark.parametrize(
    ("verb", "flag"),
    [("up", "--keep"), ("up", "--json"), ("down", "--json"), ("status", "--keep"), ("status", "--dry-run")],
)
def test_a_flag_of_another_verb_is_refused(verb, flag, tmp_path):
    with pytest.raises(UsageError, match=f"testbed {verb} takes no {flag}"):
        testbed.main([verb, flag, "--folder", str(tmp_path / "bed")])


def test_a_testbed_whose_files_were_removed_under_it_is_not_called_gone(bed):
    (loop,) = apply.bring_up(bed, SMALL, OWNER).storages["hdd"].loops
    shutil.rmtree(bed, ignore_errors=True)

    with pytest.raises(EnvironmentFaultError, match=f"{bed} has no testbed marker") as caught:
        testbed.main(["down", "--folder", str(bed)])
    with pytest.raises(EnvironmentFaultError, match="has no testbed marker"):
        testbed.main(["status", "--folder", str(bed)])
    sudo, *cure = shlex.split(caught.value.hint.partition(": ")[2])
    still = mount_of(bed / "hdd").point
    subprocess.run(cure, check=True)

    assert (sudo, still) == ("sudo", str(bed / "hdd"))
    assert traces(bed, [loop.number]) == [str(bed)]
    assert testbed.main(["down", "--folder", str(bed)]) == 0
    assert apply.storage_states(apply.bring_up(bed, SMALL, OWNER))["hdd"]["state"] == "up"


@pytest.mark.parametrize("verb", ["up", "down"])
def test_without_root_it_is_refused_with_the_reason(verb, monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(EnvironmentFaultError, match=f"testbed {verb} needs root: it attaches loop devices") as caught:
        testbed.main([verb, "--folder", str(tmp_path / "bed")])

    assert caught.value.exit_code == 3
    assert caught.value.hint.startswith("sudo ")
    assert caught.value.hint.endswith(f"-m campaign testbed {verb} --folder {tmp_path}/bed")


def test_who_called_sudo_owns_the_storages(monkeypatch):
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "2345")
    called = apply.find_owner()
    monkeypatch.delenv("SUDO_UID")

    assert called == OWNER
    assert apply.find_owner() == (os.geteuid(), os.getegid())


@pytest.mark.long
def test_a_campaign_on_a_twin_says_so_in_record_status_and_why_and_is_not_continued_at_another_speed(bed, command):
    apply.bring_up(bed, SMALL, (0, 0))
    words = (*TINY, "threads=1", "storage.name=hdd", f"storage.root={bed}/hdd/data", "cluster=local")

    done = command(*words)
    (record,) = records_of(command.cwd / "results")
    apply.bring_up(bed, {"hdd": StorageRequest(Speed(20.0, 20.0))}, (0, 0))
    slower = command(*words, "runs=4")

    assert done.returncode == 0, done.stderr
    assert "hdd is emulated: at most 163 MB/s read, 133.14 MB/s written" in done.stderr
    assert "; hdd emulated; " in done.stdout
    assert record["provenance"]["emulated"] == {"storage": SMALL["hdd"].facts("hdd")}
    assert {check["passed"] for run in record["runs"] for check in run["checks"] if check["rule"] != "quiet"} == {True}
    assert "emulated: hdd" in command("status").stdout
    assert "emulated   storage hdd: at most 163 MB/s" in command("show", record["cell"]["id"]).stdout
    assert slower.returncode == 2
    assert "on another storage (emulated.storage.read_mb_per_s was 163.0, is 20.0)" in slower.stderr


def test_the_twin_is_found_where_it_was_made(monkeypatch):
    monkeypatch.setenv("CAMPAIGN_TESTBED", "/scratch/bed")
    words = ["-m", "site=twin", "benchmark=alexnet", "storage=hdd,ssd,optane,lustre", "checkpoint=burst_buffer"]
    points = collect_points(words)
    monkeypatch.delenv("CAMPAIGN_TESTBED")

    assert [point["storage"]["root"] for point in points] == [
        f"/scratch/bed/{name}/data" for name in ("hdd", "ssd", "optane", "lustre")
    ]
    assert {point["storage"]["shared"] for point in points} == {False}
    assert points[0]["checkpoint"]["fast"]["root"] == "/scratch/bed/optane/data"
    assert collect_points(["-m", "site=twin", "storage=hdd"])[0]["storage"]["root"] == f"{DEFAULT_FOLDER}/hdd/data"
