"""Benchmark ``climate``: NERSC's CDB, a training from HDF5 files of a climate model through tf.data.

By hand, on any node, from a data set that a campaign has made::

    python -m jobs climate data/datasets/climate_smoke-… --reader offsets
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import ranks
from jobs.benchmarks import accelerator, first_use
from jobs.benchmarks.benchmark import Benchmark, Figure, Work
from jobs.benchmarks.cdb import expected
from jobs.benchmarks.cdb.feed import Feed, parts_of, pipelines
from jobs.benchmarks.cdb.network import CdbNetwork, kernel_shapes
from jobs.benchmarks.cdb.rules import TRAIN, VALIDATION, Rules
from jobs.benchmarks.cdb.training import Emulated, Skip, Trained, Training
from jobs.benchmarks.images import RATE
from jobs.data import manifest
from jobs.data.readers import Part, opened
from jobs.errors import DatasetError, JobError
from jobs.observe.spent import Spent, logged
from jobs.ranks.training import Meetings
from jobs.settings import EVERY, key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from jobs.benchmarks.cdb.training import Step
    from jobs.request import Request
    from jobs.settings import Settings

_WALL_PARTS = ("load_s", "compute_s", "validate_s", "sync_s", "other_s")
_NO_DATA = "stats.h5"


class Control(Enum):
    """What of a run is left out, to know its bounds."""

    none = "none"
    no_io = "no_io"
    no_compute = "no_compute"
    metadata = "metadata"


Driver = Enum("Driver", {"core": "core", "sec2": "sec2"})
"""How the library reads a file: whole into memory when it is opened, or what is asked for."""


@dataclass
class Keys:
    """Its keys."""

    name: str = "climate"
    epochs: int = key(1, 1, 1000, by_hand="a validation pass follows each")
    control: Control = key(Control.none, by_hand="what is left out")
    driver: Driver = key(Driver.sec2, by_hand="of HDF5: core reads each file whole")
    channels: list[int] | None = field(default_factory=lambda: [0, 1, 2, 10])
    readers: int = key(4, 1, 256, by_hand="processes that read, where the reader has any")
    preprocess: bool = key(default=True, by_hand="no scaling and no weights of classes", flag="--read-only")
    image_size: int = key(64, 8, 4096, by_hand="pixels of what the network is trained on")
    learning_rate: float = key(1e-4, 0, 10)


@contextmanager
def _begun(request: Request) -> Iterator[Work]:
    from jobs.data.readers.library import load  # noqa: PLC0415 - finding the benchmarks is to be fast

    settings, folder, here = request["settings"], Path(request["dataset"]), ranks.here()
    own, control = settings["benchmark"], Control(settings["benchmark"]["control"])
    listed = {folder / each.name: each.size for each in manifest.load(Path(request["manifest"] or folder)).files}
    paths = sorted(path for path in listed if path.name != _NO_DATA)
    rules = Rules(
        len(paths),
        here.size,
        here.rank,
        own["epochs"],
        settings["batch_size"],
        settings["iterations"],
        settings["seed"],
    )
    _possible(rules, folder)
    mine = [paths[file] for phase in (TRAIN, VALIDATION) for file in rules.share(phase)]
    sure = {paths[file] for phase in (TRAIN, VALIDATION) for file in rules.consumed(phase)}
    parts = parts_of(settings.get("dataset", {}), own["channels"])
    held = load(mine[0], parts)
    asked = [Part(part.name, ()) for part in parts] if control is Control.metadata else parts
    with ExitStack() as stack:
        log = stack.enter_context(logged(request, here))
        reader = None
        if control is not Control.no_io:
            reading = opened(settings["reader"], asked, mine, readers=own["readers"], driver=own["driver"], log=log)
            reader = stack.enter_context(reading)
        feed = Feed(paths, reader, held, control in (Control.none, Control.no_compute), log)
        run = Run(settings, rules, feed, Spent(log), here)
        if reader is None:
            yield Work(run.measure, folder)
        else:
            size = run.image_bytes if feed.reads else 0
            proof = [path for path in mine if path in sure]
            sizes = {path: listed[path] for path in mine}
            yield Work(
                run.measure, folder, mine, proof, sizes, asked=dict.fromkeys(mine, size), reading=reader.processes
            )


def _possible(rules: Rules, folder: Path) -> None:
    """Raise DatasetError where a rank has no batch, or fewer than an epoch asks for."""
    if rules.steps and rules.steps <= rules.batches(TRAIN):
        return
    has = f"{rules.batches(TRAIN)} batches of {rules.batch_size} for training for each of {rules.ranks} ranks"
    raise DatasetError(f"the {rules.files} files in {folder} make {has}", "more files, fewer nodes, fewer iterations")


class Run:
    """The run of one rank."""

    def __init__(self, settings: Settings, rules: Rules, feed: Feed, spent: Spent, here: ranks.rank.Rank) -> None:
        """Start TensorFlow, and build what feeds and what computes."""
        import tensorflow as tf  # noqa: PLC0415 - the room must load without it

        self.settings, self.rules, self.feed, self.spent, self.here = settings, rules, feed, spent, here
        self.meetings = Meetings(here, spent)
        self.chosen = accelerator.choose(settings["accelerator"]["name"])
        first_use.run_operations_directly()
        tf.random.set_seed(settings["seed"])
        began = time.perf_counter()
        self.batches = pipelines(feed, rules, settings)
        self.step = self._step()
        self.build_s = time.perf_counter() - began

    @property
    def image_bytes(self) -> int:
        """What is asked for of a file, from the parameters of the data set; of a user's own files from the first."""
        made, channels = self.settings.get("dataset", {}), self.settings["benchmark"]["channels"]
        if "height" not in made:
            return sum(int(each.nbytes) for each in self.feed.held)
        fields = 16 if channels is None else len(channels)
        points: int = made["height"] * made["width"]
        return 4 * ((fields + 1) * points + 4 * fields)

    def _step(self) -> Step:
        own = self.settings["benchmark"]
        if own["control"] == Control.no_compute.value:
            return Skip()
        fields = self.feed.held[0].shape[0]
        if self.chosen != "emulated":
            network = CdbNetwork(self.settings["seed"], {**own, "fields": fields})
            network.reset()
            return Trained(network, self.meetings.added_up, self.meetings.step, self.spent)
        import numpy as np  # noqa: PLC0415 - finding the benchmarks is to be fast

        shapes = kernel_shapes(fields) if self.here.sync == "allreduce" else []
        zeros = [np.zeros(each, np.float32) for shape in shapes for each in (shape, shape[-1:])]
        step_s = self.settings["accelerator"]["step_s"]
        return Emulated(accelerator.emulated, step_s, zeros, self.meetings.step, self.spent)

    def measure(self, watched: AbstractContextManager[Any]) -> dict[str, Any]:
        """Run the clock, from the first request to the end of the last step; then wait for what was read ahead."""
        import tensorflow as tf  # noqa: PLC0415 - the room must load without it

        train, validations = self.batches
        training = Training(self.rules, train, validations, self.step, self.spent)
        try:
            with watched:
                with self.meetings.barrier():
                    start = self.here.start()
                training.run()
                wall_s = time.perf_counter() - start
                with self.meetings.barrier():
                    self.here.barrier()
                training.begun.clear()
                self.feed.settle()
        except tf.errors.OpError as error:
            if isinstance(self.feed.error, JobError):
                raise self.feed.error from error
            raise
        return self._figures(training, wall_s)

    def _figures(self, training: Training, wall_s: float) -> dict[str, Any]:
        seconds, feed = self.spent.seconds, self.feed
        found = {phase: len(files) for phase, files in training.delivered.items()}
        images, asked = sum(found.values()), sum(self.rules.images.values())
        predicted = asked * self.image_bytes if feed.reads else 0
        return {
            "wall_s": wall_s,
            "load_s": seconds["next"],
            **{f"{each}_s": seconds[each] for each in ("compute", "validate", "other")},
            "sync_s": seconds["communicate"] + seconds["barrier"],
            "step_load_s": training.step_load_s,
            "step_compute_s": training.step_compute_s,
            "step_loss": training.losses,
            "images": images,
            "images_asked": asked,
            "image_errors": 0,
            "unreadable": [],
            "images_per_s": images / wall_s,
            "bytes_read": training.bytes_read,
            "read_mb_per_s": training.bytes_read / 1e6 / wall_s,
            "bytes_predicted": predicted,
            **{f"{phase}_images": count for phase, count in found.items()},
            **{f"{phase}_reads": feed.asked[phase] for phase in found},
            "images_ahead": sum(feed.asked.values()) - images,
            "bytes_ahead": feed.bytes - training.bytes_read,
            "read_sum_s": feed.seconds,
            "accelerator": accelerator.described(self.chosen),
            "build_s": self.build_s,
            "timelog": Path(str(self.spent.log.beside["path"])).name if self.spent.log else None,
            "expected": {
                **expected.of_rank(
                    self.rules,
                    found,
                    feed.asked,
                    self.rules.most_asked(self.settings["prefetch"], self.settings["threads"]),
                    (training.bytes_read, predicted),
                ),
                **self._over_ranks(training),
            },
        }

    def _over_ranks(self, training: Training) -> dict[str, Any]:
        files = training.delivered[TRAIN]
        steps = len(files) // self.rules.batch_size
        told = self.here.gather({"steps": steps, "delivered": files, "weights": self._weights()})
        return expected.over_ranks(self.rules, told)

    def _weights(self) -> str | None:
        """Return a checksum of the network's weights, where one is trained by all ranks together."""
        if not isinstance(self.step, Trained):
            return None
        return self.meetings.checksum([*self.step.network.kernels, *self.step.network.biases])


