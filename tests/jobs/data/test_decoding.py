"""Images that say they are larger than anybody's are unreadable, before any memory is taken for them."""

import io
import struct

import pytest
from PIL import Image

from jobs.data.pipeline import MOST_PIXELS
from tests.jobs.jobs_factory import make_request, write_jpegs

SIDE = 10_000
TOO_MANY = f"the image has more than {MOST_PIXELS:,} pixels"
NEITHER = "the file is neither JPEG nor PNG"
ANY_BYTES = 400 << 20  # of a run with small images; one of these bombs, decoded, has 300 MB and 1.2 GB more as floats


def _saved(kind, side=64, mode="L", **how):
    file = io.BytesIO()
    Image.new(mode, (side, side)).save(file, kind, **how)
    return bytearray(file.getvalue())


def _says(data, place, order, height, width):
    struct.pack_into(f"{order}HH", data, place, height, width)
    return bytes(data)


def _jpeg(*, progressive):
    data = _saved("jpeg", progressive=progressive)
    return _says(data, data.index(b"\xff\xc2" if progressive else b"\xff\xc0") + 5, ">", SIDE, SIDE)


def _late_png():
    """A chunk that nobody knows comes first, and has small sides where a PNG's own stand."""
    data, small = _saved("png", SIDE, "1"), struct.pack(">IIIII", 13, 0x61624364, 8, 8, 0)
    return bytes(data[:8] + small + b"\0" * 5 + data[8:])


BOMBS = {
    "png.png": (lambda: bytes(_saved("png", SIDE, "1")), TOO_MANY),
    "late.png": (_late_png, NEITHER),
    "jpeg.jpg": (lambda: _jpeg(progressive=False), TOO_MANY),
    "progressive.jpg": (lambda: _jpeg(progressive=True), TOO_MANY),
    "gif.jpg": (lambda: _says(_saved("gif"), 6, "<", SIDE, SIDE), NEITHER),
}


@pytest.fixture
def figures(job, disk):
    """Return what a run gives of good images with bombs among them, and the bytes that it took."""
    folder = disk / "data"
    write_jpegs(folder, 6)
    for name, (make, _) in BOMBS.items():
        (folder / name).write_bytes(make())
        assert (folder / name).stat().st_size < 16_000
    Image.new("RGB", (40, 30)).save(folder / "really-a-png.jpg", "png")
    return job("execute_in_memory", **make_request(folder, disk / "held", threads=1))


def test_images_of_too_many_pixels_take_no_memory_and_are_counted_and_named(figures):
    told, grown = figures

    assert (told["images"], told["images_asked"], told["image_errors"]) == (7, 12, 5)
    assert {bad["file"]: bad["error"] for bad in told["unreadable"]} == {name: why for name, (_, why) in BOMBS.items()}
    assert grown < ANY_BYTES
