"""Datasets that are made in a bucket, against the same ones made in a folder."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import time
from dataclasses import asdict

import obstore
import pytest

from jobs.data import make, manifest
from jobs.data.hdf5 import HepSpec
from jobs.data.images import ImageSpec
from jobs.errors import DatasetError, ObjectStoreError
from jobs.objects import dataset
from jobs.objects.client import Client
from tests.ceph.test_lab import store

IMAGES = ImageSpec(files=10, classes=2, median_bytes=5_000, sigma=0.3, width=96, height=96, seed=7)
MAKE = """
import json, sys
from pathlib import Path
from tests.ceph import test_datasets
from jobs.data.images import ImageSpec
if __name__ == "__main__":
    storage, below, spec, held = json.loads(sys.argv[1])
    place = test_datasets.dataset.Place(test_datasets.Client(storage), below)
    test_datasets.dataset.made(place, ImageSpec(**spec), Path(held), 2, lambda *_: None)
"""


def place_of(storage, spec=IMAGES):
    return dataset.Place(Client(storage), f"datasets/{make.dataset_id('set', spec)}")


def made(place, held, spec=IMAGES, processes=1):
    return dataset.made(place, spec, held, processes, lambda *_: None)


def test_the_objects_are_the_bytes_of_the_files_and_the_manifest_has_their_size_etag_and_checksum(
    storage, ceph, tmp_path
):
    place = place_of(storage)
    (tmp_path / "held").mkdir()
    files = make.make(tmp_path / "files", IMAGES, name="set", processes=1)

    found = made(place, tmp_path / "held")

    assert (found.files, found.classes, found.checksum) == (files.files, files.classes, files.checksum)
    for file, (etag, sha256) in zip(found.files, found.objects, strict=True):
        content = (tmp_path / "files" / file.name).read_bytes()
        got = obstore.get(store(ceph), f"{storage['prefix']}/{place.key(file.name)}")
        assert bytes(got.bytes()) == content
        assert (got.meta["e_tag"], sha256) == (etag, hashlib.sha256(content).hexdigest())
        assert etag.strip('"') == hashlib.md5(content).hexdigest()  # noqa: S324 - S3's own
    assert manifest.load(tmp_path / "held") == found
    assert made(place, tmp_path / "held") == found


def test_a_large_file_is_put_in_parts_and_has_its_checksum(storage, ceph, tmp_path):
    spec = HepSpec(train_files=1, validation_files=0, samples=40, image_size=224, seed=1)
    place = place_of(storage, spec)

    found = made(place, tmp_path, spec)

    ((etag, sha256),) = found.objects
    content = obstore.get(store(ceph), f"{storage['prefix']}/{place.key(found.files[0].name)}").bytes()
    assert etag.strip('"').endswith("-2")
    assert len(content) == found.total_bytes > 16 << 20
    assert hashlib.sha256(content).hexdigest() == sha256


def test_a_make_that_was_stopped_keeps_what_has_its_etag_and_makes_the_rest(storage, ceph, tmp_path):
    place = place_of(storage)

    def stop(done, _total):
        if done == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dataset.made(place, IMAGES, tmp_path, 1, stop)
    at = f"{storage['prefix']}/{place.below}"
    before = _changes(ceph, at)
    names = [IMAGES.name(index) for index in (0, 1)]
    obstore.delete(store(ceph), f"{at}/{names[0]}")
    obstore.put(store(ceph), f"{at}/{names[1]}", b"other")
    found = made(place, tmp_path)

    after = _changes(ceph, at)
    kept = [name for name, changed in before.items() if after[name] == changed and name.endswith(".jpg")]
    assert len(kept) == 6
    assert not {f"{at}/{name}" for name in names}.intersection(kept)
    assert found == made(place, tmp_path)


def _changes(gateway, prefix):
    return {each["path"]: each["last_modified"] for page in obstore.list(store(gateway), prefix) for each in page}


@pytest.mark.long
def test_a_make_that_was_killed_is_not_there_and_the_next_two_at_once_complete_it(storage, ceph, tmp_path):
    spec = ImageSpec(files=60, classes=2, median_bytes=5_000, sigma=0.3, width=96, height=96, seed=7)
    place = place_of(storage, spec)
    words = json.dumps([storage, place.below, asdict(spec), str(tmp_path)])
    killed = subprocess.Popen([sys.executable, "-c", MAKE, words])
    while len(place.listed()) < 20:
        assert killed.poll() is None
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()

    assert manifest.MANIFEST_NAME not in place.listed()
    both = [subprocess.Popen([sys.executable, "-c", MAKE, words]) for _ in range(2)]
    assert [each.wait() for each in both] == [0, 0]
    files = make.make(tmp_path / "files", spec, name="set", processes=1)
    assert made(place, tmp_path, spec).checksum == files.checksum


def test_a_dataset_that_was_changed_is_refused_with_what_has_changed(storage, ceph, tmp_path):
    place, bucket = place_of(storage), store(ceph)
    (first, *_), at = made(place, tmp_path).files, f"{storage['prefix']}/{place.below}"
    content = bytes(obstore.get(bucket, f"{at}/{first.name}").bytes())
    changes = {
        "1 with other bytes": (first.name, content[:-1] + b"?"),
        "1 of the wrong size": (first.name, b"short"),
        "1 missing": (first.name, None),
        r"1 not in the manifest \(more.jpg\)": ("more.jpg", b"more"),
        "manifest.json is damaged": ("manifest.json", b"{"),
    }

    for said, (name, other) in changes.items():
        obstore.delete(bucket, f"{at}/{name}") if other is None else obstore.put(bucket, f"{at}/{name}", other)
        with pytest.raises(DatasetError, match=said) as caught:
            made(place, tmp_path)
        assert "remove s3://" in caught.value.hint
        obstore.put(bucket, f"{at}/{first.name}", content)
        obstore.delete(bucket, f"{at}/more.jpg")


@pytest.mark.parametrize("name", ["mine.jpg", make.MARKER_NAME])
def test_what_is_not_ours_is_refused_and_stays(name, storage, ceph, tmp_path):
    place = place_of(storage)
    obstore.put(store(ceph), f"{storage['prefix']}/{place.key(name)}", b"another\x1b[31m")

    with pytest.raises(DatasetError, match=r"holds (another|objects that are not ours)") as caught:
        made(place, tmp_path)

    assert caught.value.message.isprintable()
    assert list(place.listed()) == [name]


def test_who_may_not_write_is_told_so_at_once(storage, ceph, tmp_path, monkeypatch):
    for key, value in ceph.stranger.items():
        monkeypatch.setenv(key, value)

    with pytest.raises(ObjectStoreError, match=r"(?i)access ?denied"):
        made(place_of(storage), tmp_path)


def test_a_quota_that_is_used_up_is_named(storage, ceph, tmp_path):
    with ceph.quota(0), pytest.raises(ObjectStoreError, match="a quota is used up"):
        made(place_of(storage), tmp_path)
