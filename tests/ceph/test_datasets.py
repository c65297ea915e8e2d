"""Datasets that are made in a real bucket: put in parts where they are large, and gone on with after a kill."""

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

from jobs.data import bucket_dataset, make, manifest, specs
from jobs.data.synthetic_hdf5 import HepSpec
from jobs.data.synthetic_images import ImageSpec
from jobs.objects.client import Client
from tests.ceph.test_lab import store

MAKE = """
import json, sys
from pathlib import Path
from tests.ceph import test_datasets
from jobs.data.synthetic_images import ImageSpec
if __name__ == "__main__":
    storage, below, spec, held = json.loads(sys.argv[1])
    place = test_datasets.dataset.Place(test_datasets.Client(storage), below)
    test_datasets.dataset.made(place, ImageSpec(**spec), Path(held), 2, lambda *_: None)
"""


def place_of(storage, spec):
    return bucket_dataset.Place(Client(storage), f"datasets/{specs.dataset_id('set', spec)}")


def made(place, held, spec):
    return bucket_dataset.made(place, spec, held, 1, lambda *_: None)


@pytest.mark.long
def test_a_large_file_is_put_in_parts_and_has_its_checksum(storage, ceph, tmp_path):
    spec = HepSpec(train_files=1, validation_files=0, samples=40, image_size=224, seed=1)
    place = place_of(storage, spec)

    found = made(place, tmp_path, spec)

    ((etag, sha256),) = found.objects
    content = obstore.get(store(ceph), f"{storage['prefix']}/{place.key(found.files[0].name)}").bytes()
    assert etag.strip('"').endswith("-2")
    assert len(content) == found.total_bytes > 16 << 20
    assert hashlib.sha256(content).hexdigest() == sha256


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
