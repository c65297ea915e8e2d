"""Draw the scene of a synthetic photograph from a seed. `jobs.data.synthetic_images` encodes the scene as JPEG.

A scene is the sum of three parts:

- "dead leaves": opaque objects that cover one another, with radii that follow a power law. Such objects give the scene
  the edges, occlusions and smooth regions of photographs (Lee, Mumford, Huang 2001, doi 10.1023/A:1011109015675).
- a texture whose amplitude falls with frequency (Field 1987, doi 10.1364/JOSAA.4.002379).
- white noise, like the noise of a camera's sensor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter

Plane = npt.NDArray[np.float32]

_FOCUS_DETAIL = 1.0  # grey levels of texture; if the texture is weaker, the edges of objects are softer, too
# Cycles per pixel. Below this frequency the gain of the texture is constant, because the objects already vary slowly.
_CORNER = 0.01
_NOISE_FLOOR = 3.0  # gain of the white noise; the gain of the texture, 1 / frequency, is 3.0 at 1/3 cycle per pixel


def item_generator(*path: int) -> np.random.Generator:
    """Return a random generator that is seeded with the numbers `path`; other numbers give an independent generator."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(path)))


@dataclass(frozen=True)
class ClassStyle:
    """The features that all images of one class share, so that a classifier can learn the class."""

    palette: npt.NDArray[np.float64]  # shape (colours, 3): Y, Cb, Cr
    angle: float  # main direction of objects and texture, radians
    elongation: float  # factor by which objects are stretched along the main direction
    lobes: int  # number of bumps in the outline of an object
    smallest: float  # radius of the smallest objects, as a share of the image's side
    objects: int  # number of near objects at full clutter


def class_style(rng: np.random.Generator) -> ClassStyle:
    """Return a random style for a class."""
    hue = rng.uniform(0, 2 * np.pi) + rng.choice([0.0, 0.5, np.pi], 5) + rng.normal(0, 0.25, 5)
    chroma = rng.gamma(2.5, 9.0, 5)  # most surfaces are nearly grey, few are vivid
    luma = rng.permutation(np.linspace(45, 205, 5)) + rng.normal(0, 12, 5)
    palette = np.stack([luma, 128 + chroma * np.cos(hue), 128 + chroma * np.sin(hue)], axis=1)
    return ClassStyle(
        palette=palette,
        angle=rng.uniform(0, np.pi),
        elongation=rng.uniform(1.0, 2.2),
        lobes=int(rng.integers(2, 6)),
        smallest=rng.uniform(0.012, 0.025),
        objects=int(rng.integers(90, 220)),
    )


@dataclass(frozen=True)
class Photograph:
    """The planes from which `with_detail` makes an image; every plane has the shape (height, width)."""

    soft: Plane  # luma out of focus
    sharp: Plane  # luma in focus minus luma out of focus
    blue: Plane
    red: Plane
    texture: Plane  # noise with a mean strength of 1, stronger on rough objects and weaker on smooth objects

    def with_detail(self, detail: float) -> Image.Image:
        """Return the image as YCbCr, with a texture of `detail` grey levels."""
        grain = np.float32(detail) * self.texture
        focus = np.float32(min(1.0, detail / _FOCUS_DETAIL))
        # In photographs, colour varies less than brightness, and independently of brightness. So the colour planes get
        # a weaker texture that is mirrored.
        bands = (
            self.soft + focus * self.sharp + grain,
            self.blue + np.float32(0.15) * grain[::-1, ::-1],
            self.red + np.float32(0.15) * grain[::-1],
        )
        return Image.merge("YCbCr", [Image.fromarray(np.clip(band, 0, 255).astype(np.uint8)) for band in bands])


def random_photograph(rng: np.random.Generator, style: ClassStyle, size: tuple[int, int], clutter: float) -> Photograph:
    """Return a random scene with light, texture and noise; less `clutter` means fewer objects."""
    bands = _scene(rng, style, size, clutter).split()
    luma, blue, red, roughness = (np.asarray(band, dtype=np.float32) for band in bands)
    soft = np.asarray(bands[0].filter(ImageFilter.BoxBlur(2.0)), dtype=np.float32)
    light = _light(rng, *size)
    texture = _texture(rng, style, *size) * (roughness * np.float32(1 / 64))
    return Photograph(soft=soft * light, sharp=(luma - soft) * light, blue=blue, red=red, texture=texture)


