"""Datasets in a folder and in a bucket: the same bytes, gone on with by what is there, and nobody else's."""

import hashlib
import json

import pytest

from jobs.data import make, manifest
from jobs.data.synthetic_images import ImageSpec
from jobs.errors import DatasetError
from jobs.store.bucket import Bucket

SPEC = ImageSpec(files=5, classes=2, median_bytes=5_000, sigma=0.3, width=96, height=96, seed=7)
NAMES = [SPEC.name(index) for index in range(SPEC.files)]


@pytest.fixture
def made(kind, raw):
    """Make it, or look at what is there; returns the manifest."""
    place = raw.root if kind == "folder" else Bucket({**raw.root.storage, "prefix": "p"}, "s3://bucket/p")
    return lambda: make.make_dataset(place, SPEC, name="set", processes=1)


def test_the_bytes_are_those_of_any_place_and_objects_have_their_etag_and_checksum(made, raw, kind, tmp_path):
    files = make.make_dataset(tmp_path / "files", SPEC, name="set", processes=1)

    found = made()

    assert (found.files, found.classes, found.checksum) == (files.files, files.classes, files.checksum)
    assert [raw[name] for name in NAMES] == [(tmp_path / "files" / name).read_bytes() for name in NAMES]
    if kind == "bucket":
        digests = [hashlib.sha256(raw[name]).hexdigest() for name in NAMES]
        assert found.objects == tuple(
            (raw.root.etag(f"p/{name}"), sha) for name, sha in zip(NAMES, digests, strict=True)
        )
    assert found == manifest.parse_manifest(raw["manifest.json"], "")
    before = dict(raw)
    assert made() == found
    assert dict(raw) == before


@pytest.mark.parametrize(
    ("harm", "again"),
    [
        (lambda there: there.pop(NAMES[0]), {NAMES[0]}),
        (lambda there: there.update({NAMES[1]: b"other"}), {NAMES[1]}),
        (lambda there: there.update({_journal(there): b"{"}), {*NAMES}),
        (lambda there: there.update({_journal(there): _with(there, origin="another")}), {*NAMES}),
        (lambda there: there.update({".class.0.tmp": b"of one that was killed"}), set()),
    ],
)
def test_a_make_that_was_stopped_goes_on_with_what_its_journal_and_the_store_have(made, raw, harm, again):
    found = made()
    del raw["manifest.json"]
    harm(raw)
    before, _held = {name: raw.version(name) for name in NAMES if name in raw}, dict(raw)

    assert made() == found

    assert {name for name in NAMES if raw.version(name) != before.get(name)} == again
    assert ".class.0.tmp" not in raw


def _journal(there):
    return next(name for name in there if name.startswith(".tfio-journal-"))


def _with(there, **changes):
    return json.dumps({**json.loads(there[_journal(there)]), **changes}).encode()


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (NAMES[0], lambda _: b"short", "1 of the wrong size"),
        (NAMES[0], lambda _: None, "1 missing"),
        ("more.jpg", lambda _: b"more", r"1 not in the manifest \(more.jpg\)"),
        ("manifest.json", lambda _: b"{", "manifest.json is damaged"),
        ("manifest.json", lambda data: data.replace(b'"seed": 7', b'"seed": 8'), "has a dataset with other parameters"),
    ],
)
def test_a_dataset_that_was_changed_is_refused_with_what_has_changed_and_stays(made, raw, name, change, said):
    made()
    data = change(raw.pop(name, b""))
    raw.update({} if data is None else {name: data})
    before = dict(raw)

    with pytest.raises(DatasetError, match=said) as caught:
        made()

    assert caught.value.hint
    assert dict(raw) == before


@pytest.mark.parametrize("kind", ["bucket"], indirect=True)
def test_an_object_that_was_changed_is_refused_by_its_etag(made, raw):
    made()
    raw[NAMES[0]] = raw[NAMES[0]][:-1] + b"?"

    with pytest.raises(DatasetError, match="1 with other bytes"):
        made()


@pytest.mark.parametrize(
    ("name", "data", "holds"),
    [
        ("mine.jpg", b"another", "files that this program did not make, such as mine.jpg"),
        (make.MARKER_NAME, b"another\x1b[31m", "another"),
    ],
)
def test_what_is_not_ours_is_refused_and_stays(made, raw, name, data, holds):
    raw[name] = data

    with pytest.raises(DatasetError, match=f"contains {holds}") as caught:
        made()

    assert caught.value.message.isprintable()
    assert dict(raw) == {name: data}
