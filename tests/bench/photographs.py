"""How near do the synthetic images come to photographs, in what a storage benchmark sees of them?

    python -m tests.bench photographs --photos FOLDER

FOLDER holds real photographs (JPEG or PNG), none of which is part of this project. scikit-image, scikit-learn
and ultralytics carry nine in their wheels; unpack these outside the project:

    skimage/data: astronaut.png chelsea.png coffee.png motorcycle_left.png rocket.jpg
    sklearn/datasets/images: china.jpg flower.jpg          ultralytics/assets: bus.jpg zidane.jpg

Each photograph is scaled down and cropped to the dataset's pixels, and encoded with the JPEG quality that
brings it nearest to the dataset's median bytes per pixel. Both kinds then go the same way: decoded, looked
at, encoded anew. The time is CPU time of `tf.io.decode_jpeg` on one core, the kinds taking turns. Medians
over images; a ratio of 1 is the aim, 0.8 to 1.25 is good.
"""

from __future__ import annotations

import io
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from jobs.data.synthetic_images import ImageSpec
from tests.bench.bench import Figure
from tests.jobs.jobs_factory import spectral_slope

NEEDS = "photos"
SIZES = {"smoke": {"photos": "", "files": 2, "repeats": 1}, "full": {"photos": "", "files": 64, "repeats": 15}}

DATASETS = {
    "imagenet_subset": ImageSpec(16_384, 112_000, 0.45, 482, 415, 100, 1),
    "caltech101": ImageSpec(9_144, 12_000, 0.555, 300, 200, 102, 1),
}


@dataclass(frozen=True)
class Sample:
    data: bytes
    quality: int

    @property
    def image(self) -> Image.Image:
        return Image.open(io.BytesIO(self.data)).convert("RGB")

    @property
    def pixels(self) -> int:
        image = Image.open(io.BytesIO(self.data))
        return image.width * image.height


def encoded(image: Image.Image, quality: int) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality, subsampling="4:2:0")
    return file.getvalue()


def photograph(path: Path, spec: ImageSpec) -> Sample:
    """Bring a photograph to the dataset's pixels and bytes."""
    image = Image.open(path).convert("RGB")
    scale = min(1.0, max(spec.width / image.width, spec.height / image.height))
    image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS)
    left, top = max(0, image.width - spec.width) // 2, max(0, image.height - spec.height) // 2
    image = image.crop((left, top, min(image.width, left + spec.width), min(image.height, top + spec.height)))
    target = spec.median_bytes * image.width * image.height / (spec.width * spec.height)
    quality = min(range(40, 100), key=lambda quality: abs(len(encoded(image, quality)) - target))
    return Sample(encoded(image, quality), quality)


def synthetic(spec: ImageSpec, count: int) -> list[Sample]:
    """Make images spread over the whole dataset, in size too."""
    targets = spec.sizes()
    indices = range(0, spec.files, spec.files // count)
    files = [spec.content(index, int(targets[index])) for index in indices]
    return [Sample(data, pillow_quality(data)) for data in files]


def pillow_quality(data: bytes) -> int:
    """Find the quality in the quantisation table of a file."""
    table = Image.open(io.BytesIO(data)).quantization[0]
    grey = Image.new("L", (8, 8))
    return min(range(1, 101), key=lambda quality: abs(sum(quantisation(grey, quality)) - sum(table)))


def quantisation(image: Image.Image, quality: int) -> list[int]:
    return Image.open(io.BytesIO(encoded(image, quality))).quantization[0]


def bits_at(sample: Sample, quality: int) -> float:
    return 8 * len(encoded(sample.image, quality)) / sample.pixels


def busy_coefficients(sample: Sample) -> float:
    """Share of the luma's AC coefficients that quality 90 leaves other than zero."""
    grey = np.asarray(sample.image.convert("L"), dtype=float) - 128
    rows, columns = (length // 8 for length in grey.shape)
    blocks = grey[: 8 * rows, : 8 * columns].reshape(rows, 8, columns, 8).swapaxes(1, 2)
    k = np.arange(8)
    basis = np.cos((2 * k[None] + 1) * k[:, None] * np.pi / 16) / 2
    basis[0] /= np.sqrt(2)
    table = np.array(quantisation(Image.new("L", (8, 8)), 90)).reshape(8, 8)
    levels = np.rint(basis @ blocks @ basis.T / table)
    levels[..., 0, 0] = 0
    return float(np.count_nonzero(levels) / (rows * columns * 63))


@contextmanager
def _silenced_log() -> Iterator[None]:
    """Keep what TensorFlow writes past Python's streams, however quiet it is asked to be, while it starts."""
    kept = os.dup(2)
    with Path(os.devnull).open("w") as null:
        os.dup2(null.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def decode_seconds(groups: list[list[Sample]], repeats: int) -> list[list[float]]:
    """Median CPU seconds to decode each image, the groups taking turns."""
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
    with _silenced_log():
        import tensorflow as tf  # noqa: PLC0415 - slow to import, not needed for --help

        tf.config.threading.set_inter_op_parallelism_threads(1)
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.io.decode_jpeg(groups[0][0].data)
    times: list[list[list[float]]] = [[[] for _ in group] for group in groups]
    for _ in range(repeats):
        for position in range(max(map(len, groups))):
            for group, own in zip(groups, times, strict=True):
                sample, mine = group[position % len(group)], own[position % len(group)]
                start = time.process_time()
                tf.io.decode_jpeg(sample.data, channels=3)
                mine.append(time.process_time() - start)
    return [[statistics.median(mine) for mine in own] for own in times]


def compare(title: str, photos: list[Sample], ours: list[Sample], repeats: int) -> Iterator[Figure]:
    seconds = decode_seconds([photos, ours], repeats)
    rows = {
        "JPEG quality of the file": lambda s, _: s.quality,
        "bits per pixel of the file": lambda s, _: 8 * len(s.data) / s.pixels,
        "slope of the spectrum": lambda s, _: spectral_slope(s.image),
        "bits per pixel at quality 75": lambda s, _: bits_at(s, 75),
        "bits per pixel at quality 90": lambda s, _: bits_at(s, 90),
        "AC coefficients kept at 90, %": lambda s, _: 100 * busy_coefficients(s),
        "decode, ns per pixel": lambda s, t: 1e9 * t / s.pixels,
        "decode, ns per byte": lambda s, t: 1e9 * t / len(s.data),
    }
    for name, of in rows.items():
        photo, synthetic = (
            float(np.median([of(s, t) for s, t in zip(group, times, strict=True)]))
            for group, times in zip((photos, ours), seconds, strict=True)
        )
        what = f"{title}, {name}: synthetic {synthetic:.2f}, real {photo:.2f}; ratio"
        yield Figure(what, synthetic / photo, "", "0.8 to 1.25")


def measure(photos: str, files: int, repeats: int) -> Iterator[Figure]:
    """Compare each dataset with the photographs, brought to its pixels and bytes."""
    paths = sorted(p for p in Path(photos).iterdir() if p.suffix.lower() in {".jpg", ".jpeg", ".png"})
    if not paths:
        sys.exit(f"no photographs in {photos}")
    for name, spec in DATASETS.items():
        yield from compare(name, [photograph(path, spec) for path in paths], synthetic(spec, files), repeats)
