"""Benchmark ``hepcnn``: NERSC's HEPCNNB (2018), a network trained from HDF5 files that are loaded whole.

Shuffled not at all, within the files of a rank, or over those of all ranks. What is loaded, and what of it comes from
the storage and not from memory, is predicted (`jobs.benchmarks.hep.hep_rules`), and then checked.

By hand, on a data set that a campaign has made::

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
from jobs.benchmarks.alexnet_network import bytes_of
from jobs.benchmarks.benchmark import Benchmark, Figure
from jobs.benchmarks.hep.hep_expected import Plan, over_ranks, seconds_by_source, together
from jobs.benchmarks.hep.hep_network import HepNetwork, kernel_shapes
from jobs.benchmarks.hep.hep_rules import CHANNELS, PHASES, TRAIN, Files, Load, Rules, Shuffle
from jobs.benchmarks.hep.hep_training import HepTraining, Loader
from jobs.benchmarks.hep.samples import Arrays, Samples
from jobs.benchmarks.images import RATE, objects_of
from jobs.benchmarks.nersc.nersc_run import Run
from jobs.checkpoints import run_snapshots as checkpoint
from jobs.checkpoints.run_snapshots import Checkpoints
from jobs.data import manifest, staged_copies
from jobs.data.readers import Part, Reader, h5py_parts, opened
from jobs.errors import DatasetError
from jobs.events.spent import Spent, logged
from jobs.events.time_log import TimeLog
from jobs.lazy_imports import np
from jobs.model.declared import Setting
from jobs.model.request import Request
from jobs.model.settings import EVERY, Named, Settings
from jobs.objects.source import Source
from jobs.ranks.rank import Rank
from jobs.ready_run import Work

_PARTS = ("data", "label", "psr", "normweight", "weight")
_COLUMNS = ("phase", "epoch", "file", "resident", "device_bytes")  # of each load, in a record
_WALL_PARTS = ("load_s", "compute_s", "validate_s", "sync_s", "checkpoint_s", "other_s")


@contextmanager
def _begun(request: Request) -> Iterator[Work]:
    settings, folder, here = request["settings"], Path(request["dataset"]), ranks.here()
    listed = manifest.load(Path(request["manifest"] or folder))
    with ExitStack() as stack:
        source = stack.enter_context(objects_of(request, listed))
        folder = Path() if source else folder
        sizes = {folder / entry.name: entry.size for entry in listed.files}
        files = {phase: sorted(path for path in sizes if path.parent == folder / phase) for phase in PHASES}
        plan = _planned(settings, folder, files, here, source)
        copies = None
        if staged := request.get("staged"):
            found = staged_copies.load(Path(staged))
            copies, sizes = found.copies, {found.path_of(path): size for path, size in sizes.items()}
            files = {phase: [found.path_of(path) for path in paths] for phase, paths in files.items()}
        log = stack.enter_context(logged(request, here.rank, here.size))
        wanted = [path for phase in plan.phases for path in files[phase]]
        reader = stack.enter_context(_reader(settings, wanted, log, source))
        saved = partial(_to_save, settings, plan.rules)
        asked = request.get("checkpoint") if not here.rank else None  # the weights are the same on all ranks
        checkpoints = stack.enter_context(checkpoint.opened(settings.get("checkpoint", {}), asked, saved))
        run = HepRun(settings, plan, Spent(log), checkpoints)
        loader = Loader(files, plan.rules, reader, run.spent, source)
        proof = [*dict.fromkeys(files[phase][file] for phase, _, file in plan.cold)]
        measure = partial(run.measure, loader)
        if source:
            yield Work(measure, folder, proof=proof, source=source, reading=source.pids, checkpoints=checkpoints)
        else:
            yield Work(
                measure, folder, wanted, proof, sizes, reading=reader.processes, copies=copies, checkpoints=checkpoints
            )


def _reader(
    settings: Settings, paths: Sequence[Path], log: TimeLog | None, source: Source | None
) -> AbstractContextManager[Reader]:
    name, own = str(settings.get("reader", "h5py_threads")), settings["benchmark"]
    return opened(name, [Part(each) for each in _PARTS], paths, readers=own["readers"], log=log, source=source)


def _planned(
    settings: Settings, folder: Path, files: Mapping[str, Sequence[Path]], here: Rank, source: Source | None
) -> Plan:
    """Look into the first file of each kind, and plan the run. Raises DatasetError."""
    own = settings["benchmark"]
    shapes = {phase: _shape(paths[0], source) for phase, paths in files.items() if paths}
    train, validation = (Files(len(files[phase]), shapes.get(phase, (0, 0))[0]) for phase in PHASES)
    rules = Rules(train, validation, here.size, own["epochs"], settings["batch_size"], own["shuffle"], settings["seed"])
    if not rules.share(TRAIN) or not rules.steps:
        what = f"{train.number} files of {train.samples} samples below {folder / TRAIN}"
        needs = f"{here.size} ranks with batches of {rules.batch_size}"
        raise DatasetError(f"{what} are too few for {needs}", "dataset=hep, fewer nodes, or a smaller batch_size")
    phases = PHASES if own["control"] != "no_io" else ()
    return Plan(rules, here, shapes[TRAIN][1], phases)


def _shape(path: Path, source: Source | None) -> tuple[int, int]:
    """Return the samples of a file and the side of its images; DatasetError where it is none of HEPCNNB's."""
    with h5py_parts.file_of(path, source=source) as file:
        shape = h5py_parts.found(file, Part(_PARTS[0])).shape
    if len(shape) != 4 or shape[1] != CHANNELS or shape[2] != shape[3]:  # noqa: PLR2004 - samples of square images
        raise DatasetError(f"{path} has data of shape {shape}, and no square images of 3 channels", "dataset=hep")
    return shape[0], shape[2]


