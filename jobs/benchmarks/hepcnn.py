"""Benchmark ``hepcnn``: train on HDF5 files that are loaded whole, as NERSC's benchmark HEPCNNB (2018) does.

The samples are not shuffled, shuffled within each rank, or shuffled over all ranks. `jobs.benchmarks.hepcnn_data`
predicts which files are loaded and which loads read from the storage, not from memory. Checks compare each run with the
predictions.

To run the benchmark by hand, with a data set that a campaign has made::

    python -m jobs hepcnn data/datasets/hep-… --batch-size 32
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from jobs import ranks
from jobs.benchmarks import accelerator
from jobs.benchmarks.alexnet import Control, Dropout, LearningRate, Width
from jobs.benchmarks.alexnet_network import network_bytes
from jobs.benchmarks.benchmark import Benchmark, Figure
from jobs.benchmarks.hepcnn_data import (  # fmt: skip
    PHASES,
    TRAIN,
    VALIDATION,
    Arrays,
    FileLoad,
    FileLoader,
    HepRules,
    LoadPlan,
    PhaseFiles,
    RankSamples,
    Shuffle,
    combine_load_metrics,
    expectations_over_ranks,
    seconds_by_source,
)
from jobs.benchmarks.images import RATE
from jobs.benchmarks.nersc_trainer import HEP_CHANNELS, HepNetwork, NerscTrainer, hep_kernels
from jobs.benchmarks.run_files import files_of
from jobs.benchmarks.step_loop import open_time_spent
from jobs.checkpoints import run_snapshots as checkpoint
from jobs.checkpoints.run_snapshots import RunSnapshots
from jobs.data.readers import Part, Reader, h5py_parts, open_reader
from jobs.errors import DatasetError
from jobs.events.time_log import TimeLog
from jobs.lazy_imports import np
from jobs.model.declared import Setting
from jobs.model.settings import EVERY, NodeWithName, Settings
from jobs.model.work import RunRequest
from jobs.objects.run_objects import RunObjects
from jobs.ranks.rank import Rank
from jobs.ready_run import ReadyRun

_DATA_SETS = ("data", "label", "psr", "normweight", "weight")
_COLUMNS = ("phase", "epoch", "file", "resident", "device_bytes")  # facts of each file load that a record has


@contextmanager
def _begin(request: RunRequest) -> Iterator[ReadyRun]:
    settings, own_rank = request["settings"], ranks.this_rank()
    with ExitStack() as stack:
        files = stack.enter_context(files_of(request))
        originals = {
            phase: sorted(path for path in files.sizes if path.parent == files.folder / phase) for phase in PHASES
        }
        plan = _make_plan(settings, files.folder, originals, own_rank, files.source)
        read_paths = {path: files.read_at(path) for paths in originals.values() for path in paths}
        paths_by_phase = {phase: [read_paths[path] for path in paths] for phase, paths in originals.items()}
        to_read = {path: read_paths[path] for phase in plan.phases for path in originals[phase]}
        spent = stack.enter_context(open_time_spent(request))
        reader = stack.enter_context(_reader(settings, [*to_read.values()], spent.log, files.source))
        count_snapshots = partial(_to_save, settings, plan.rules)
        # Only rank 0 saves snapshots, because all ranks have equal weights.
        snapshots = request.get("checkpoint") if not own_rank.rank else None
        checkpoints = stack.enter_context(
            checkpoint.open_target(settings.get("checkpoint", {}), snapshots, count_snapshots)
        )
        loader = FileLoader(paths_by_phase, plan.rules, reader, spent, files.source)
        training = HepTraining(settings, plan, loader, checkpoints)
        proof = [*dict.fromkeys(paths_by_phase[phase][file] for phase, _, file in plan.cold_loads)]
        yield files.work(training.measure, to_read, proof, reading=reader.processes, checkpoints=checkpoints)


def _reader(
    settings: Settings, paths: Sequence[Path], log: TimeLog | None, source: RunObjects | None
) -> AbstractContextManager[Reader]:
    name, own = str(settings.get("reader", "h5py_threads")), settings["benchmark"]
    return open_reader(
        name, [Part(data_set) for data_set in _DATA_SETS], paths, readers=own["readers"], log=log, source=source
    )


def _make_plan(
    settings: Settings, folder: Path, files: Mapping[str, Sequence[Path]], own_rank: Rank, source: RunObjects | None
) -> LoadPlan:
    """Return the planned file loads of this rank; the shape of all files is taken from the first file of each phase.

    Raises DatasetError if the files are too few for the ranks and the batch size.
    """
    own = settings["benchmark"]
    shapes = {phase: _shape(paths[0], source) for phase, paths in files.items() if paths}
    train, validation = (PhaseFiles(len(files[phase]), shapes.get(phase, (0, 0))[0]) for phase in PHASES)
    rules = HepRules(
        train, validation, own_rank.size, own["epochs"], settings["batch_size"], own["shuffle"], settings["seed"]
    )
    if not rules.share(TRAIN) or not rules.steps:
        files_text = f"{train.number} files of {train.samples} samples below {folder / TRAIN}"
        need = f"{own_rank.size} ranks with batches of {rules.batch_size}"
        raise DatasetError(f"{files_text} are too few for {need}", "dataset=hep, fewer nodes, or a smaller batch_size")
    phases = PHASES if own["control"] != "no_io" else ()
    return LoadPlan(rules, own_rank, shapes[TRAIN][1], phases)


def _shape(path: Path, source: RunObjects | None) -> tuple[int, int]:
    """Return the number of images in a file, and the side of an image in pixels.

    Raises DatasetError if the file has no square images with 3 channels.
    """
    with h5py_parts.file_of(path, source=source) as file:
        shape = h5py_parts.data_set_of(file, Part(_DATA_SETS[0])).shape
    if len(shape) != 4 or shape[1] != HEP_CHANNELS or shape[2] != shape[3]:  # noqa: PLR2004 - samples of square images
        raise DatasetError(f"{path}: data of shape {shape} are no square images with 3 channels", "dataset=hep")
    return shape[0], shape[2]


def _to_save(settings: Settings, rules: HepRules) -> tuple[int, int]:
    """Return the number of snapshots of a run, and the bytes of one snapshot without its index of some kB."""
    return rules.steps // settings["checkpoint"]["every"], network_bytes(hep_kernels(settings["benchmark"]["width"]))


class HepTraining(NerscTrainer):
    """The HEPCNNB training of one rank, from the first file load to the last step, with a validation pass per epoch."""

    wall_parts = ("load_s", "compute_s", "validate_s", "sync_s", "checkpoint_s", "other_s")

    def __init__(
        self, settings: Settings, plan: LoadPlan, loader: FileLoader, checkpoints: RunSnapshots | None
    ) -> None:
        """Build the samples of each phase, and the network if the run trains it or saves snapshots of it."""
        self.plan, self.rules, self.loader = plan, plan.rules, loader
        kernels = hep_kernels(settings["benchmark"]["width"])
        super().__init__(settings, self.rules.steps, loader.spent, kernels, saved=checkpoints is not None)
        self.saver = checkpoints.saver(self.state) if checkpoints and self.state else None
        load = loader.load if plan.phases else self._from_memory
        self.samples = {
            phase: RankSamples(self.rules, phase, self.here.rank, partial(load, phase), self.spent)
            for phase in PHASES
            if self.rules.share(phase)
        }  # without a validation file, the rank runs no validation
        self._passes = 0

    def build_network(self, *, trains: bool) -> HepNetwork:
        """Return the network for the image size of the data set, with all variables at their initial values.

        If the network `trains`, one step is run and undone before, so that the first timed step is not slower.
        """
        network = HepNetwork(self.settings["seed"], {**self.settings["benchmark"], "image_size": self.plan.image_size})
        network.warm_up(self.settings["batch_size"], accelerator.HOST) if trains else network.reset()
        return network

    def begin(self) -> None:
        """Load the first validation file, if this rank has one."""
        if validation := self.samples.get(VALIDATION):
            self.spent.set_place(VALIDATION, 0)
            validation.advance()

    def place(self, _number: int) -> tuple[str, int]:
        """Return the phase and the epoch of the next training sample."""
        return TRAIN, self.samples[TRAIN].next_epoch

    def next_batch(self) -> Arrays:
        """Return the next batch of training samples; a batch can have samples of several files."""
        return self.samples[TRAIN].batch(self.rules.batch_size)

    def after(self, _number: int) -> None:
        """Run one validation pass for each epoch that has ended since the last call."""
        while VALIDATION in self.samples and self._passes < self.samples[TRAIN].epoch:
            self._run_validation_pass(self.samples[VALIDATION], self._passes)
            self._passes += 1

    def _run_validation_pass(self, samples: RankSamples, number: int) -> None:
        """Validate once on all validation files of this rank, and then load the first file of the next pass."""
        self.spent.set_place(VALIDATION, number)
        remaining = self.rules.share(VALIDATION) * self.rules.validation.samples
        with self.spent.during("validate"):
            while remaining:
                size = min(remaining, self.rules.batch_size)
                with self.spent.during("next"):
                    arrays = samples.batch(size)
                self.validate(arrays)
                remaining -= size
            if number + 1 < self.rules.epochs:
                samples.advance()

    def _from_memory(self, phase: str, _load: FileLoad) -> Arrays:
        """Return images and labels of zeros instead of reading a file, for ``control=no_io``."""
        number, side = self.rules.files(phase).samples, self.plan.image_size
        return [np.zeros((number, side, side, HEP_CHANNELS), np.float32), np.zeros(number, np.int32)]

    def metrics(self, wall_s: float) -> dict[str, Any]:
        """Return the raw metrics of the training, and the expected values with which checks compare the metrics."""
        seconds, batch_size, rows = self.spent.seconds, self.rules.batch_size, self.loader.rows
        images = len(self.per_step["compute_s"]) * batch_size, self.number * batch_size
        cache = self.settings["cache"] if self.plan.phases and not self.loader.source else "as_is"
        return {
            **self.common_metrics(wall_s, images, (sum(row["bytes"] for row in rows), self.plan.bytes)),
            **self.saving_metrics(),
            "read_s": seconds["read"],
            "shuffle_s": seconds["shuffle"],
            "unpack_s": seconds["load"],
            "loads": len(rows),
            "load_list": {name: [row[name] for row in rows] for name in _COLUMNS},
            **seconds_by_source(rows),
            "private_caches": int(self.here.private_caches),
            "expected": {**self.plan.of_rank(rows, cache), **self._over_ranks()},
        }

    def _over_ranks(self) -> dict[str, Any]:
        delivered, no_samples = self.samples[TRAIN].delivered, [0] * self.rules.train.number
        by_epoch = [delivered.get(epoch, no_samples) for epoch in range(self.rules.finished)]
        return expectations_over_ranks(self.rules, self.reports(len(self.per_step["compute_s"]), by_epoch))


class Keys(NodeWithName):
    """Training on HDF5 files, as in NERSC's benchmark HEPCNNB."""

    shuffle: Annotated[
        Shuffle,
        Setting(
            "what is shuffled in each epoch; none: nothing; local: the order of each rank's files and samples; global:"
            " also the assignment of files to ranks"
        ),
    ] = "local"
    epochs: Annotated[
        int,
        Meta(ge=1, le=1000),
        Setting("number of epochs; a validation pass follows each epoch that ends before the run ends", unit="epochs"),
    ] = 5
    control: Annotated[
        Control,
        Setting(
            "part of the training that is left out, for comparison; none: nothing; no_io: reading (every step uses"
            " samples of zeros); no_compute: the training step"
        ),
    ] = "none"
    readers: Annotated[
        int, Meta(ge=1, le=256), Setting("processes of reader=h5py_pool and h5py_shared, or threads of reader=offsets")
    ] = 1
    width: Annotated[Width, Setting("factor on the number of filters per layer, which is 128 in HEPCNNB")] = 1.0
    learning_rate: Annotated[LearningRate, Setting("learning rate of Adam")] = 1e-3
    dropout: Annotated[Dropout, Setting("dropout rate after each of the first four convolutions")] = 0.5


