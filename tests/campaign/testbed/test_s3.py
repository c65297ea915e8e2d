"""The object store of a testbed where it cannot be made, and where others have put something."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from campaign.__main__ import guarded
from campaign.errors import EnvironmentFaultError
from campaign.testbed import ceph, ceph_steps, s3
from jobs.objects.room import Room


def test_a_store_that_cannot_be_made_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(ceph_steps, "missing", lambda: "not installed: radosgw")

    with pytest.raises(EnvironmentFaultError, match="not installed: radosgw"):
        s3.up(tmp_path, s3.Store(size_bytes=1), (0, 0))

    assert not list(tmp_path.iterdir())


def test_a_preview_names_each_step_in_its_order_and_does_none(tmp_path, capsys):
    bed = tmp_path / "bed"

    assert guarded(["testbed", "up", "--dry-run", "s3=true", "s3_size_gb=2", "--folder", str(bed)]) == 0

    told = capsys.readouterr().out
    steps = (
        f"mkdir -p -m 755 {bed}/s3", "/keyring: new keys", "monmaptool --create",
        "ceph-mon -c", "-n mon.a", f"{bed}/s3/ceph.img: a sparse file of 2000000000 bytes", "losetup --find",
        "/osd/block", "osd new", "ceph-osd -c", "-n osd.0", "radosgw -c", "radosgw-admin -c", "# put http://127.0.0.1:",
        "quota enable --quota-scope=bucket --bucket campaign --max-size=1444937728",
        '"made": true', "site/twin_s3.yaml",
    )  # fmt: skip
    places = [told.index(step) for step in steps]
    assert places == sorted(places)
    assert not bed.exists()


@pytest.mark.parametrize(("used", "warned"), [(1_000_000_000, False), (4_900_000_000, True), (None, False)])
def test_the_state_says_how_full_the_bucket_is_and_what_to_do_then(used, warned, tmp_path, monkeypatch, capsys):
    room = None if used is None else Room(used, 5_100_000_000)
    facts = {"port": 1, "disk": str(tmp_path), "size_bytes": 6_000_000_000, "loop": False, "made": True}
    (tmp_path / "s3").mkdir()
    (tmp_path / "s3/gateway.json").write_text(json.dumps(facts))
    monkeypatch.setattr(ceph.Ceph, "answers", lambda *_: True)
    monkeypatch.setattr(ceph.Ceph, "room", lambda _: room)

    assert guarded(["testbed", "status", "--folder", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert guarded(["testbed", "status", "--json", "--folder", str(tmp_path)]) == 0
    told = json.loads(capsys.readouterr().out)["s3"]

    assert f", 6 GB on {tmp_path}" + (f", {room}\n" if room else "\n") in said.out
    assert ("s3 is nearly full: remove objects" in said.err) is warned
    assert (told["used_bytes"], told["quota_bytes"]) == (used, room and 5_100_000_000)


def test_down_removes_an_empty_folder_of_a_store_and_leaves_what_is_not_ours(tmp_path):
    (tmp_path / "s3/site").mkdir(parents=True)
    s3.down(tmp_path, keep=False)
    assert not list(tmp_path.iterdir())

    (tmp_path / "s3").mkdir()
    (tmp_path / "s3/mine").touch()
    s3.down(tmp_path, keep=False)
    assert (tmp_path / "s3/mine").exists()


def test_the_room_of_a_store_that_is_there_stays_promised(tmp_path):
    facts = {"schema": 1, "disk": str(tmp_path), "size_bytes": 50_000_000, "loop": True}
    (tmp_path / "s3").mkdir()
    (tmp_path / "s3/gateway.json").write_text(json.dumps(facts))
    (tmp_path / "ceph.img").write_bytes(bytes(4_096_000))

    assert s3.promised_beneath(tmp_path, None) == 50_000_000 - (tmp_path / "ceph.img").stat().st_blocks * 512
    (tmp_path / "s3/gateway.json").write_text(json.dumps({**facts, "loop": False}))
    assert s3.promised_beneath(tmp_path, None) == 0


def test_a_gateway_that_another_process_is_connected_to_is_not_ended(tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        made = SimpleNamespace(facts={"port": port}, endpoint="http://it", pid=lambda _: os.getpid())
        monkeypatch.setattr(s3, "gateway", lambda _: made)
        s3.see_that_nobody_uses(tmp_path)
        words = f"import socket; s = socket.create_connection(('127.0.0.1', {port})); print(flush=True); input()"
        with subprocess.Popen([sys.executable, "-c", words], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as user:
            user.stdout.readline()
            with pytest.raises(
                EnvironmentFaultError, match=f"s3 is busy: process {user.pid} is connected to http://it"
            ):
                s3.see_that_nobody_uses(tmp_path)
            user.communicate(b"\n")
        s3.see_that_nobody_uses(tmp_path)
