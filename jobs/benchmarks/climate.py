"""Benchmark ``climate``: NERSC's CDB, a training from HDF5 files of a climate model through tf.data.

By hand, on any node, from a data set that a campaign has made::

    python -m jobs climate data/datasets/climate_smoke-… --reader offsets
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from jobs import ranks
from jobs.benchmarks.alexnet import LearningRate
from jobs.benchmarks.benchmark import Benchmark, Figure
from jobs.benchmarks.cdb import cdb_expected
from jobs.benchmarks.cdb.cdb_network import CdbNetwork, kernel_shapes
from jobs.benchmarks.cdb.cdb_rules import TRAIN, VALIDATION, Rules
from jobs.benchmarks.cdb.cdb_training import CdbTraining
from jobs.benchmarks.cdb.feed import Feed, parts_of, pipelines
from jobs.benchmarks.cdb.stage_in import Copies, staged_in
from jobs.benchmarks.images import RATE, objects_of
from jobs.benchmarks.nersc.nersc_run import Run
from jobs.data import manifest
from jobs.data.readers import Part, opened
from jobs.data.readers.h5py_parts import load
from jobs.errors import DatasetError
from jobs.events.spent import Spent, logged
from jobs.model.declared import Setting
from jobs.model.request import Request
from jobs.model.settings import EVERY, Named, Settings
from jobs.ready_run import Work

_WALL_PARTS = ("load_s", "compute_s", "validate_s", "sync_s", "other_s")
_NO_DATA = "stats.h5"


class Keys(Named):
    """Training from HDF5 files as in CDB."""

    epochs: Annotated[
        int, Meta(ge=1, le=1000), Setting("number of epochs; a validation pass follows each epoch", unit="epochs")
    ] = 1
    control: Annotated[
        Literal["none", "no_io", "no_compute", "metadata"],
        Setting(
            "what is left out, for comparison; none: nothing; no_io: reading (one image in memory is used again and"
            " again); no_compute: the training step; metadata: the data (files are opened but not read)"
        ),
    ] = "none"
    driver: Annotated[
        Literal["core", "sec2"],
        Setting(
            "HDF5 file driver; sec2: POSIX reads; core: each file is read whole into memory, as in CDB; without"
            " effect on reader=offsets"
        ),
    ] = "sec2"
    channels: Annotated[list[int] | None, Setting("channels that are read, of the 16 in a file; null: all")] = field(
        default_factory=lambda: [0, 1, 2, 10]
    )
    readers: Annotated[
        int, Meta(ge=1, le=256), Setting("processes of reader=h5py_pool and h5py_shared, or threads of reader=offsets")
    ] = 4
    preprocess: Annotated[bool, Setting("whether fields are scaled and classes are weighted")] = True
    image_size: Annotated[
        int,
        Meta(ge=8, le=4096),
        Setting("width and height of an image for the network, with accelerator=cpu or gpu", unit="pixels"),
    ] = 64
    learning_rate: Annotated[LearningRate, Setting("learning rate of Adam")] = 1e-4
    stage: Annotated[
        str | None,
        Setting(
            "folder on a fast storage of each node, for example /mnt/fast, to which the files are copied before the"
            " epochs; null: no copy"
        ),
    ] = None


@contextmanager
def _begun(request: Request) -> Iterator[Work]:
    settings, folder, here = request["settings"], Path(request["dataset"]), ranks.here()
    own, control = settings["benchmark"], settings["benchmark"]["control"]
    found = manifest.load(Path(request["manifest"] or folder))
    with ExitStack() as stack:
        source = stack.enter_context(objects_of(request, found))
        folder = Path() if source else folder
        listed = {folder / each.name: each.size for each in found.files}
        paths = sorted(path for path in listed if path.name != _NO_DATA)
        size, steps, seed = settings["batch_size"], settings["iterations"], settings["seed"]
        rules = Rules(len(paths), here.size, here.rank, own["epochs"], size, steps, seed)
        _possible(rules, folder)
        mine = [paths[file] for phase in (TRAIN, VALIDATION) for file in rules.share(phase)]
        parts = parts_of(settings.get("dataset", {}), own["channels"])
        log = stack.enter_context(logged(request, here.rank, here.size))
        may = [paths[file] for file in rules.may_ask(settings["prefetch"], settings["threads"])]
        staged = {path: listed[path] for path in may}
        copies = Copies(folder) if source else stack.enter_context(staged_in(request, here.rank, staged, log))
        where = {path: copies.of(path) for path in paths}
        held = load(where[mine[0]], parts, source=source)
        asked = [Part(part.name, ()) for part in parts] if control == "metadata" else parts
        reader, reads = None, [where[path] for path in mine]
        if control != "no_io":
            how = {"readers": own["readers"], "driver": own["driver"], "log": log, "source": source}
            reader = stack.enter_context(opened(settings["reader"], asked, reads, **how))
        feed = Feed([*where.values()], reader, held, control in ("none", "no_compute"), log)
        run = CdbRun(settings, rules, feed, Spent(log), copies)
        if reader is None:
            yield Work(run.measure, folder)
        else:
            sure = {where[paths[file]] for phase in (TRAIN, VALIDATION) for file in rules.consumed(phase)}
            proof = [path for path in reads if path in sure]
            if source:
                yield Work(run.measure, folder, proof=proof, source=source, reading=source.pids)
                return
            yield Work(
                run.measure,
                folder,
                reads,
                proof,
                {where[path]: listed[path] for path in mine},
                asked=dict.fromkeys(reads, run.image_bytes if feed.reads else 0),
                reading=reader.processes,
                copies=copies.folder,
                newest_ns=copies.newest_ns,
            )


def _possible(rules: Rules, folder: Path) -> None:
    """Raise DatasetError where a rank has no batch, or fewer than an epoch asks for."""
    if rules.steps and rules.steps <= rules.batches(TRAIN):
        return
    has = f"{rules.batches(TRAIN)} batches of {rules.batch_size} for training for each of {rules.ranks} ranks"
    raise DatasetError(f"the {rules.files} files in {folder} make {has}", "more files, fewer nodes, fewer iterations")


class CdbRun(Run):
    """The run of one rank."""

    def __init__(self, settings: Settings, rules: Rules, feed: Feed, spent: Spent, copies: Copies) -> None:
        """Start TensorFlow, and build what feeds and what computes."""
        super().__init__(settings, ranks.here(), spent)
        self.rules, self.feed, self.copies = rules, feed, copies
        self.batches = pipelines(feed, rules, settings)
        network, fields = None, feed.held[0].shape[0]
        if self.trains:
            network = CdbNetwork(settings["seed"], {**settings["benchmark"], "fields": fields})
            network.reset()
        self.step = self.built(network, kernel_shapes(fields))

    @property
    def image_bytes(self) -> int:
        """What is asked for of a file, from the parameters of the data set; of a user's own files from the first."""
        made, channels = self.settings.get("dataset", {}), self.settings["benchmark"]["channels"]
        if "height" not in made:
            return sum(int(each.nbytes) for each in self.feed.held)
        fields = 16 if channels is None else len(channels)
        points: int = made["height"] * made["width"]
        return 4 * ((fields + 1) * points + 4 * fields)

    def measure(self, watched: AbstractContextManager[Any]) -> dict[str, Any]:
        """Run the clock, from the first request to the end of the last step; then wait for what was read ahead."""
        words = dict(zip(("train", "validations"), self.batches, strict=True))
        training = CdbTraining(self.step, self.spent, rules=self.rules, feed=self.feed, **words)

        def settle() -> None:
            training.begun.clear()
            self.feed.settle()

        return self._figures(training, self.timed(watched, training.run, settle))

    def _figures(self, training: CdbTraining, wall_s: float) -> dict[str, Any]:
        rules, feed, settings = self.rules, self.feed, self.settings
        found = {phase: len(files) for phase, files in training.delivered.items()}
        images = sum(found.values()), sum(rules.images.values())
        size = training.bytes_read, images[1] * self.image_bytes if feed.reads else 0
        most = rules.most_asked(settings["prefetch"], settings["threads"])
        train = training.delivered[TRAIN]
        told = self.told(training, len(train) // rules.batch_size, train)
        return {
            **self.figures(training, wall_s, images, size),
            "load_s": self.spent.seconds["next"],
            **{f"{phase}_images": count for phase, count in found.items()},
            **{f"{phase}_reads": feed.asked[phase] for phase in found},
            "images_ahead": sum(feed.asked.values()) - images[0],
            "bytes_ahead": feed.bytes - training.bytes_read,
            "read_sum_s": feed.seconds,
            **self.copies.figures,
            "expected": {
                **self.copies.expected,
                **cdb_expected.of_rank(rules, found, feed.asked, most, size),
                **cdb_expected.over_ranks(rules, told),
            },
        }


class _Climate(Benchmark):
    def combined(self, ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return what all ranks have staged, and how fast: all bytes over the longest time."""
        if not all("stage_s" in each for each in ranks):
            return {}
        longest = max(each["stage_s"] for each in ranks)
        found = {key: sum(each[key] for each in ranks) for key in ("stage_files", "stage_bytes", "stage_found_files")}
        return {**found, "stage_s": longest, "stage_mb_per_s": found["stage_bytes"] / 1e6 / longest}

    def refusal(self, values: Mapping[str, Any]) -> tuple[str, str] | None:
        """Refuse what is no data set of CDB, or too small; and to train on what has no labels."""
        own, name = "dataset.path" in values, values["dataset.name"]
        if not own and ("dataset.height" not in values or "dataset.median_bytes" in values):
            return f"benchmark=climate does not read dataset={name}", "dataset=climate_smoke"
        channels = values["benchmark.channels"]
        if channels is not None and not (channels and all(0 <= each < (1 << 31 if own else 16) for each in channels)):
            return f"benchmark.channels={channels} are no channels of the data", "[0,1,2,10], or null for all 16"
        return _no_stage(values) or (_unlabelled(values) if own else _too_few(values))


def _no_stage(values: Mapping[str, Any]) -> tuple[str, str] | None:
    stage = values["benchmark.stage"]
    if stage is None:
        return None
    if not (Path(stage).is_absolute() and stage.isprintable()):
        return f"benchmark.stage={stage!r} is no absolute path", "benchmark.stage=/mnt/fast"
    if values["benchmark.control"] == "no_io":
        return "benchmark.control=no_io reads nothing that could be staged", "leave benchmark.stage away"
    return None


def _unlabelled(values: Mapping[str, Any]) -> tuple[str, str] | None:
    computes = values["accelerator.name"]
    if computes != "emulated" and values["benchmark.control"] != "no_compute":
        return f"accelerator={computes}: your own files have no labels to train on", "accelerator=emulated"
    return None


def _too_few(values: Mapping[str, Any]) -> tuple[str, str] | None:
    files, nodes, iterations = values["dataset.files"], values.get("nodes", 1), values["iterations"]
    rules = Rules(files - 1, nodes, 0, 1, values["batch_size"], iterations, 0)
    if rules.batches(TRAIN) and rules.steps <= rules.batches(TRAIN):
        return None
    made = f"{rules.batches(TRAIN)} batches for training"
    return f"dataset.files={files} make {made} on {nodes} nodes", "iterations=null, smaller batch"


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
    settings=tuple(name for name in EVERY if name not in {"staging", "checkpoint"}),
    own_defaults={"batch_size": 1, "prefetch": 16, "accelerator.step_s": 0.015},
    computes=True,
    emulates=True,
    several_nodes=True,
    wall_parts=_WALL_PARTS,
)
