"""A window as scalars, histograms and text for TensorBoard, by TensorFlow's own writer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from jobs.lazy_imports import tf
from jobs.profiler import report
from jobs.profiler.tensorboard import plane
from jobs.profiler.window import OPERATIONS, READS, Window

_NOT_DRAWN = ("kernel_read_bytes", "seen_read_bytes")


def write(logdir: Path, window: Window, step: int) -> None:
    """Add a window to a folder of TensorBoard's: each figure that is a number, sizes and times of calls, the report."""
    figures = {name: value for name, value in report.figures(window).items() if name not in _NOT_DRAWN}
    writer = tf.summary.create_file_writer(str(logdir))
    with writer.as_default(step):
        for name, value in figures.items():
            if isinstance(value, int | float):
                tf.summary.scalar(f"tf_io/{name}", value)
        for name, values in _distributions(window).items():
            tf.summary.histogram(f"tf_io/{name}", values)
        tf.summary.text("tf_io/report", "\n".join(f"    {line}" for line in report.lines(window)))
    writer.close()


def _distributions(window: Window) -> dict[str, NDArray[np.float64]]:
    """Return what varies from call to call, of a trace, and from file to file; logarithms, as it spans decades."""
    sizes = plane.sizes(window.counters)
    found = {"log10 of bytes of a file": sizes[sizes > 0]}
    if window.events is not None:
        of_reads = np.isin(window.events["operation"], [OPERATIONS.index(name) for name in READS])
        reads = window.events[of_reads & (window.events["returned"] > 0)]
        found["log10 of bytes of a read"] = reads["returned"]
        found["log10 of ns of a read"] = np.maximum(reads["end"] - reads["start"], 1)
    return {name: np.log10(values) for name, values in found.items()}
