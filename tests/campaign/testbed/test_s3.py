"""The object store of a testbed where it cannot be made, and where others have put something."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from campaign.__main__ import run_guarded
from campaign.errors import EnvironmentFaultError
from campaign.testbed import ceph, s3


def test_a_store_that_cannot_be_made_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(s3, "missing_for_gateway", lambda: "not installed: radosgw")

    with pytest.raises(EnvironmentFaultError, match="not installed: radosgw"):
        s3.bring_up_store(tmp_path, s3.StoreRequest(size_bytes=1), (0, 0))

    assert not list(tmp_path.iterdir())


def test_a_preview_names_each_step_in_its_order_and_does_none(tmp_path, capsys):
    bed = tmp_path / "bed"

    assert run_guarded(["testbed", "up", "--dry-run", "s3=true", "s3_size_gb=2", "--folder", str(bed)]) == 0

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


def test_down_removes_an_empty_folder_of_a_store_and_leaves_what_is_not_ours(tmp_path):
    (tmp_path / "s3/site").mkdir(parents=True)
    s3.take_down_store(tmp_path, keep=False)
    assert not list(tmp_path.iterdir())

    (tmp_path / "s3").mkdir()
    (tmp_path / "s3/mine").touch()
    s3.take_down_store(tmp_path, keep=False)
    assert (tmp_path / "s3/mine").exists()


def test_the_room_of_a_store_that_is_there_stays_promised(tmp_path):
    facts = {"schema": 1, "disk": str(tmp_path), "size_bytes": 50_000_000, "loop": True}
    (tmp_path / "s3").mkdir()
    (tmp_path / "s3/gateway.json").write_text(json.dumps(facts))
    (tmp_path / "ceph.img").write_bytes(bytes(4_096_000))

    assert s3.bytes_promised_beneath(tmp_path, None) == 50_000_000 - (tmp_path / "ceph.img").stat().st_blocks * 512
    (tmp_path / "s3/gateway.json").write_text(json.dumps({**facts, "loop": False}))
    assert s3.bytes_promised_beneath(tmp_path, None) == 0
    (tmp_path / "s3/gateway.json").write_text("{")
    with pytest.raises(EnvironmentFaultError, match=r"gateway\.json cannot be read"):
        s3.bytes_promised_beneath(tmp_path, None)


def test_a_gateway_that_another_process_is_connected_to_is_not_ended(tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        made = SimpleNamespace(facts={"port": port}, endpoint="http://it", pid=lambda _: os.getpid())
        monkeypatch.setattr(s3, "gateway_in", lambda _: made)
        s3.require_unused(tmp_path)
        words = f"import socket; s = socket.create_connection(('127.0.0.1', {port})); print(flush=True); input()"
        with subprocess.Popen([sys.executable, "-c", words], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as user:
            user.stdout.readline()
            with pytest.raises(
                EnvironmentFaultError, match=f"s3 is busy: process {user.pid} is connected to http://it"
            ):
                s3.require_unused(tmp_path)
            user.communicate(b"\n")
        s3.require_unused(tmp_path)


def test_a_folder_whose_sockets_would_have_too_long_names_is_refused(tmp_path, capsys):
    """unix(7): 107 bytes; that of the gateway is FOLDER/s3/ceph/client.gateway.asok."""
    room = 107 - len(f"{tmp_path}//s3/ceph/client.gateway.asok")

    codes = [
        run_guarded(["testbed", "up", "--dry-run", "s3=true", "--folder", f"{tmp_path}/{'x' * length}"])
        for length in (room, room + 1)
    ]

    assert codes == [0, 2]
    assert "is too long for a unix socket" in capsys.readouterr().err


@pytest.fixture
def gateway(tmp_path):
    """A gateway of which only the facts are there."""
    (tmp_path / "gateway.json").write_text(json.dumps({"schema": 1, "disk": str(tmp_path), "port": 7}))
    return ceph.Ceph(tmp_path)


def test_an_order_that_fails_says_why(gateway, monkeypatch):
    for code, said in ((0, "well"), (1, "")):
        done = SimpleNamespace(returncode=code, stdout=said, stderr="no\nsuch pool")
        monkeypatch.setattr(ceph.programs, "run_program", lambda words, done=done, **_: done)
        if not code:
            assert gateway.run_command("osd", "new") == "well"
            continue
        with pytest.raises(EnvironmentFaultError, match="ceph osd: no such pool"):
            gateway.run_command("osd", "new")


def test_the_disk_of_the_store_is_its_loop_device_or_else_its_file(gateway, monkeypatch):
    (gateway.private / "osd").mkdir(parents=True)
    block, found = gateway.private / "osd/block", []
    for device in ("/dev/loop7", "", "/dev/loop8"):
        done = SimpleNamespace(stdout=f"{device}\n")
        monkeypatch.setattr(ceph.programs, "run_program", lambda *_, done=done, **__: done)
        gateway.link()
        found.append(str(block.readlink()))

    assert found == ["/dev/loop7", f"{gateway.folder}/ceph.img", "/dev/loop8"]


def test_a_port_that_somebody_listens_on_is_not_given(monkeypatch):
    given = iter([0, 0, 5])
    monkeypatch.setattr(ceph.secrets, "randbelow", lambda _: next(given))
    (port,) = ceph.find_free_ports(1)

    with socket.create_server(("127.0.0.1", port)):
        assert ceph.find_free_ports(1) == [port + 5]
