"""The object store of a testbed where it cannot be made, and where others have put something."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from campaign.errors import EnvironmentFaultError
from campaign.testbed import ceph, s3


def test_a_store_that_cannot_be_made_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(ceph, "missing", lambda: "not installed: radosgw")

    with pytest.raises(EnvironmentFaultError, match="not installed: radosgw"):
        s3.up(tmp_path, s3.Store(size_bytes=1), (0, 0))

    assert not list(tmp_path.iterdir())


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
