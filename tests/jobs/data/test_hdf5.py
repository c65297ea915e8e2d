"""NERSC's HDF5 datasets: in layout and size as published; and what is none, refused."""

# ruff: noqa: SLF001 - what HDF5 adds is known there alone

from dataclasses import replace

import h5py
import numpy as np
import pytest

from jobs.data import hdf5
from jobs.data.hdf5 import ClimateSpec, HepSpec
from jobs.data.make import make

HEP = HepSpec(train_files=2, validation_files=1, samples=16, image_size=8, seed=5)
CLIMATE = ClimateSpec(files=3, height=12, width=18, seed=5)


@pytest.fixture(scope="module", params=[HEP, CLIMATE], ids=["hep", "climate"])
def made(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "dataset"
    return request.param, make(folder, request.param, name="test", processes=2)


def test_the_layout_of_hep_is_the_published_one(tmp_path):
    found = make(tmp_path / "hep", HEP, name="hep", processes=1)

    assert [(each.name, each.label) for each in found.files] == [
        ("train/train_0000.h5", 0), ("train/train_0001.h5", 0), ("validation/validation_0000.h5", 1),
    ]  # fmt: skip
    for name, samples in (("train/train_0001.h5", 16), ("validation/validation_0000.h5", 2)):
        with h5py.File(tmp_path / "hep" / name) as file:
            assert set(file) == {"data", "label", "psr", "normweight", "weight", "eid", "jz", "mg", "mn"}
            assert file["data"].shape == (samples, 3, 8, 8)
            assert [file[each].dtype for each in ("data", "weight", "normweight", "label", "psr")] == ["<f4"] * 3 + [
                "<i4"
            ] * 2
            for each in file.values():
                assert (len(each), each.chunks, each.compression) == (samples, None, None)
                assert each.id.get_offset() is not None
            assert file["data"][:].min() == 0.0 < file["data"][:].max() < 1.0001
            assert 0 < np.count_nonzero(file["data"]) < file["data"].size / 4


def test_the_layout_of_climate_is_the_published_one(tmp_path):
    make(tmp_path / "climate", CLIMATE, name="climate", processes=1)

    assert sorted(path.name for path in (tmp_path / "climate").iterdir())[-4:] == [
        "data-1996-01-01-00-1.h5", "data-1996-01-01-03-1.h5", "manifest.json", "stats.h5",
    ]  # fmt: skip
    with h5py.File(tmp_path / "climate" / "data-1996-01-01-03-1.h5") as file:
        data, labels, stats = (file["climate"][name] for name in ("data", "labels", "stats"))
        assert (data.shape, data.dtype, data.chunks) == ((16, 12, 18), "<f4", (16, 12, 18))
        assert (labels.shape, labels.dtype, labels.chunks) == ((12, 18), "<f4", (12, 18))
        assert (stats.shape, data.compression, labels.compression) == ((16, 4), None, None)
        assert set(np.unique(labels)) <= {0.0, 1.0, 2.0}
        assert stats[3].tolist() == pytest.approx([data[3].mean(), data[3].max(), data[3].min(), data[3].std()])
    with h5py.File(tmp_path / "climate" / "stats.h5") as file:
        assert file["climate/stats"].shape == (16, 4)


def test_a_published_file_has_the_published_bytes(made):
    """Asked for in one load; on disk in KiB. What HDF5 adds hardly depends on what is in a file."""
    spec, found = made
    added = found.files[0].size - (spec.sizes()[0] - hdf5._OVERHEAD_BYTES)
    if isinstance(spec, HepSpec):
        paper, kib = HepSpec(train_files=1024, validation_files=1024, samples=709, image_size=224, seed=0), 416_918
        assert [paper.samples_of(index) for index in (0, 1023, 1024, 2047)] == [709, 709, 94, 94]
        unread = 4 * 4
        asked = [paper.sizes()[index] - hdf5._OVERHEAD_BYTES - unread * paper.samples_of(index) for index in (0, 1024)]
        assert asked == [426_908_752, 56_600_032]
    else:
        paper, kib = ClimateSpec(files=62_738, height=768, width=1152, seed=0), 58_761

    assert paper.sizes()[0] - hdf5._OVERHEAD_BYTES + added == pytest.approx(kib * 1024, abs=2048)


def test_about_the_size_that_is_asked_for_is_written(made):
    spec, found = made

    assert all(
        0 <= aim - each.size <= hdf5._OVERHEAD_BYTES for aim, each in zip(spec.sizes(), found.files, strict=True)
    )


@pytest.mark.parametrize(
    ("make_it", "why"),
    [
        (lambda: replace(HEP, samples=0), "count from 1"),
        (lambda: replace(HEP, image_size=0), "image_size 0"),
        (lambda: replace(CLIMATE, files=0), "count from 1"),
        (lambda: replace(CLIMATE, width=0), "sides go from 1"),
        (lambda: replace(CLIMATE, height=16_384, width=16_384), "less than 4 GiB"),
    ],
)
def test_what_cannot_be_made_is_refused(make_it, why):
    with pytest.raises(ValueError, match=why):
        make_it()
