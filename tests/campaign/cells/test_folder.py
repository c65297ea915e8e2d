import errno
import json
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from campaign.cells import folder as folders
from campaign.errors import EnvironmentFaultError, UsageError, run_to_exit_code
from tests.campaign.on_disk import leave_record
from tests.jobs.ranks.strangers import needs_root


@pytest.mark.parametrize("mode", [None, 0o755], ids=["new", "empty"])
def test_a_new_folder_is_private_and_marked(mode, tmp_path):
    root = tmp_path / "a" / "results"
    if mode:
        root.mkdir(parents=True)
        root.chmod(mode)

    made, campaign = folders.open_or_create(root)

    assert [stat.S_IMODE(each.stat().st_mode) for each in (made.root, made.records, made.workers)] == [0o700] * 3
    assert json.loads(made.marker.read_text())["tool"] == "tfio-campaign"
    assert campaign["requests"] == []


def test_opening_it_again_keeps_what_is_there(tmp_path, cells):
    made, campaign = folders.open_or_create(tmp_path / "results")
    campaign["requests"].append({"token": "x", "utc": "", "words": [], "order_seed": 0, "cells": []})
    made.marker.write_text(json.dumps(campaign))

    assert folders.open_or_create(tmp_path / "results")[1]["requests"][0]["token"] == "x"
    leave_record(made, cells[0][0])
    (made.root / "report.html").touch()
    made.marker.unlink()  # moved away: the campaign goes on
    assert folders.open_or_create(tmp_path / "results")[1]["requests"] == []


@needs_root
def test_its_name_is_no_file_and_no_link_that_another_user_may_turn_elsewhere(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("mine")

    assert folders.resolve_campaign_folder(str(tmp_path / "link")) == tmp_path / "mine"
    os.lchown(tmp_path / "link", 65534, 65534)
    with pytest.raises(EnvironmentFaultError, match="another user's link"):
        folders.resolve_campaign_folder(str(tmp_path / "link"))
    with pytest.raises(UsageError, match="is a file, not the folder of a campaign"):
        folders.resolve_campaign_folder(str(tmp_path / "file"))


def test_somebody_elses_files_are_never_taken_for_a_campaign(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")

    with pytest.raises(UsageError, match="no campaign"):
        folders.open_or_create(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    (tmp_path / "records").mkdir()  # a name that many programs use
    with pytest.raises(UsageError, match="no campaign"):
        folders.open_or_create(tmp_path)


def test_a_process_that_was_killed_while_it_made_a_folder_does_not_block_the_next_one(folder):
    folder.marker.unlink()

    assert folders.open_or_create(folder.root)[1]["requests"] == []


@pytest.mark.parametrize("mode", [None, 0o755], ids=["new", "empty"])
def test_a_folder_that_a_full_disk_leaves_half_made_goes_and_the_cure_is_space(mode, tmp_path, monkeypatch):
    root = tmp_path / "results"
    if mode:
        root.mkdir(mode)

    def write(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(folders, "write_json", write)

    with pytest.raises(EnvironmentFaultError, match=r"cannot create the campaign folder .*: No space left") as caught:
        folders.open_or_create(root)

    assert caught.value.hint.startswith("the disk is full: free some space")
    assert [*tmp_path.rglob("*")] == ([root] if mode else [])


@pytest.mark.parametrize("opened", [folders.open_existing, folders.open_or_create, folders.resolve_campaign_folder])
def test_a_loop_of_links_is_told_with_its_cure(opened, tmp_path, capsys):
    (tmp_path / "loop").symlink_to("loop")

    assert run_to_exit_code([], lambda _: opened(tmp_path / "loop")) == 3

    said = capsys.readouterr().err
    assert f"error: {tmp_path}/loop: Too many levels of symbolic links" in said
    assert "hint: remove the link that leads back to itself" in said


def _asked_at(utc):
    return json.dumps({"schema": 1, "tool": "t", "requests": [{"utc": utc, "words": [], "cells": []}]})


TIMES = ("zzz", "2999-13-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z", "2999-01-01T00:00:00+02:00")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        *((text, ("damaged", "move it away")) for text in ("{", '{"schema": 1}', *map(_asked_at, TIMES))),
        ('{"schema": 2, "requests": []}', ("newer", "update")),
        (lambda made: made.root.chmod(0o770), ("other users", "a folder of yours")),
        pytest.param(
            lambda made: os.chown(made.root, 65534, 65534), ("belongs to nobody", "a folder of yours"), marks=needs_root
        ),
    ],
)
def test_a_folder_that_is_damaged_or_not_to_be_trusted_is_refused_with_the_cure(spoil, said, folder):
    folder.marker.write_text(spoil) if isinstance(spoil, str) else spoil(folder)

    with pytest.raises(EnvironmentFaultError, match=said[0]) as caught:
        folders.open_or_create(folder.root)

    assert said[1] in caught.value.hint


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(EnvironmentFaultError, match="cannot create the campaign folder"):
        folders.open_or_create(tmp_path / "file" / "results")


def test_a_second_front_process_is_told_who_is_at_work_and_the_folder_is_free_again_afterwards(folder):
    with (
        folders.lock_folder(folder),
        pytest.raises(EnvironmentFaultError, match=f"process {os.getpid()}"),
        folders.lock_folder(folder),
    ):
        pass
    with folders.lock_folder(folder):
        pass


@pytest.fixture
def disk(folder, monkeypatch):
    """A function: what hinders workers on a file system that has so much."""
    system = {name: getattr(os.statvfs(folder.root), name) for name in ("f_bavail", "f_frsize", "f_flag")}

    def hinders(**changed):
        monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(**system | changed))
        return folder.write_hindrance().removeprefix(f"{folder.root} ")

    return hinders


@pytest.mark.parametrize(
    ("largest", "needed"), [((), 64 << 10), ((30_000, 100_000, 900), 200_000)], ids=["a first record", "one beside it"]
)
def test_a_file_system_without_room_for_the_next_record_is_told(largest, needed, folder, disk):
    for number, size in enumerate(largest):
        folder.cell(f"c{number}").mkdir()
        folder.record(f"c{number}").write_bytes(bytes(size))

    found = [disk(f_bavail=free, f_frsize=1) for free in (0, needed - 1, needed, needed + 1, 1 << 40)]

    assert found == ["is full: workers wait to write their records"] * 2 + [""] * 3


def test_a_file_system_that_is_not_written_or_reached_is_told(folder, disk, monkeypatch):
    assert disk() == ""
    assert disk(f_flag=os.ST_RDONLY) == "is read-only: workers wait to write their records"
    monkeypatch.undo()
    assert "cannot be reached" in folders.CampaignFolder(folder.root / "elsewhere").write_hindrance()


def test_whether_a_worker_is_at_work_is_told_by_its_lock(folder, monkeypatch):
    assert folders.CampaignFolder(folder.root / "elsewhere").is_worker_running() is False
    assert folder.is_worker_running() is False
    with folder.worker_lock():
        assert folder.is_worker_running() is True
    monkeypatch.setattr(folders.FileLock, "acquire", lambda *_, **__: Path("/nowhere").stat())
    assert folder.is_worker_running() is None


def test_a_folder_in_whose_place_any_user_could_put_another_one_is_refused(scratch):
    folders.open_or_create(scratch / "results")
    scratch.chmod(0o777)  # no sticky bit

    with pytest.raises(EnvironmentFaultError, match="lets any user rename its files"):
        folders.open_or_create(scratch / "results")
