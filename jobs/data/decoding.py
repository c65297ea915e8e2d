"""JPEG and PNG images decoded in bounds: a file of a few kB may say that it has billions of pixels.

TensorFlow takes the memory that the header asks for (2.3 GB for a PNG of 8 kB). So that is read first, by operations of
the graph: they need no lock of Python's, and take 1.5 % of the time in which an image of 112 kB is read and decoded.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from jobs.lazy_imports import tf

MOST_PIXELS = 89_478_485  # above them Pillow warns of a bomb (Image.MAX_IMAGE_PIXELS)
_JPEG, _PNG = b"\xff\xd8", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"  # what comes first in a PNG has its size behind it


def decoded(contents: tf.Tensor) -> tf.Tensor:
    """Return the pixels of an image, uint8 ``(height, width, 3)``; InvalidArgumentError where they are too many."""
    is_jpeg = tf.strings.substr(contents, 0, len(_JPEG)) == _JPEG
    pixels = tf.cond(is_jpeg, lambda: _pixels_of_jpeg(contents), lambda: _pixels_of_png(contents))
    with _only_if(pixels <= MOST_PIXELS, f"it has more than {MOST_PIXELS:,} pixels"):
        return tf.io.decode_jpeg(contents, channels=3)  # knows PNG, too


def _pixels_of_jpeg(contents: tf.Tensor) -> tf.Tensor:
    return tf.reduce_prod(tf.io.extract_jpeg_shape(contents, tf.int64)[:2])


def _pixels_of_png(contents: tf.Tensor) -> tf.Tensor:
    with _only_if(tf.strings.substr(contents, 0, len(_PNG)) == _PNG, "it is neither JPEG nor PNG"):
        sides = tf.io.decode_raw(tf.strings.substr(contents, len(_PNG), 8), tf.int32, little_endian=False)
    return tf.reduce_prod(tf.cast(sides, tf.int64))


def _only_if(condition: tf.Tensor, complaint: str) -> AbstractContextManager[object]:
    checked = tf.raw_ops.Assert(condition=condition, data=[complaint], summarize=1)
    with_it: AbstractContextManager[object] = tf.control_dependencies([checked])
    return with_it


def complaint_of(error: tf.errors.OpError) -> str:
    """Return what TensorFlow says of an image, without the name of the operation."""
    text = str(error.message)
    return (text.partition("} ")[2] or text).removeprefix("assertion failed: [").removesuffix("] [Op:Assert]")
