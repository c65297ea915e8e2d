"""How full the bucket of a testbed is: its quota keeps puts from waiting for room, and everybody is told in time."""

from __future__ import annotations

import pytest

from campaign import doctor_node
from campaign.testbed import s3
from campaign.testbed.ceph import GatewaySettings
from jobs.errors import ObjectStoreError
from jobs.objects.client import Client

pytestmark = pytest.mark.long

SIZE = 5_000_000


@pytest.fixture
def usual(ceph):
    """What the bucket may hold."""
    return s3.quota_bytes(GatewaySettings("", ceph.facts["size_bytes"]))


@pytest.fixture
def quota(ceph, usual):
    """Let the bucket hold so many bytes, for one test."""
    words = ("quota", "set", "--quota-scope=bucket", "--bucket", ceph.bucket)
    yield lambda size: ceph.run_command(*words, f"--max-size={size}", program="radosgw-admin")
    ceph.run_command(*words, f"--max-size={usual}", program="radosgw-admin")


def test_the_room_of_a_bucket_is_told_and_follows_what_is_put_and_deleted(ceph, storage, usual):
    client = Client(storage)
    before = client.bucket_space()
    client.put("some", bytes(SIZE))
    with_it = client.bucket_space()
    client.delete(["some"])

    assert with_it.used_bytes == before.used_bytes + SIZE == client.bucket_space().used_bytes + SIZE
    assert with_it.most_bytes == usual
    assert ceph.bucket_space() == before


def test_who_does_not_own_the_bucket_is_not_told(ceph, storage, monkeypatch):
    for key, value in ceph.stranger.items():
        monkeypatch.setenv(key, value)

    assert Client(storage).bucket_space() is None


def test_a_bucket_that_is_nearly_full_is_named_by_the_doctor_and_refuses_what_is_beyond_its_quota(ceph, storage, quota):
    client = Client(storage)
    client.put("some", bytes(SIZE))
    quota(client.bucket_space().used_bytes + 100_000)

    (found,) = doctor_node.examine_storage({**storage, "kind": "s3", "device": ceph.device, "cold": True})

    assert (found.passed, found.what) == (None, "storage")
    assert "the store is nearly full" in found.message
    assert "s3_size_gb" in found.hint
    with pytest.raises(ObjectStoreError, match="more do not fit in the bucket"):
        client.require_room(SIZE)
    with pytest.raises(ObjectStoreError, match="a quota is used up"):
        client.put("more", bytes(SIZE))
    again = Client(storage)
    again.delete(["some"])
    again.put("more", bytes(100_000))
