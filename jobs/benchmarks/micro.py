"""Benchmark ``micro``: a STREAM-like read of a folder of images through tf.data (paper III.A; Figs 4 and 5).

By hand, on any node::

    python -m jobs micro FOLDER --threads 4
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from jobs.benchmarks import images
from jobs.benchmarks.benchmark import Benchmark
from jobs.data import pipeline
from jobs.model.declared import Setting


class Keys(pipeline.PipelineKeys):
    """Reading of a folder of images."""

    preprocess: Annotated[
        bool, Setting("true: images are read, decoded and resized; false: files are only read (Fig 5)")
    ] = True


class ReadingLoop(images.ImageLoop):
    """A loop that reads batches and drops them; with ``sync``, all ranks meet after each batch, equally often."""

    _meetings = 0

    def build_pipeline(self) -> Any:
        """Return the pipeline of the micro-benchmark."""
        return pipeline.build_unlabelled(self.names, self.settings, self.images.source)

    def prepare(self) -> None:
        """Start the pipeline and set the number of meetings; the first meeting takes place before the clock starts."""
        self.start_input()
        if self.here.sync != "none":
            self._meetings = max(self.here.gather(self.number))
            self.here.meet([0.0])

    def take(self, _payload: Any) -> None:
        """Meet the other ranks, if a meeting remains."""
        if self._meetings:
            self.meet([0.0])
            self._meetings -= 1

    def finish(self) -> None:
        """Meet the other ranks while they still have batches."""
        while self._meetings:
            self.take(None)


BENCHMARK = Benchmark(
    name="micro",
    version=1,
    kind="pipeline",
    keys=Keys,
    begin=partial(images.begin_image_run, ReadingLoop),
    figure=images.RATE,
    several_nodes=True,
    about="read a folder of images through tf.data, as the paper's micro-benchmark does",
)
