"""Datasets in a bucket: the bytes of those in a folder, gone on with by what is there, and nobody else's."""

import hashlib
import json
from dataclasses import replace

import pytest

from jobs.data import bucket_dataset, make, manifest, specs
from jobs.data.synthetic_images import ImageSpec
from jobs.errors import DatasetError
from jobs.objects.client import Client

SPEC = ImageSpec(files=5, classes=2, median_bytes=5_000, sigma=0.3, width=96, height=96, seed=7)
NAMES = [SPEC.name(index) for index in range(SPEC.files)]
BELOW = f"datasets/{specs.dataset_id('set', SPEC)}"
SMALL = 1 << 20  # a marker of more bytes is not read


@pytest.fixture
def made(store, tmp_path):
    """Make it, or look at what is there; returns the manifest."""
    store.objects.clear()
    place = bucket_dataset.Place(Client(store.storage), BELOW)
    return lambda: bucket_dataset.made(place, SPEC, tmp_path, 1, lambda *_: None)


def kept(store, before):
    """The names of the objects that nobody has put again."""
    return {key.removeprefix(f"{BELOW}/") for key, data in before.items() if store.objects.get(key) is data}


def test_the_objects_are_the_bytes_of_the_files_and_the_manifest_has_their_size_etag_and_checksum(
    made, store, tmp_path
):
    files = make.make(tmp_path / "files", SPEC, name="set", processes=1)

    found = made()

    assert (found.files, found.classes, found.checksum) == (files.files, files.classes, files.checksum)
    for file, (etag, sha256) in zip(found.files, found.objects, strict=True):
        content = store.objects[f"{BELOW}/{file.name}"]
        assert content == (tmp_path / "files" / file.name).read_bytes()
        assert (etag, sha256) == (store.etag(f"{BELOW}/{file.name}"), hashlib.sha256(content).hexdigest())
    before = dict(store.objects)
    assert made() == found == manifest.load(tmp_path)
    assert kept(store, before) == {key.removeprefix(f"{BELOW}/") for key in before}


@pytest.mark.parametrize(
    ("harm", "again"),
    [
        (lambda there: there.pop(NAMES[0]), {NAMES[0]}),
        (lambda there: there.update({NAMES[1]: b"other"}), {NAMES[1]}),
        (lambda there: there.update({NAMES[1]: there[NAMES[1]][:-1] + b"?"}), {NAMES[1]}),
        (lambda there: there.update({_journal(there): b"{"}), {*NAMES}),
        (lambda there: there.update({_journal(there): _of_another(there)}), {*NAMES}),
    ],
)
def test_a_make_that_was_stopped_goes_on_with_what_its_journal_and_the_store_have(made, store, harm, again):
    found = made()
    there = {key.removeprefix(f"{BELOW}/"): data for key, data in store.objects.items()}
    del there["manifest.json"]
    harm(there)
    store.objects = {f"{BELOW}/{name}": data for name, data in there.items()}
    before = dict(store.objects)
    store.gets.clear()

    assert made() == found

    assert {*NAMES} - kept(store, before) == again
    assert {key.split("/")[2] for key in store.gets} == {make.MARKER_NAME, ".tfio-journal"}


def _journal(there):
    return next(name for name in there if name.startswith(".tfio-journal/"))


def _of_another(there):
    return json.dumps({**json.loads(there[_journal(there)]), "origin": "another"}).encode()


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (NAMES[0], lambda data: data[:-1] + b"?", "1 with other bytes"),
        (NAMES[0], lambda _: b"short", "1 of the wrong size"),
        (NAMES[0], lambda _: None, "1 missing"),
        ("more.jpg", lambda _: b"more", r"1 not in the manifest \(more.jpg\)"),
        ("manifest.json", lambda _: b"{", "manifest.json is damaged"),
        ("manifest.json", lambda data: data.replace(b'"seed": 7', b'"seed": 8'), "the manifest of another dataset"),
    ],
)
def test_a_dataset_that_was_changed_is_refused_with_what_has_changed(made, store, name, change, said):
    made()
    data = change(store.objects.pop(f"{BELOW}/{name}", b""))
    store.objects |= {} if data is None else {f"{BELOW}/{name}": data}

    with pytest.raises(DatasetError, match=said) as caught:
        made()

    assert "remove s3://" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "data", "holds"),
    [
        ("mine.jpg", b"another\x1b[31m", "objects that are not ours, such as mine.jpg"),
        (make.MARKER_NAME, b"another\x1b[31m", "another"),
        (make.MARKER_NAME, b"x" * SMALL, "xxx"),
        (make.MARKER_NAME, b"x" * (SMALL + 1), "something else"),
    ],
)
def test_what_is_not_ours_is_refused_and_stays(made, store, name, data, holds):
    store.objects[f"{BELOW}/{name}"] = data

    with pytest.raises(DatasetError, match=f"holds {holds}") as caught:
        made()

    assert caught.value.message.isprintable()
    assert store.objects == {f"{BELOW}/{name}": data}


def test_objects_of_a_manifest_come_back_with_it_and_belong_to_its_files(made, tmp_path):
    found = made()
    path = tmp_path / "manifest.json"
    for odd in (found.objects[:-1], ((1, "x"), *found.objects[1:])):
        path.write_text(replace(found, objects=odd).to_json())
        with pytest.raises(DatasetError, match="its objects are not those of its files"):
            manifest.load(tmp_path)
