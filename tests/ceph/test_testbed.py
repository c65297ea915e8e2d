"""The object store of a testbed, as a person makes it: `testbed up s3=true`."""

from __future__ import annotations

import socket
import stat
import subprocess
import tempfile
from pathlib import Path

import obstore
import pytest
import yaml

from campaign.__main__ import run_guarded
from tests.campaign.testbed import testbeds
from tests.ceph import lab
from tests.ceph.test_lab import store

WORDS = ("s3=true", "s3_size_gb=2")


@pytest.fixture
def bed():
    testbeds.required()
    if reason := lab.missing_for_gateway():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="s3-bed-") as above:  # short, for unix sockets; only root may write there
        yield Path(above, "bed")
        assert call(Path(above, "bed"), "down") == 0


def call(folder, what, *words):
    return run_guarded(["testbed", what, "--folder", str(folder), *words])


@pytest.mark.long
def test_a_store_keeps_its_objects_and_its_secret_and_goes_without_a_trace(bed, capfd, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "localhost")
    assert call(bed, "up", *WORDS) == 0
    assert call(bed, "up", "--dry-run", *WORDS) == 0
    said = "".join(capfd.readouterr())
    made = lab.Lab(bed / "s3")
    assert f", 2 GB on {made.device}, 0.0 of 1.4 GB used\n" in said
    assert "nothing to do" in said
    _see_who_may_read(bed, made, said)
    monkeypatch.delenv("http_proxy")
    obstore.put(store(made), "kept", b"kept")
    made.kill("osd")
    assert call(bed, "up", *WORDS) == 0
    assert call(bed, "down", "--keep") == 0
    assert call(bed, "status") == 1
    assert call(bed, "up", *WORDS) == 0

    assert obstore.get(store(made), "kept").bytes() == b"kept"
    assert call(bed, "status") == 0
    device = made.device
    with socket.create_connection(("127.0.0.1", made.facts["port"])) as mine:
        reader = subprocess.Popen(["sleep", "600"], stdin=mine.fileno())
    assert call(bed, "down") == 3
    assert f"s3 is busy: process {reader.pid}" in capfd.readouterr().err
    reader.kill()
    reader.wait()
    made.freeze("osd")
    assert call(bed, "down") == 0
    assert not bed.exists()
    assert not Path("/sys/block", Path(device).name, "loop/backing_file").exists()


def _see_who_may_read(bed, made, said):
    secret = made.credentials["AWS_SECRET_ACCESS_KEY"]
    assert secret not in said
    assert stat.S_IMODE(made.credentials_file.stat().st_mode) == 0o600
    assert stat.S_IMODE((bed / "s3/ceph").stat().st_mode) == 0o700
    for path in (bed / "s3").glob("[!c]*"):
        assert not path.is_file() or secret not in path.read_text()
    site = yaml.safe_load((bed / "s3/site/twin_s3.yaml").read_text())
    assert site["storages"]["s3"]["endpoint"] == made.endpoint
    assert site["storages"]["s3"]["device"] == made.device
    assert secret not in str(site)