def _to_save(settings: Settings, rules: Rules) -> tuple[int, int]:
    """Return the number of snapshots, and the bytes of each; an index adds kB."""
    return rules.steps // settings["checkpoint"]["every"], bytes_of(kernel_shapes(settings["benchmark"]["width"]))


class HepRun(Run):
    """The run of one rank."""

    def __init__(self, settings: Settings, plan: Plan, spent: Spent, checkpoints: Checkpoints | None) -> None:
        """Start TensorFlow, and build what computes; a network that is saved is built, trained or not."""
        super().__init__(settings, plan.here, spent)
        self.plan, self.rules, own = plan, plan.rules, settings["benchmark"]
        network = None
        if self.trains or checkpoints:
            network = HepNetwork(settings["seed"], {**own, "image_size": plan.image_size})
            network.warm_up(settings["batch_size"], accelerator.HOST) if self.trains else network.reset()
        self.step = self.built(network, kernel_shapes(own["width"]))
        self.saver = checkpoints.saver(network.state) if checkpoints and network else None

    def measure(self, loader: Loader, watched: AbstractContextManager[Any]) -> dict[str, Any]:
        """Run the clock, from the first load to the end of the last step."""
        load = loader.load if self.plan.phases else self._from_memory
        samples = {
            phase: Samples(self.rules, phase, self.here.rank, partial(load, phase), self.spent)
            for phase in PHASES
            if self.rules.share(phase)
        }
        training = HepTraining(self.step, self.spent, rules=self.rules, samples=samples, saver=self.saver)
        wall_s = self.timed(watched, training.run)
        return self._figures(training, loader, wall_s)

    def _from_memory(self, phase: str, _load: Load) -> Arrays:
        """Return samples without reading any: ``control=no_io``."""
        number, side = self.rules.files(phase).samples, self.plan.image_size
        return [np.zeros((number, side, side, CHANNELS), np.float32), np.zeros(number, np.int32)]

    def _figures(self, training: HepTraining, loader: Loader, wall_s: float) -> dict[str, Any]:
        seconds, batch_size, rows = self.spent.seconds, self.rules.batch_size, loader.rows
        images = training.steps_done * batch_size, self.rules.steps * batch_size
        cache = self.settings["cache"] if self.plan.phases and not loader.source else "as_is"
        return {
            **self.figures(training, wall_s, images, (sum(row["bytes"] for row in rows), self.plan.bytes)),
            "load_s": sum(seconds[each] for each in ("next", "load", "read", "shuffle")),
            **{f"{each}_s": seconds[each] for each in ("read", "shuffle", "checkpoint")},
            "unpack_s": seconds["load"],
            "checkpoint_finish_s": training.checkpoint_finish_s,
            "loads": len(rows),
            "load_list": {name: [row[name] for row in rows] for name in _COLUMNS},
            **seconds_by_source(rows),
            **({"checkpoints_asked": self.rules.steps // self.settings["checkpoint"]["every"]} if self.saver else {}),
            "private_caches": int(self.here.private_caches),
            "expected": {**self.plan.of_rank(rows, cache), **self._over_ranks(training)},
        }

    def _over_ranks(self, training: HepTraining) -> dict[str, Any]:
        delivered, none = training.samples[TRAIN].delivered, [0] * self.rules.train.number
        by_epoch = [delivered.get(epoch, none) for epoch in range(self.rules.finished)]
        return over_ranks(self.rules, self.told(training, training.steps_done, by_epoch))


class Keys(Named):
    """Training from HDF5 files as in HEPCNNB."""

    shuffle: Annotated[
        Shuffle,
        Setting(
            "what each epoch shuffles; none: nothing; local: the files and samples of each rank; global: also which"
            " rank"
            " gets which file"
        ),
    ] = "local"
    epochs: Annotated[
        int,
        Meta(ge=1, le=1000),
        Setting("number of epochs; a validation pass follows each epoch that ends before the run", unit="epochs"),
    ] = 5
    control: Annotated[
        Control,
        Setting(
            "what is left out, for comparison; none: nothing; no_io: reading (samples in memory are used again and"
            " again); no_compute: the training step"
        ),
    ] = "none"
    readers: Annotated[
        int, Meta(ge=1, le=256), Setting("processes of reader=h5py_pool and h5py_shared, or threads of reader=offsets")
    ] = 1
    width: Annotated[Width, Setting("number of filters, relative to the 128 of HEPCNNB")] = 1.0
    learning_rate: Annotated[LearningRate, Setting("learning rate of Adam")] = 1e-3
    dropout: Annotated[Dropout, Setting("dropout rate after each of the first four convolutions")] = 0.5


class _Hepcnn(Benchmark):
    def combined(self, ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the loads of all ranks added up, and the means of what each spent with them: `sum_per_rank`."""
        return together(ranks)

    def refusal(self, values: Mapping[str, Any]) -> tuple[str, str] | None:
        """Refuse what is no data set of HEPCNNB, or too small."""
        if "dataset.train_files" not in values and "dataset.path" not in values:
            return f"benchmark=hepcnn does not train on dataset={values['dataset.name']}", "dataset=hep_smoke"
        files, nodes = values.get("dataset.train_files"), values.get("nodes", 1)
        if files is not None and files < nodes:
            return f"nodes={nodes} are more than the {files} files for training", f"nodes={files} or fewer"
        samples = (files or 0) // nodes * values.get("dataset.samples", 0) * values["benchmark.epochs"]
        if files is not None and samples < values["batch_size"]:
            return f"batch_size={values['batch_size']} is more than the samples of a node", f"batch_size={samples}"
        return None


BENCHMARK = _Hepcnn(
    name="hepcnn",
    version=1,
    kind="training",
    keys=Keys,
    begin=_begun,
    figure=Figure("wall_s", "s", "lower"),
    about="train a network from HDF5 files that are loaded whole, as NERSC's HEPCNNB does",
    rate=RATE,
    data="hdf5",
    settings=tuple(name for name in EVERY if name not in {"threads", "prefetch", "iterations"}),
    own_defaults={"accelerator.step_s": 1.0},
    computes=True,
    emulates=True,
    saves=True,
    several_nodes=True,
    wall_parts=_WALL_PARTS,
)