class _Climate(Benchmark):
    def claim(self, settings: Settings) -> str:
        """Claim nothing of the page cache where no data is read."""
        reads = settings["benchmark"]["control"] in (Control.none.value, Control.no_compute.value)
        return super().claim(settings) if reads else "as_is"

    def refusal(self, values: Mapping[str, Any]) -> tuple[str, str] | None:
        """Refuse what is no data set of CDB, or too small; and to train on what has no labels."""
        own = "dataset.path" in values
        if not own and ("dataset.height" not in values or "dataset.median_bytes" in values):
            return f"benchmark=climate does not read dataset={values['dataset.name']}", "dataset=climate_smoke"
        channels = values["benchmark.channels"]
        if channels is not None and not (channels and all(0 <= each < (1 << 31 if own else 16) for each in channels)):
            return f"benchmark.channels={channels} are no channels of the data", "[0,1,2,10], or null for all 16"
        control, computes = values["benchmark.control"], values["accelerator.name"]
        if own and computes != "emulated" and control != Control.no_compute.value:
            return f"accelerator={computes}: your own files have no labels to train on", "accelerator=emulated"
        if own:
            return None
        nodes, iterations = values.get("nodes", 1), values["iterations"]
        rules = Rules(values["dataset.files"] - 1, nodes, 0, 1, values["batch_size"], iterations, 0)
        if not rules.batches(TRAIN) or rules.steps > rules.batches(TRAIN):
            made = f"{rules.batches(TRAIN)} batches for training"
            return (
                f"dataset.files={values['dataset.files']} make {made} on {nodes} nodes",
                "iterations=null, smaller batch",
            )
        return None


BENCHMARK = _Climate(
    name="climate",
    version=1,
    kind="training",
    keys=Keys,
    begin=_begun,
    figure=Figure("wall_s", "s", "lower"),
    about="train from HDF5 files of a climate model through tf.data, as NERSC's CDB does",
    rate=RATE,
    data="hdf5",
    settings=tuple(name for name in EVERY if name not in {"profile", "staging", "checkpoint"}),
    options={
        "threads": 4, "batch_size": 1, "prefetch": 16, "iterations": None, "seed": 0, "cache": "cold",
        "reader": "h5py_threads", "accelerator": {"name": "emulated", "step_s": 0.015},
    },
    computes=True,
    emulates=True,
    several_nodes=True,
    wall_parts=_WALL_PARTS,
)  # fmt: skip
