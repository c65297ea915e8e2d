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

from jobs.data import make, manifest, specs
from jobs.data.synthetic_hdf5 import HepSpec
from jobs.data.synthetic_images import ImageSpec
from jobs.store.bucket import Bucket
from tests.ceph.test_lab import store

MAKE = """
import json, sys
from tests.ceph import test_datasets
from jobs.data.synthetic_images import ImageSpec
if __name__ == "__main__":
    storage, spec = json.loads(sys.argv[1])
    spec = ImageSpec(**spec)
    test_datasets.make.make(test_datasets.place_of(storage, spec), spec, name="set", processes=2)
"""


def place_of(storage, spec):
    prefix = f"{storage['prefix']}/datasets/{specs.dataset_id('set', spec)}"
    return Bucket({**storage, "prefix": prefix}, f"s3://{storage['bucket']}/{prefix}")


def made(place, spec):
    return make.make_dataset(place, spec, name="set", processes=1)


@pytest.mark.long
def test_a_large_file_is_put_in_parts_and_has_its_checksum(storage, ceph):
    spec = HepSpec(train_files=1, validation_files=0, samples=40, image_size=224, seed=1)
    place = place_of(storage, spec)

    found = made(place, spec)

    ((etag, sha256),) = found.objects
    content = obstore.get(store(ceph), f"{place.client.prefix}{found.files[0].name}").bytes()
    assert etag.strip('"').endswith("-2")
    assert len(content) == found.total_bytes > 16 << 20
    assert hashlib.sha256(content).hexdigest() == sha256


@pytest.mark.long
def test_a_make_that_was_killed_is_not_there_and_the_next_two_at_once_complete_it(storage, ceph, tmp_path):
    spec = ImageSpec(files=60, classes=2, median_bytes=5_000, sigma=0.3, width=96, height=96, seed=7)
    place = place_of(storage, spec)
    words = json.dumps([storage, asdict(spec)])
    killed = subprocess.Popen([sys.executable, "-c", MAKE, words])
    while len(place.entries()) < 20:
        assert killed.poll() is None
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()

    assert manifest.MANIFEST_NAME not in place.entries()
    both = [subprocess.Popen([sys.executable, "-c", MAKE, words]) for _ in range(2)]
    assert [each.wait() for each in both] == [0, 0]
    files = make.make_dataset(tmp_path / "files", spec, name="set", processes=1)
    assert made(place, spec).checksum == files.checksum
