"""Synthetic photographs: what they are made of, and that they are what was asked for."""

import io
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from jobs.data import scene
from jobs.data.synthetic_images import ImageSpec
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
    ("good", "bad", "named"),
    [
        ({"files": 3}, {"files": 2}, "2 files in 3 classes"),
        ({"classes": 1}, {"classes": 0}, "24 files in 0 classes"),
        ({"files": 1, "classes": 1}, {"files": 0, "classes": 0}, "0 files in 0 classes"),
        ({"median_bytes": 1235}, {"median_bytes": 1234}, "median_bytes 1234: .* have 1235 to 12908 bytes"),
        ({"median_bytes": 12_908}, {"median_bytes": 12_909}, "median_bytes 12909"),
        ({"sigma": 0.0}, {"sigma": -0.1}, "sigma -0.1"),
        ({"sigma": 1.5}, {"sigma": 1.6}, "sigma 1.6"),
        ({}, {"sigma": math.nan}, "sigma nan"),
        ({"seed": 0}, {"seed": -1}, "seed -1"),
        ({"width": 16, "median_bytes": 1000}, {"width": 15, "median_bytes": 1000}, "width 15 and"),
        ({"height": 16_384, "median_bytes": 10**6}, {"height": 16_385, "median_bytes": 10**6}, "height 16385 are"),
    ],
)
def test_what_no_photographs_can_be_made_of_is_refused_by_name(good, bad, named):
    replace(SPEC, **good)

    with pytest.raises(ValueError, match=named):
        replace(SPEC, **bad)


# By seed of the generators and grey levels of detail: of Y, Cb and Cr mean, spread, and the mean step down and across.
DRAWN = {
    (1, 0.5): [(125.622, 42.140, 5.085, 5.172), (117.472, 14.676, 1.833, 1.840), (125.734, 6.864, 1.054, 1.045)],
    (1, 6.0): [(125.698, 45.818, 9.665, 9.903), (117.481, 14.676, 2.178, 2.186), (125.743, 6.900, 1.435, 1.426)],
    (2, 0.5): [(123.652, 59.933, 6.043, 7.231), (135.745, 25.213, 2.620, 3.553), (124.670, 20.155, 2.313, 3.084)],
    (2, 6.0): [(123.376, 63.698, 9.922, 11.622), (135.754, 25.233, 2.918, 3.840), (124.680, 20.183, 2.607, 3.370)],
}


@pytest.mark.parametrize(("seed", "detail"), DRAWN)
def test_equal_seeds_draw_the_photographs_of_this_version(seed, detail):
    style = scene.class_style(scene.item_generator(seed, 2, 0))
    picture = scene.random_photograph(scene.item_generator(seed, 1, 0), style, (150, 110), 0.6).with_detail(detail)

    for plane, drawn in zip(np.asarray(picture, float).transpose(2, 0, 1), DRAWN[seed, detail], strict=True):
        steps = [np.abs(np.diff(plane, axis=axis)).mean() for axis in (0, 1)]
        assert (plane.mean(), plane.std(), *steps) == pytest.approx(drawn, rel=1e-3)


def test_equal_parameters_give_the_files_of_this_version(made):
    """Bytes, sides, and the first step of quantization, which follows from the quality."""
    found = [(len(data), *image(data).size, image(data).quantization[0][0]) for data in made[:3]]

    assert SPEC.version == 1
    assert found == [
        pytest.approx(each, rel=0.003) for each in ((5344, 129, 123, 7), (9047, 192, 119, 2), (3903, 153, 88, 8))
    ]
