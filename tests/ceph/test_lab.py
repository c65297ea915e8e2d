"""The lab itself: what the other tests of S3 rely on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store


def store(gateway, **changes):
    """A plain client, which neither waits nor tries again."""
    told = {"credentials": gateway.credentials, "bucket": gateway.bucket, "timeout": "2 seconds"} | changes
    return S3Store(
        told["bucket"], endpoint=gateway.endpoint, region=gateway.region, virtual_hosted_style_request=False,
        access_key_id=told["credentials"]["AWS_ACCESS_KEY_ID"],
        secret_access_key=told["credentials"]["AWS_SECRET_ACCESS_KEY"],
        client_options={"allow_http": True, "timeout": told["timeout"]}, retry_config={"max_retries": 0},
    )  # fmt: skip


def test_every_read_comes_from_the_device(ceph):
    bucket = store(ceph)
    obstore.put(bucket, "lab/cold", bytes(4_000_000))
    before = _read_bytes(ceph)

    for _ in range(5):
        obstore.get(bucket, "lab/cold").bytes()

    assert _read_bytes(ceph) - before >= 5 * 4_000_000


def test_a_user_without_rights_and_an_unknown_one_are_denied(ceph):
    obstore.put(store(ceph), "lab/mine", b"1")

    for credentials in (ceph.stranger, {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "knows"}):
        with pytest.raises(obstore.exceptions.PermissionDeniedError):
            obstore.get(store(ceph, credentials=credentials), "lab/mine")


def test_who_has_not_the_keys_of_the_daemons_gives_them_no_orders(ceph, tmp_path):
    (tmp_path / "ceph.conf").write_text(f"[global]\nmon_host = [v2:127.0.0.1:{ceph.facts['mon_port']}/0]\n")

    order = ("config", "set", "osd", "log_file", tmp_path / "taken")
    words = ("ceph", "-c", tmp_path / "ceph.conf", "--connect-timeout", "5", *order)
    told = subprocess.run(words, capture_output=True, check=False)

    assert told.returncode != 0


def test_a_gateway_that_was_killed_comes_back_with_what_was_put(ceph):
    obstore.put(store(ceph), "lab/kept", b"kept")

    ceph.kill("gateway")
    with pytest.raises(obstore.exceptions.GenericError, match="error sending request"):
        obstore.get(store(ceph), "lab/kept")
    ceph.start("gateway")

    assert obstore.get(store(ceph), "lab/kept").bytes() == b"kept"


def test_an_osd_that_is_stopped_answers_when_it_goes_on(ceph):
    obstore.put(store(ceph), "lab/slow", b"slow")

    ceph.freeze("osd")
    with pytest.raises(obstore.exceptions.GenericError, match=r"error sending request|timed out"):
        obstore.get(store(ceph, timeout="300ms"), "lab/slow").bytes()
    ceph.thaw("osd")

    assert obstore.get(store(ceph, timeout="20s"), "lab/slow").bytes() == b"slow"


def test_a_quota_refuses_a_put_and_ends(ceph):
    with ceph.quota(0), pytest.raises(obstore.exceptions.BaseError, match="QuotaExceeded"):
        obstore.put(store(ceph), "lab/quota", b"1")

    obstore.put(store(ceph), "lab/after", b"1")


@pytest.mark.long
def test_a_full_disk_lets_puts_wait_and_gets_go_on(ceph):
    obstore.put(store(ceph), "lab/before", b"1")

    with ceph.full():
        assert obstore.get(store(ceph), "lab/before").bytes() == b"1"
        with pytest.raises(obstore.exceptions.GenericError):
            obstore.put(store(ceph, timeout="500ms"), "lab/full", b"1")

    obstore.put(store(ceph, timeout="20s"), "lab/after", b"1")


def _read_bytes(gateway):
    if not gateway.device:
        pytest.skip("a loop device needs root")
    return int(Path("/sys/block", Path(gateway.device).name, "stat").read_text().split()[2]) * 512
