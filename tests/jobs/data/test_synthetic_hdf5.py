"""NERSC's HDF5 datasets: in layout and size as published; and what is none, refused."""

# ruff: noqa: SLF001 - what HDF5 adds is known there alone

from dataclasses import replace

import h5py
import numpy as np
import pytest

from jobs.data import synthetic_hdf5
from jobs.data.make import make_dataset
from jobs.data.synthetic_hdf5 import ClimateSpec, HepSpec

HEP = HepSpec(train_files=2, validation_files=1, samples=16, image_size=8, seed=5)
CLIMATE = ClimateSpec(files=3, height=12, width=18, seed=5)


@pytest.fixture(scope="module", params=[HEP, CLIMATE], ids=["hep", "climate"])
def made(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "dataset"
    return request.param, make_dataset(folder, request.param, name="test", processes=2)


def test_the_layout_of_hep_is_the_published_one(tmp_path):
    found = make_dataset(tmp_path / "hep", HEP, name="hep", processes=1)

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
            hit = file["data"][:][file["data"][:] > 0]
            assert (file["data"][:].min(), hit.size / file["data"].size) == (0.0, pytest.approx(0.1, abs=0.03))
            assert (hit.mean(), hit.max()) == (pytest.approx(0.5, abs=0.1), pytest.approx(1.0, abs=0.1))
            assert {*file["label"][:]} <= {0, 1}
            assert all(10 < file[each][:].max() < 1000 for each in ("psr", "eid", "jz"))


def test_the_layout_of_climate_is_the_published_one(tmp_path):
    make_dataset(tmp_path / "climate", CLIMATE, name="climate", processes=1)

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
    added = found.files[0].size - (spec.sizes()[0] - synthetic_hdf5._OVERHEAD_BYTES)
    if isinstance(spec, HepSpec):
        paper, kib = HepSpec(train_files=1024, validation_files=1024, samples=709, image_size=224, seed=0), 416_918
        assert [paper.samples_of(index) for index in (0, 1023, 1024, 2047)] == [709, 709, 94, 94]
        unread = 4 * 4
        asked = [
            paper.sizes()[index] - synthetic_hdf5._OVERHEAD_BYTES - unread * paper.samples_of(index)
            for index in (0, 1024)
        ]
        assert asked == [426_908_752, 56_600_032]
    else:
        paper, kib = ClimateSpec(files=62_738, height=768, width=1152, seed=0), 58_761

    assert paper.sizes()[0] - synthetic_hdf5._OVERHEAD_BYTES + added == pytest.approx(kib * 1024, abs=2048)


def test_about_the_size_that_is_asked_for_is_written(made):
    spec, found = made

    assert all(
        0 <= aim - each.size <= synthetic_hdf5._OVERHEAD_BYTES
        for aim, each in zip(spec.sizes(), found.files, strict=True)
    )


def test_the_classes_of_climate_have_their_shares_and_its_fields_are_even(tmp_path):
    with (tmp_path / "x.h5").open("w+b") as file:
        ClimateSpec(files=2, height=300, width=400, seed=5).write(file, 0)
    with h5py.File(tmp_path / "x.h5") as file:
        shares = np.bincount(file["climate/labels"][:].astype(int).ravel()) / 120_000
        assert shares == pytest.approx([0.982, 0.017, 0.001], abs=0.001)
        assert file["climate/stats"][:] == pytest.approx(np.tile([0, 4.6, -4.6, 1], (16, 1)), abs=0.9)
    assert [ClimateSpec(3, 9, 9, 0).name(index) for index in range(3)] == [
        "data-1996-01-01-00-1.h5", "data-1996-01-01-03-1.h5", "stats.h5",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "good", "bad", "why"),
    [
        (HEP, {"samples": 1}, {"samples": 0}, "must be at least 1"),
        (HEP, {"train_files": 1, "validation_files": 0}, {"train_files": 0}, "must be at least 1"),
        (HEP, {"validation_files": 0, "seed": 0}, {"validation_files": -1}, "validation_files and seed at least 0"),
        (HEP, {"seed": 0}, {"seed": -1}, "seed at least 0"),
        (HEP, {"image_size": 1}, {"image_size": 0}, "image_size 0"),
        (HEP, {"image_size": 16_384}, {"image_size": 16_385}, "image_size 16385"),
        (CLIMATE, {"files": 1}, {"files": 0}, "must be at least 1"),
        (CLIMATE, {"seed": 0}, {"seed": -1}, "seed at least 0"),
        (CLIMATE, {"width": 1, "height": 1}, {"width": 0}, "not both between 1"),
        (CLIMATE, {"width": 16_384}, {"width": 16_385}, "not both between 1"),
        (CLIMATE, {"height": 8192, "width": 8191}, {"height": 8192, "width": 8192}, "less than 4 GiB"),
    ],
)
def test_what_cannot_be_made_is_refused(spec, good, bad, why):
    replace(spec, **good)

    with pytest.raises(ValueError, match=why):
        replace(spec, **bad)
