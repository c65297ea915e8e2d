"""Benchmark ``micro``: read a folder of images through tf.data and drop the batches (paper III.A; Figs 4 and 5).

The paper calls this read STREAM-like. To run the benchmark by hand, on any node::

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
        bool, Setting("whether images are decoded and resized after reading; false: files are only read (Fig 5)")
    ] = True


class ReadingLoop(images.ImageLoop):
    """A loop that reads batches of images and drops them.

    With ``sync``, all ranks meet after each batch. A rank with fewer batches still takes part in all meetings.
    """

    _meetings = 0

    def build_pipeline(self) -> Any:
        """Return the tf.data pipeline that reads the images of this rank."""
        return pipeline.build_unlabelled(self.names, self.settings, self.images.source)

    def prepare(self) -> None:
        """Start the pipeline, set the number of meetings, and meet the other ranks once before the clock starts."""
        self.start_input()
        if self.here.sync != "none":
            self._meetings = max(self.here.gather(self.number))
            self.here.meet([0.0])

    def take(self, _payload: Any) -> None:
        """Drop the batch, and meet the other ranks if a meeting remains."""
        if self._meetings:
            self.meet([0.0])
            self._meetings -= 1

    def finish(self) -> None:
        """Take part in the remaining meetings, while other ranks still have batches."""
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
