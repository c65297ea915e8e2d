"""Stores that are full or nearly so: said before anything is put where they tell, and in bounded time where not."""

from __future__ import annotations

import pytest

from jobs.burst_buffer.bucket import Bucket
from jobs.data import bucket_dataset, specs
from jobs.errors import FolderError, ObjectStoreError
from jobs.objects import faults
from jobs.objects.client import Client
from jobs.objects.room import Room

USED, MOST = "X-RGW-Bytes-Used", "X-RGW-Quota-Bucket-Size"
LARGE = {"files": 100, "median_bytes": 1_000_000, "sigma": 0.0, "width": 2000, "height": 1500, "classes": 1, "seed": 1}


@pytest.mark.parametrize(
    ("headers", "room"),
    [
        ({USED: "600", MOST: "1000"}, Room(600, 1000)),
        ({USED: "600", MOST: "-1"}, Room(600, None)),  # no quota
        ({USED: "600"}, Room(600, None)),
        ({MOST: "1000"}, None),
        ({USED: "much", MOST: "1000"}, None),
        ({}, None),  # not Ceph
    ],
)
def test_a_bucket_has_the_room_that_its_store_tells(store, headers, room):
    store.room = headers

    assert Client(store.storage).room() == room


def test_of_a_store_that_does_not_answer_no_room_is_known(store):
    client = Client(store.storage)
    store.close()

    assert client.room() is None
    client.require_room(1 << 60)


@pytest.mark.parametrize(("used", "nearly"), [(899, False), (900, False), (901, True)])
def test_a_bucket_is_nearly_full_from_nine_tenths_of_its_room_on(used, nearly):
    assert Room(used, 1000).is_nearly_full is nearly
    assert not Room(used, None).is_nearly_full
    assert (Room(used, 1000).lacks(1000 - used), Room(used, None).lacks(1 << 60)) == ("", "")
    assert Room(used, 1000).lacks(1001 - used)
    words = "2.5 GB more do not fit in the bucket: 3.4 of 5.1 GB used", "3.4 GB used"
    assert (Room(3_440_000_000, 5_060_000_000).lacks(2_520_000_000), str(Room(3_440_000_000, None))) == words


def test_what_does_not_fit_is_refused_before_any_file_is_put(store, tmp_path):
    store.room = {USED: "0", MOST: "50000000"}
    before = dict(store.objects)
    spec = specs.spec_of(LARGE)
    place = bucket_dataset.Place(Client(store.storage), f"datasets/{specs.dataset_id('large', spec)}")

    with pytest.raises(ObjectStoreError, match=r"0\.1 GB more do not fit in the bucket: 0\.0 of 0\.1") as caught:
        bucket_dataset.made(place, spec, tmp_path, 1, lambda *_: None)
    with pytest.raises(FolderError, match="more do not fit"):
        Bucket(f"{store.storage['endpoint']}/bucket/p").require_room(50_000_001)

    assert "s3_size_gb" in caught.value.hint
    assert {key for key in store.objects.keys() - before.keys() if key.endswith(".jpg")} == set()


@pytest.mark.parametrize(("retries", "puts"), [(60, 3), (1, 2)])
def test_a_store_that_answers_reads_and_no_writes_is_said_to_be_full_after_three_of_them(store, retries, puts):
    store.hangs = ("PUT",)
    client = Client({**store.storage, "timeout_s": 0.2, "retries": retries})

    with pytest.raises(ObjectStoreError, match=faults.FULL[0]):
        client.put("one", b"1")

    assert client.counts.errors == {"timeout": puts}


def test_a_store_that_answers_nothing_is_asked_on(store):
    store.hangs = ("PUT", "HEAD")
    client = Client({**store.storage, "timeout_s": 0.2, "retries": 4})

    with pytest.raises(ObjectStoreError, match=r"gives no answer \(timeout\) after 5 requests"):
        client.put("one", b"1")
