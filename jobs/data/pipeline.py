"""Build the input pipelines of the paper's sections III.A and III.B with current tf.data.

The steps are: list, shuffle, map with ``threads`` parallel calls, drop unreadable files, batch, prefetch.

An image with too many pixels is refused. The header of a file of a few kB may state billions of pixels, and TensorFlow
would allocate the memory for all pixels (2.3 GB for a PNG of 8 kB). So TensorFlow operations read the header of an
image before the decoder runs. The operations run without Python's global lock, and take 1.5 % of the time to read and
decode an image of 112 kB.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from jobs.errors import JobError
from jobs.lazy_imports import tf
from jobs.model.declared import Setting
from jobs.model.settings import NodeWithName

if TYPE_CHECKING:
    from jobs.model.settings import Node, Settings
    from jobs.objects.run_objects import RunObjects

MOST_PIXELS = 89_478_485  # Pillow's limit for decompression bombs (Image.MAX_IMAGE_PIXELS)
_JPEG, _PNG = b"\xff\xd8", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"  # in a PNG, width and height follow these bytes
_NAMED_FILES = 20  # a record names at most 20 unreadable files, but counts all unreadable files


class PipelineKeys(NodeWithName):
    """Settings of the input pipeline of a benchmark that reads images."""

    image_size: Annotated[
        int, Meta(ge=8, le=4096), Setting("width and height of an image after the resize", unit="pixels")
    ] = 224
    ignore_errors: Annotated[
        bool,
        Setting(
            "true: unreadable files are skipped, counted and named in the record;"
            " false: the first unreadable file ends the run"
        ),
    ] = True
    autotune: Annotated[bool, Setting("whether tf.data may choose buffer sizes and parallelism (autotuning)")] = False
    map_and_batch_fusion: Annotated[
        bool, Setting("whether tf.data may fuse map and batch; needs ignore_errors=false")
    ] = False
    deterministic: Annotated[
        bool, Setting("whether batches keep the shuffled order, even if a later file arrives first")
    ] = True
    private_threads: Annotated[
        Annotated[int, Meta(ge=0, le=1024)] | None,
        Setting(
            "threads of the pipeline's own thread pool; null: as many as `threads`; 0: the pipeline uses TensorFlow's"
            " shared pool",
            unit="threads",
        ),
    ] = None


def shuffled_paths(paths: Sequence[str], seed: int) -> tf.data.Dataset:
    """Return a dataset of pairs ``(index into paths, path)`` in shuffled order; equal seeds give equal orders."""
    # The paths are encoded to bytes, because TensorFlow refuses a str that is not UTF-8. Paths and indices are tensors,
    # because tf.data would inspect every single element of a Python list.
    names, indices = tf.constant([os.fsencode(path) for path in paths]), tf.constant(range(len(paths)))
    elements = tf.data.Dataset.from_tensor_slices((indices, names))
    return elements.shuffle(len(paths), seed=seed, reshuffle_each_iteration=False)


def reading_order(paths: Sequence[str], seed: int) -> list[int]:
    """Return the indices of `paths` in the order in which a pipeline with this seed reads the files."""
    indices: list[int] = next(iter(shuffled_paths(paths, seed).batch(len(paths))))[0].numpy().tolist()
    return indices


def class_labels(paths: Sequence[str]) -> tuple[list[int], int]:
    """Return the class of each file, and the number of classes.

    The class of a file is the index of its folder in the sorted list of all folders.
    """
    folders = [str(Path(path).parent) for path in paths]
    number = {folder: index for index, folder in enumerate(sorted(set(folders)))}
    return [number[folder] for folder in folders], len(number)


def build_unlabelled(paths: Sequence[str], settings: Settings, source: RunObjects | None = None) -> tf.data.Dataset:
    """Return the pipeline of the micro-benchmark: batches ``(index int32 (n,), bytes read int32 (n,), payload)``.

    The payload is the images, float32 ``(n, image_size, image_size, 3)``. If ``preprocess`` is off, the payload is the
    contents of the files. For objects of a `source` the payload is then empty, uint8 ``(n, 0)``, because the contents
    of objects are arrays of different lengths, and tf.data cannot batch such arrays.
    """
    benchmark = settings["benchmark"]
    load = _loader(benchmark, source)
    dataset = _prefetched(_loaded(paths, load, settings).batch(settings["batch_size"]), settings)
    return dataset.with_options(tensorflow_options(benchmark, settings["threads"]))


def build_labelled(
    paths: Sequence[str],
    settings: Settings,
    device: str,
    classified: Sequence[str] | None = None,
    source: RunObjects | None = None,
) -> tf.data.Dataset:
    """Return the pipeline of a training: batches of `build_unlabelled` plus one-hot labels, float32 ``(n, classes)``.

    With ``prefetch_to_device`` the pipeline copies batches to `device`, so prefetched batches are in the memory of the
    device. Otherwise prefetched batches are in the memory of the host, and each training step copies its batch to the
    device. If `paths` are staged copies, `classified` has the original files in the order of `paths`, because the
    folders of the original files are the classes.
    """
    benchmark = settings["benchmark"]
    load = _labelled(_loader(benchmark, source), classified or paths)
    dataset = _loaded(paths, load, settings).batch(settings["batch_size"], drop_remainder=True)
    pipeline_options = tensorflow_options(benchmark, settings["threads"])
    if not benchmark["prefetch_to_device"]:
        return _prefetched(dataset, settings).with_options(pipeline_options)
    # TensorFlow requires that the copy to the device and the prefetch are the last two steps. So the options are set
    # before the copy, and apply to the iterator inside the copy step.
    with _without_temporary_files():
        copied = dataset.with_options(pipeline_options).apply(tf.data.experimental.copy_to_device(device))
    return _prefetched(copied, settings)


def _loaded(paths: Sequence[str], load: Any, settings: Settings) -> tf.data.Dataset:
    dataset = shuffled_paths(paths, settings["seed"]).map(load, num_parallel_calls=settings["threads"])
    return dataset.ignore_errors() if settings["benchmark"]["ignore_errors"] else dataset


@contextmanager
def _without_temporary_files() -> Iterator[None]:
    """Remove the temporary files that are made in the `with` block.

    `copy_to_device` always lets AutoGraph convert internal functions, and each conversion leaves a temporary file.
    Python removes these temporary files at a normal exit, but a forked run never exits normally.
    """
    previous = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="tfio-") as folder:
        tempfile.tempdir = folder
        try:
            yield
        finally:
            tempfile.tempdir = previous


def _prefetched(dataset: tf.data.Dataset, settings: Settings) -> tf.data.Dataset:
    return dataset.prefetch(settings["prefetch"]) if settings["prefetch"] else dataset


def tensorflow_options(benchmark: Node, threads: int) -> tf.data.Options:
    """Return the tf.data options that control which changes TensorFlow makes to a pipeline automatically.

    The paper's TensorFlow 1.10 made no such changes.

    TensorFlow's shared thread pool has one thread per core, which would limit ``threads``: on two cores, only two of
    eight parallel calls would run at a time. The paper's machines had at least as many cores as threads. So by default
    the pipeline has a private pool of ``threads`` threads. The setting ``private_threads`` gives another number of
    threads; 0 selects the shared pool.
    """
    options_of_pipeline = tf.data.Options()
    options_of_pipeline.autotune.enabled = benchmark["autotune"]
    options_of_pipeline.deterministic = benchmark["deterministic"]
    options_of_pipeline.experimental_optimization.map_and_batch_fusion = benchmark["map_and_batch_fusion"]
    pool_threads = benchmark["private_threads"]
    options_of_pipeline.threading.private_threadpool_size = threads if pool_threads is None else pool_threads
    return options_of_pipeline


def _loader(benchmark: Node, source: RunObjects | None) -> Any:
    """Return the function that loads a file, or an object of the `source`, for this benchmark's settings.

    Without the key ``preprocess`` the function always returns an image.
    """
    size = (benchmark["image_size"],) * 2
    preprocess = benchmark.get("preprocess", True)

    def read(index: tf.Tensor, path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        if source is None:
            contents = tf.io.read_file(path)
            return index, tf.strings.length(contents), contents
        data = source.tensor(path)
        length = tf.size(data)
        # Not `data[:0]`: even an empty slice would keep all of `data` in memory until the batch is made.
        empty = tf.zeros((0,), tf.uint8)
        return index, length, as_text(data, length) if preprocess else empty

    def as_text(data: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
        # The serialized tensor ends with the bytes of `data`. TensorFlow copies these bytes into a string for the
        # decoder without Python's global lock.
        return tf.strings.substr(tf.io.serialize_tensor(data), -length, length)

    def read_and_preprocess(index: tf.Tensor, path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        index, length, contents = read(index, path)
        image = tf.image.convert_image_dtype(decode_image(contents), tf.float32)
        return index, length, tf.image.resize(image, size)

    def read_as_grey(index: tf.Tensor, path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        index, length, contents = read(index, path)
        row = benchmark["row_bytes"]
        rows = tf.maximum(1, -(-length // row))
        pixels = tf.pad(tf.io.decode_raw(contents, tf.uint8), [[0, rows * row - length]])
        return index, length, tf.image.resize(tf.reshape(pixels, (rows, row, 1)), size) / 255

    load = read_as_grey if "row_bytes" in benchmark else read_and_preprocess
    # The functions above have only TensorFlow operations: AutoGraph would change nothing, but leave a temporary file.
    return tf.autograph.experimental.do_not_convert(load if preprocess else read)


def _labelled(load: Any, paths: Sequence[str]) -> Any:
    """Return a function that calls `load` and appends the one-hot label."""
    numbers, classes = class_labels(paths)

    def load_labelled(index: tf.Tensor, path: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return (*load(index, path), tf.one_hot(tf.gather(numbers, index), classes))

    return tf.autograph.experimental.do_not_convert(load_labelled)


def why_unreadable(path: str, benchmark: Node, source: RunObjects | None = None) -> str | None:
    """Load one file as the benchmark does; return the error message, or None if the file loads."""
    try:
        _loader(benchmark, source)(tf.constant(0), tf.constant(os.fsencode(path)))
    except tf.errors.OpError as error:
        return loading_error_text(error)
    except JobError as error:  # the read of an object has failed
        return error.message
    return None


def dropped_files(  # noqa: PLR0913 - the arguments of a pipeline, and how the run ended
    names: Sequence[str],
    delivered: Sequence[int],
    settings: Settings,
    source: RunObjects | None = None,
    *,
    exhausted: bool,
    whole_batches: bool = False,
) -> tuple[int, list[dict[str, str]]]:
    """Return the number of files that the pipeline dropped, and the names and errors of the first dropped files.

    The order of the files depends only on the seed. So this function knows which files the pipeline requested before
    the last delivered file. This function loads each undelivered file among them once more. If such a file loads now,
    the run ended before the read of the file was complete, and the file was not dropped.

    If the run has `exhausted` the list, the pipeline requested every file. Then every undelivered file was dropped,
    even if the file loads now. The exception is `whole_batches`: an undelivered file that loads now may have been in
    the incomplete last batch, and is not counted.
    """
    delivered_set = set(delivered)
    if len(delivered_set) == len(names):
        return 0, []
    indices = reading_order(names, settings["seed"])
    last = (
        len(indices)
        if exhausted
        else 1 + max((position for position, i in enumerate(indices) if i in delivered_set), default=-1)
    )
    complaints = {}
    for index in indices[:last]:
        if index not in delivered_set:
            complaint = why_unreadable(names[index], settings["benchmark"], source)
            if complaint is not None or (exhausted and not whole_batches):
                complaints[names[index]] = complaint or "dropped, but it loads now"
    errors = [{"file": file, "error": error} for file, error in list(complaints.items())[:_NAMED_FILES]]
    return len(complaints), errors


def first_complaint(names: Sequence[str], settings: Settings, source: RunObjects | None = None) -> str | None:
    """Return the name and error of the first file of a run that does not load now, or None if all files load."""
    ordered = [names[index] for index in reading_order(names, settings["seed"])]
    complaints = ((name, why_unreadable(name, settings["benchmark"], source)) for name in ordered)
    return next((f"{name}: {complaint}" for name, complaint in complaints if complaint), None)


def decode_image(contents: tf.Tensor) -> tf.Tensor:
    """Return the pixels of a JPEG or PNG image, uint8 ``(height, width, 3)``.

    Raises InvalidArgumentError if the image has more than `MOST_PIXELS` pixels, or is neither JPEG nor PNG.
    """
    is_jpeg = tf.strings.substr(contents, 0, len(_JPEG)) == _JPEG
    pixels = tf.cond(is_jpeg, lambda: _pixels_of_jpeg(contents), lambda: _pixels_of_png(contents))
    with _require(pixels <= MOST_PIXELS, f"the image has more than {MOST_PIXELS:,} pixels"):
        return tf.io.decode_jpeg(contents, channels=3)  # decodes PNG, too


def _pixels_of_jpeg(contents: tf.Tensor) -> tf.Tensor:
    return tf.reduce_prod(tf.io.extract_jpeg_shape(contents, tf.int64)[:2])


def _pixels_of_png(contents: tf.Tensor) -> tf.Tensor:
    with _require(tf.strings.substr(contents, 0, len(_PNG)) == _PNG, "the file is neither JPEG nor PNG"):
        sides = tf.io.decode_raw(tf.strings.substr(contents, len(_PNG), 8), tf.int32, little_endian=False)
    return tf.reduce_prod(tf.cast(sides, tf.int64))


def _require(condition: tf.Tensor, complaint: str) -> AbstractContextManager[object]:
    assertion = tf.raw_ops.Assert(condition=condition, data=[complaint], summarize=1)
    context: AbstractContextManager[object] = tf.control_dependencies([assertion])
    return context


def loading_error_text(error: tf.errors.OpError) -> str:
    """Return TensorFlow's error message for an image, without the name of the operation."""
    text = str(error.message)
    return (text.partition("} ")[2] or text).removeprefix("assertion failed: [").removesuffix("] [Op:Assert]")