def _scene(rng: np.random.Generator, style: ClassStyle, size: tuple[int, int], clutter: float) -> Image.Image:
    """Return an image of overlapping objects, with far objects out of focus; bands are Y, Cb, Cr and roughness x 64."""
    width, height = size
    scene = Image.new("CMYK", (width, height))
    draw = ImageDraw.Draw(scene)
    side = math.sqrt(width * height)
    _draw_ground(rng, style, draw, width, height)
    near_count = 4 + round(clutter * style.objects)
    far_count = 2 + round(near_count * float(rng.uniform(0.3, 1.0)))
    _draw_leaves(rng, style, draw, far_count, size)
    scene = scene.filter(ImageFilter.BoxBlur(float(rng.uniform(0.002, 0.012)) * side))
    _draw_leaves(rng, style, ImageDraw.Draw(scene), near_count, size)
    return scene.filter(ImageFilter.GaussianBlur(0.45))  # blurred as by a lens, so that edges have no steps


def _draw_ground(
    rng: np.random.Generator, style: ClassStyle, draw: ImageDraw.ImageDraw, width: int, height: int
) -> None:
    """Fill the image with a sky and a ground, so that every image has large smooth parts."""
    horizon = round(height * float(rng.uniform(0.2, 0.9)))
    sky, ground = _colours(rng, style, 2)
    draw.rectangle((0, 0, width, height), fill=(*sky[:3], 36))
    draw.rectangle((0, horizon, width, height), fill=ground)


def _colours(rng: np.random.Generator, style: ClassStyle, count: int) -> list[tuple[int, int, int, int]]:
    """Return random colours near the palette's colours, each with a roughness."""
    chosen = style.palette[rng.integers(0, len(style.palette), count)]
    varied = chosen + rng.normal(0, 1, (count, 3)) * (22, 7, 7)
    rough = 64 * rng.lognormal(-0.05, 0.35, (count, 1))
    values = np.concatenate([varied, rough], axis=1).clip((8, 40, 40, 6), (247, 215, 215, 255))
    return [(y, cb, cr, r) for y, cb, cr, r in values.astype(int).tolist()]


def _draw_leaves(
    rng: np.random.Generator, style: ClassStyle, draw: ImageDraw.ImageDraw, count: int, size: tuple[int, int]
) -> None:
    """Draw `count` objects. The density of radii falls with the radius to the power 3, so that no size dominates."""
    side = math.sqrt(size[0] * size[1])
    smallest, largest = max(style.smallest * side, 5), 0.33 * side
    radius = smallest / np.sqrt(1 - rng.random((count, 1)) * (1 - (smallest / largest) ** 2))
    turn = np.linspace(0, 2 * np.pi, 28, endpoint=False)
    phase = rng.uniform(0, 2 * np.pi, (count, 2, 1))
    bumps = 1 + 0.2 * np.cos(style.lobes * turn + phase[:, 0]) + 0.08 * np.cos(7 * turn + phase[:, 1])
    angle = style.angle + rng.normal(0, 0.4, (count, 1))
    along, across = radius * bumps * np.cos(turn) * style.elongation, radius * bumps * np.sin(turn)
    x = rng.uniform(0, size[0], (count, 1)) + along * np.cos(angle) - across * np.sin(angle)
    y = rng.uniform(0, size[1], (count, 1)) + along * np.sin(angle) + across * np.cos(angle)
    outlines = np.stack([x, y], axis=2).reshape(count, -1).tolist()
    for outline, colour in zip(outlines, _colours(rng, style, count), strict=True):
        draw.polygon(outline, fill=colour)


def _light(rng: np.random.Generator, width: int, height: int) -> Plane:
    """Return the brightness of the light on the scene, shape (height, width): a smooth field around 1."""
    coarse = rng.normal(1, 0.16, (5, 6)).astype(np.float32)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def _texture(rng: np.random.Generator, style: ClassStyle, width: int, height: int) -> Plane:
    """Return noise with a falling spectrum, shape (height, width), of unit variance."""
    rows, columns = _fast_length(height), _fast_length(width)
    fy = np.fft.fftfreq(rows).astype(np.float32)[:, None]
    fx = np.fft.rfftfreq(columns).astype(np.float32)[None, :]
    cos, sin = np.float32(math.cos(style.angle)), np.float32(math.sin(style.angle))
    # The texture is stretched along the main direction of the class, like the texture of bark, grass, cloth and water.
    square = (fx * cos + fy * sin) ** 2 * np.float32(style.elongation) + (fy * cos - fx * sin) ** 2
    square[0, 0] = 1
    gain = 1 / np.sqrt(square + np.float32(_CORNER**2)) + np.float32(_NOISE_FLOOR)
    white = rng.standard_normal((2, *gain.shape), dtype=np.float32)
    field = np.fft.irfft2((white[0] + 1j * white[1]) * gain, s=(rows, columns))[:height, :width]
    scaled: Plane = (field / field.std()).astype(np.float32)
    return scaled


def _fast_length(length: int) -> int:
    """Return the next length without a prime factor above 5; the Fourier transform of other lengths is slow."""
    while True:
        quotient = length
        for prime in (2, 3, 5):
            while quotient % prime == 0:
                quotient //= prime
        if quotient == 1:
            return length
        length += 1
