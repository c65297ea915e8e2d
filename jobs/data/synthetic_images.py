"""Make synthetic photographs from a seed: JPEG files that cost as much to read and decode as real photographs.

`jobs.data.scene` draws the picture. This module selects the number of pixels, the JPEG quality and the amount of detail
so that the JPEG file gets its target size. The files were compared with real photographs.

Equal arguments and equal versions of numpy and Pillow give equal bytes. The manifest has the versions.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from PIL import Image

from jobs.data.scene import Photograph, class_style, item_generator, random_photograph

# Median bits per pixel of nine real photographs of about 482x415 pixels at these JPEG qualities.
# From the target size of a file, this table gives the quality of a real photograph.
_QUALITIES = (75, 80, 85, 90, 93, 95, 96, 97)
_PHOTO_BITS = (1.29, 1.47, 1.71, 2.15, 2.56, 3.10, 3.49, 3.94)
_PHOTO_PIXELS = 482 * 415
# The bits per pixel are proportional to the number of pixels to this power: a smaller photograph has more bits per
# pixel.
_BITS_OVER_PIXELS = -0.2
# The number of objects is proportional to the number of pixels to this power: a small image shows one object, a large
# image shows a scene. The value was found by comparison with real photographs.
_CLUTTER_OVER_PIXELS = 1.5
_QUALITY_JITTER = 0.15  # sigma of ln(bits per pixel): photographs of equal size differ in quality and in detail
_BITS_RANGE = (0.4, 8.0)  # bits per pixel of photographs; JPEG cannot give fewer bits, and more bits are only noise
_HEADER_BYTES = 620  # markers and tables of a baseline JPEG with three components

_AREA_SHARE = 0.75  # share of the variation of ln(file size) that comes from the number of pixels, not from detail
_AREA_JITTER = 0.08  # sigma of ln(pixels) at a given size
_ASPECT_JITTER = 0.2  # sigma of ln(width / height)

_TOLERANCE = 0.02  # accepted error of a file size, relative to the target; a smaller error needs more encodings
_MAX_ENCODINGS = 8
# Range of the texture's amplitude, in ln(grey levels): from a blurred photograph to gravel in the sun.
_LEAST_DETAIL, _FIRST_DETAIL, _MOST_DETAIL = math.log(0.1), math.log(6), math.log(32)
_FIRST_SLOPE = 0.6  # first guess of d ln(size) / d ln(detail)


@dataclass(frozen=True)
class ImageSpec:
    """The specification of synthetic photographs; raises ValueError for parameters that no photograph can have."""

    files: int
    median_bytes: int  # median file size
    sigma: float  # standard deviation of ln(file size); 0 makes all files about equally large
    width: int  # median width in pixels; larger files have more pixels
    height: int  # median height in pixels
    classes: int  # number of classes; each class has other colours and shapes
    seed: int  # 0 or a positive integer

    version: ClassVar[int] = 1  # version of the generator; increase it if equal parameters give different bytes

    def __post_init__(self) -> None:
        if min(self.files, self.classes) < 1 or self.classes > self.files:
            raise ValueError(f"{self.files} files in {self.classes} classes: each class needs at least one file")
        if min(self.width, self.height) < 16 or max(self.width, self.height) > 16_384:  # noqa: PLR2004
            raise ValueError(f"width {self.width} and height {self.height} are not both between 16 and 16384 pixels")
        if self.seed < 0 or not 0 <= self.sigma <= 1.5:  # noqa: PLR2004 - e^(3 x 1.5) is 90 times the median size
            raise ValueError(f"seed {self.seed}, sigma {self.sigma}: seed must be at least 0, sigma between 0 and 1.5")
        low, high = (math.ceil(bits * self.width * self.height / 8) + _HEADER_BYTES for bits in _BITS_RANGE)
        if not low <= self.median_bytes <= high:
            raise ValueError(
                f"median_bytes {self.median_bytes}: photographs of {self.width}x{self.height} pixels"
                f" have {low} to {high} bytes; change median_bytes, width or height"
            )

    def sizes(self) -> npt.NDArray[np.int64]:
        """Return the target size of every image in bytes, shape (files,); the sizes have a log-normal distribution.

        The sizes are evenly spaced quantiles of the distribution, so even a dataset of few files has the requested
        median and spread. The order of the sizes is random and depends on the seed.
        """
        normal = NormalDist(math.log(self.median_bytes), self.sigma) if self.sigma else None
        quantiles = [(i + 0.5) / self.files for i in range(self.files)]
        logs = [normal.inv_cdf(q) if normal else math.log(self.median_bytes) for q in quantiles]
        sizes = np.array([round(math.exp(value)) for value in logs], dtype=np.int64)
        return item_generator(self.seed, 0).permutation(sizes)

    def label(self, index: int) -> int:
        """Return the class of an image; the numbers of images in two classes differ by at most one image."""
        return index % self.classes

    def name(self, index: int) -> str:
        """Return the path of an image relative to its dataset, as in `class_007/image_000123.jpg`."""
        return f"class_{self.label(index):03d}/image_{index:06d}.jpg"

    def content(self, index: int, size: int) -> bytes:
        """Return an image as a JPEG file (RGB, 4:2:0, baseline) of about `size` bytes.

        The size of the file is within about 2 % of `size` if a JPEG quality from 75 to 97 can give such a file.
        """
        rng = item_generator(self.seed, 1, index)
        style = class_style(item_generator(self.seed, 2, self.label(index)))
        width, height = self._pixels(rng, size)
        photo_bits = np.log(_PHOTO_BITS) + _BITS_OVER_PIXELS * math.log(width * height / _PHOTO_PIXELS)
        target_bits = math.log(8 * size / (width * height))
        quality = round(float(np.interp(target_bits + _QUALITY_JITTER * rng.standard_normal(), photo_bits, _QUALITIES)))
        clutter = math.exp(target_bits - float(np.interp(quality, _QUALITIES, photo_bits)))
        clutter *= (width * height / _PHOTO_PIXELS) ** _CLUTTER_OVER_PIXELS
        return _search_encoding(random_photograph(rng, style, (width, height), min(1.0, clutter)), quality, size)

    def _pixels(self, rng: np.random.Generator, size: int) -> tuple[int, int]:
        """Return width and height of one image; larger files have more pixels, as in ImageNet."""
        area_jitter, aspect_jitter = rng.standard_normal(2).clip(-2.5, 2.5)
        spread = 1.0 if self.sigma else 0.0
        area = _AREA_SHARE * math.log(size / self.median_bytes) + spread * _AREA_JITTER * area_jitter
        aspect = spread * _ASPECT_JITTER * aspect_jitter
        width = round(self.width * math.exp((area + aspect) / 2))
        height = round(self.height * math.exp((area - aspect) / 2))
        return max(16, width), max(16, height)


def _search_encoding(picture: Photograph, quality: int, target_bytes: int) -> bytes:
    """Return the JPEG file closest to the target size; the search changes the detail first, then the quality."""
    best, best_error = b"", math.inf
    detail, slope = _FIRST_DETAIL, _FIRST_SLOPE
    previous: tuple[float, float] | None = None
    for _ in range(_MAX_ENCODINGS):
        data = _encode(picture.with_detail(math.exp(detail)), quality)
        error = math.log(len(data) / target_bytes)
        if abs(error) < best_error:
            best, best_error = data, abs(error)
        if best_error < _TOLERANCE:
            break
        if previous and previous[0] != detail:
            slope = min(1.5, max(0.12, (error - previous[1]) / (detail - previous[0])))
        previous = (detail, error)
        detail = min(_MOST_DETAIL, max(_LEAST_DETAIL, detail - min(1.5, max(-1.5, error / slope))))
        if detail == previous[0]:
            quality, previous = (
                min(_QUALITIES[-1], max(_QUALITIES[0], quality - round(math.copysign(4, error)))),
                None,
            )
    return best


def _encode(image: Image.Image, quality: int) -> bytes:
    """Return the image as a baseline JPEG file with halved colour resolution (4:2:0), like the files of cameras."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality, subsampling="4:2:0")
    return file.getvalue()
