"""Select the specification of a synthetic dataset, and make the dataset's files with a pool of processes."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import IO, Any, TypeVar

import numpy as np
import PIL

from jobs.data.synthetic_executables import ExecutableSpec
from jobs.data.synthetic_hdf5 import ClimateSpec, Hdf5Spec, HepSpec
from jobs.data.synthetic_images import ImageSpec
from jobs.data.synthetic_samples import SampleSpec

Spec = ImageSpec | ExecutableSpec | SampleSpec | HepSpec | ClimateSpec


def dataset_spec(dataset: Mapping[str, Any]) -> Spec:
    """Return the specification of a synthetic dataset, from its settings (the node ``dataset``) or its parameters.

    Raises ValueError if no files can have these parameters.
    """
    parameters = {key: value for key, value in dataset.items() if key != "name"}
    kinds: tuple[type[Spec], ...] = (ImageSpec, ExecutableSpec, SampleSpec, HepSpec, ClimateSpec)
    kind = next(kind for kind in kinds if {field.name for field in fields(kind)} == parameters.keys())
    return kind(**parameters)


def dataset_id(name: str, spec: Spec) -> str:
    """Return the name of a dataset's folder; the name is unique for the parameters and the version of the generator."""
    text = json.dumps([spec.version, spec_parameters(spec)], sort_keys=True)
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def spec_parameters(spec: Spec) -> dict[str, Any]:
    """Return the parameters that determine the bytes of a dataset.

    ``sigma`` becomes a float, because 1 and 1.0 must give the same dataset id.
    """
    return {key: float(value) if key == "sigma" else value for key, value in asdict(spec).items()}


def generator_versions(spec: Spec) -> dict[str, Any]:
    """Return the versions of the generator and libraries that determine the bytes of a file."""
    libraries = spec.libraries() if isinstance(spec, Hdf5Spec) else {"pillow": PIL.__version__}
    return {"generator": spec.version, "numpy": np.__version__, **libraries}


def spec_folders(spec: Spec) -> tuple[str, ...]:
    """Return the folders of a dataset in the order of the class labels; each folder has the files of one class."""
    return tuple(dict.fromkeys(os.path.dirname(spec.name(index)) or "." for index in range(spec.files)))  # noqa: PTH120


_BATCH = 8  # files that a process makes at a time; 8 images take about 0.2 s, for which Ctrl-C has to wait
_BATCH_BYTES = 8_000_000
# The time estimate makes sample files at these positions in the order of file size, and stops after _SAMPLE_S seconds.
_SAMPLES, _SAMPLE_S = (0.5, 0.25, 0.75), 0.05
_SAMPLE_BYTES = 100_000_000  # a larger file is not used as a sample
_Made = TypeVar("_Made")


class PoolBrokenError(Exception):
    """Raised if a process of the pool was killed."""


def write_content(spec: Spec, index: int, size: int, file: IO[bytes]) -> None:
    """Write the content of file `index`; `size` is the target size in bytes, unused for HDF5 files."""
    if isinstance(spec, Hdf5Spec):
        spec.write(file, index)
    else:
        file.write(spec.content(index, size))


def make_files(
    write: Callable[[Spec, int, int], _Made], spec: Spec, indices: list[int], processes: int
) -> Generator[dict[int, _Made], None, None]:
    """Call `write` for each file in a pool of processes, and yield the results of each batch by index of the file.

    The arguments of `write` are the spec, the index of the file, and the target size in bytes. Raises PoolBrokenError
    if a process was killed.
    """
    at_once = max(1, min(_BATCH, _BATCH_BYTES // int(spec.sizes().max())))
    batches = [indices[start : start + at_once] for start in range(0, len(indices), at_once)]
    if len(batches) < 2:  # noqa: PLR2004 - starting a process for one batch takes longer
        _prepare(write, spec)
        yield from map(_write_batch, batches)
        return
    # The processes are spawned, because a forked process would inherit locks, and perhaps TensorFlow.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        max(1, min(processes, len(batches))), context, initializer=_prepare_process, initargs=(write, spec)
    )
    try:
        with without_ctrl_c():
            futures: list[Future[dict[int, _Made]]] = [pool.submit(_write_batch, batch) for batch in batches]
        for future in as_completed(futures):
            yield future.result()
    except BrokenProcessPool as error:
        raise PoolBrokenError from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def estimate_seconds(spec: Spec, indices: list[int]) -> float:
    """Return the estimated seconds that one process needs to make the files with these indices.

    For the estimate, a few of these files are made as temporary files.
    """
    if not indices:
        return 0.0
    sizes = spec.sizes()
    ordered = sorted((index for index in indices if sizes[index] <= _SAMPLE_BYTES), key=sizes.__getitem__)
    samples = [ordered[int(len(ordered) * position)] for position in _SAMPLES] if ordered else indices[:1]
    made_bytes, durations_s = 0, []
    # The first sample is made twice, because its first duration includes imports, and is not counted.
    for number, index in enumerate((samples[0], *samples)):
        with tempfile.NamedTemporaryFile() as file:  # HDF5 needs a file that has a name
            start = time.perf_counter()
            write_content(spec, index, int(sizes[index]), file)
            size = file.seek(0, os.SEEK_END)
            if number:
                durations_s.append(time.perf_counter() - start)
                made_bytes += size
        if sum(durations_s) > _SAMPLE_S:
            break
    return float(sizes[indices].sum()) / made_bytes * sum(durations_s)


@contextmanager
def without_ctrl_c() -> Iterator[None]:
    """Block the signal of Ctrl-C (SIGINT) in a `with` block; processes that start in the `with` block ignore Ctrl-C."""
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


class _Work:
    """The arguments that a process of the pool receives once, at its start."""

    write: Callable[[Spec, int, int], Any]
    spec: Spec
    targets: list[int]


def _prepare_process(write: Callable[[Spec, int, int], Any], spec: Spec) -> None:
    threading.Thread(target=end_with_parent, daemon=True).start()
    _prepare(write, spec)


def _prepare(write: Callable[[Spec, int, int], Any], spec: Spec) -> None:
    _Work.write, _Work.spec, _Work.targets = write, spec, spec.sizes().tolist()


def end_with_parent() -> None:
    """End this process as soon as its parent process has ended; otherwise this process would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _write_batch(indices: list[int]) -> dict[int, Any]:
    return {index: _Work.write(_Work.spec, index, _Work.targets[index]) for index in indices}