class _Hepcnn(Benchmark):
    def combined_metrics(self, ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the metrics of file loads over all ranks, as from `combine_load_metrics`."""
        return combine_load_metrics(ranks)

    def settings_error(self, values: Mapping[str, Any]) -> tuple[str, str] | None:
        """Return an error message and its cure if ``hepcnn`` cannot use the data set, else None.

        The data set must have the format of HEPCNNB, and enough files and samples for all nodes.
        """
        if "dataset.train_files" not in values and "dataset.path" not in values:
            return f"benchmark=hepcnn does not train on dataset={values['dataset.name']}", "dataset=hep_smoke"
        files, nodes = values.get("dataset.train_files"), values.get("nodes", 1)
        if files is not None and files < nodes:
            return f"nodes={nodes}: the data set has only {files} training files", f"nodes={files} or fewer"
        samples = (files or 0) // nodes * values.get("dataset.samples", 0) * values["benchmark.epochs"]
        if files is not None and samples < values["batch_size"]:
            return f"batch_size={values['batch_size']} is more than the samples per node", f"batch_size={samples}"
        return None


BENCHMARK = _Hepcnn(
    name="hepcnn",
    version=1,
    kind="training",
    keys=Keys,
    begin=_begin,
    figure=Figure("wall_s", "s", "lower"),
    about="train a network on HDF5 files that are loaded whole, as NERSC's benchmark HEPCNNB does",
    rate=RATE,
    data="hdf5",
    settings=tuple(name for name in EVERY if name not in {"threads", "prefetch", "iterations"}),
    own_defaults={"accelerator.step_s": 1.0},
    computes=True,
    emulates=True,
    saves=True,
    several_nodes=True,
    wall_parts=HepTraining.wall_parts,
)
