"""Synthetic photographs: what they are made of, and that they are what was asked for."""

import io
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from jobs.data.images import ImageSpec
from tests.jobs.jobs_factory import spectral_slope

SPEC = ImageSpec(files=24, median_bytes=4_000, sigma=0.4, width=128, height=96, classes=3, seed=5)

specs = st.builds(
    ImageSpec,
    files=st.integers(5, 400),
    median_bytes=st.integers(4_000, 12_000),
    sigma=st.floats(0, 0.8),
    width=st.integers(120, 160),
    height=st.integers(120, 160),
    classes=st.integers(1, 5),
    seed=st.integers(0, 2**40),
)


def image(data):
    return Image.open(io.BytesIO(data))


@pytest.fixture(scope="module")
def made():
    targets = SPEC.sizes()
    return [SPEC.content(index, int(targets[index])) for index in range(SPEC.files)]


@given(specs)
def test_the_sizes_have_the_median_and_the_spread_that_were_asked_for(spec):
    sizes = spec.sizes()

    assert sizes.shape == (spec.files,)
    assert np.median(sizes) == pytest.approx(spec.median_bytes, rel=0.1 / spec.files + 0.05 * spec.sigma)
    assert np.log(sizes).std() == pytest.approx(spec.sigma, rel=0.2, abs=1e-3)


@given(specs)
def test_every_class_has_its_share_of_the_images_whose_names_are_unique_and_tell_it(spec):
    counts = np.bincount([spec.label(index) for index in range(spec.files)], minlength=spec.classes)
    names = [spec.name(index) for index in range(spec.files)]

    assert len(counts) == spec.classes
    assert counts.max() - counts.min() <= 1
    assert len(set(names)) == spec.files
    assert all(name.startswith(f"class_{spec.label(i):03d}/") for i, name in enumerate(names))


def test_images_are_colour_jpegs_with_halved_colour_resolution_as_cameras_write_them(made):
    pictures = [image(data) for data in made]

    assert {(picture.format, picture.mode) for picture in pictures} == {("JPEG", "RGB")}
    assert {tuple(layer[1:3] for layer in picture.layer) for picture in pictures} == {((2, 2), (1, 1), (1, 1))}
    assert not any("progressive" in picture.info for picture in pictures)


def test_no_two_images_are_alike(made):
    thumbnails = {image(data).resize((8, 8)).tobytes() for data in made}

    assert len(thumbnails) == SPEC.files


def test_files_come_to_the_size_that_was_drawn_for_them():
    spec = ImageSpec(24, 112_000, 0.45, 482, 415, 4, 3)
    targets = spec.sizes()

    sizes = np.array([len(spec.content(i, int(targets[i]))) for i in range(spec.files)])

    assert np.abs(np.log(sizes / targets)).max() < 0.05
    assert np.median(sizes) == pytest.approx(112_000, rel=0.02)
    assert np.log(sizes).std() == pytest.approx(np.log(targets).std(), rel=0.1)


def test_pixels_vary_around_those_asked_for_and_grow_with_the_file(made):
    shapes = np.array([image(data).size for data in made])
    areas = np.log(shapes.prod(axis=1))

    assert np.median(shapes, axis=0) == pytest.approx([SPEC.width, SPEC.height], rel=0.12)
    assert len({tuple(shape) for shape in shapes.tolist()}) > SPEC.files / 2
    assert np.corrcoef(areas, np.log([len(data) for data in made]))[0, 1] > 0.8


def test_every_parameter_changes_the_image():
    changes = {"median_bytes": 5_000, "width": 140, "height": 110, "classes": 2, "seed": 6}
    before = SPEC.content(2, 4_000)

    after = {key: replace(SPEC, **{key: value}).content(2, 4_000) for key, value in changes.items()}

    assert [key for key, data in after.items() if data == before] == []


def test_amplitude_falls_with_frequency_as_in_photographs():
    spec = ImageSpec(8, 112_000, 0.0, 482, 415, 4, 3)

    slopes = [spectral_slope(image(spec.content(index, 112_000))) for index in range(spec.files)]

    assert -1.9 < np.median(slopes) < -1.0  # noise has 0, nature about -1, real photographs -0.9 to -1.6 here


def colours(picture):
    """Count pixels by Cb and Cr, shape (256,)."""
    chroma = np.asarray(picture.convert("YCbCr"))[..., 1:] // 16
    return np.bincount(chroma[..., 0].ravel() * 16 + chroma[..., 1].ravel(), minlength=256) / chroma[..., 0].size


def test_a_class_can_be_told_from_the_colours_of_its_images():
    spec = ImageSpec(96, 4_000, 0.3, 128, 96, 8, 11)
    targets = spec.sizes()
    features = np.array([colours(image(spec.content(i, int(targets[i])))) for i in range(spec.files)])
    labels = np.array([spec.label(i) for i in range(spec.files)])
    centres = np.array([features[:56][labels[:56] == k].mean(axis=0) for k in range(8)])

    guesses = np.linalg.norm(features[56:, None] - centres, axis=2).argmin(axis=1)

    assert np.mean(guesses == labels[56:]) > 0.4  # chance: 0.125


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"files": 0}, "0 files"),
        ({"classes": 25}, "25 classes"),
        ({"median_bytes": 100}, "median_bytes 100"),
        ({"median_bytes": 10**7}, "median_bytes 10000000"),
        ({"sigma": -1.0}, "sigma -1"),
        ({"sigma": math.nan}, "sigma nan"),
        ({"seed": -1}, "seed -1"),
        ({"width": 4}, "4x96"),
    ],
)
def test_what_no_photographs_can_be_made_of_is_refused_by_name(change, named):
    with pytest.raises(ValueError, match=named):
        replace(SPEC, **change)
