"""Benchmark ``climate``: train on HDF5 files of a climate model through tf.data, as NERSC's benchmark CDB does.

To run the benchmark by hand, on any node, with a data set that a campaign has made::

    python -m jobs climate data/datasets/climate_smoke-… --reader offsets
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from jobs import ranks
from jobs.benchmarks.alexnet import LearningRate
from jobs.benchmarks.benchmark import Benchmark, Figure
from jobs.benchmarks.climate_data import (
    TRAIN,
    VALIDATION,
    ClimateRules,
    ImageLoader,
    Phase,
    build_pipelines,
    expectations_over_ranks,
    file_parts,
    rank_expectations,
)
from jobs.benchmarks.images import RATE
from jobs.benchmarks.nersc_trainer import CdbNetwork, NerscTrainer, cdb_kernels
from jobs.benchmarks.run_files import FileCopies, files_of, rank_copies
from jobs.benchmarks.step_loop import TimeSpent, open_time_spent
from jobs.data.readers import Part, open_reader
from jobs.data.readers.h5py_parts import load_parts
from jobs.errors import DatasetError
from jobs.model.declared import Setting
from jobs.model.settings import EVERY, NodeWithName, Settings
from jobs.model.work import RunRequest
from jobs.ready_run import ReadyRun

_NO_DATA = "stats.h5"


class Keys(NodeWithName):
    """Training on HDF5 files, as in NERSC's benchmark CDB."""

    epochs: Annotated[
        int, Meta(ge=1, le=1000), Setting("number of epochs; a validation pass follows each epoch", unit="epochs")
    ] = 1
    control: Annotated[
        Literal["none", "no_io", "no_compute", "metadata"],
        Setting(
            "part of the training that is left out, for comparison; none: nothing; no_io: reading (every step uses the"
            " same image in memory); no_compute: the training step; metadata: the data (files are opened, but no data"
            " are read)"
        ),
    ] = "none"
    driver: Annotated[
        Literal["core", "sec2"],
        Setting(
            "HDF5 file driver, without effect on reader=offsets; sec2: POSIX reads; core: each file is read whole into"
            " memory, as in CDB"
        ),
    ] = "sec2"
    channels: Annotated[
        list[int] | None, Setting("numbers of the channels to read; null: all (the default for your own files)")
    ] = field(default_factory=lambda: [0, 1, 2, 10])
    readers: Annotated[
        int, Meta(ge=1, le=256), Setting("processes of reader=h5py_pool and h5py_shared, or threads of reader=offsets")
    ] = 4
    preprocess: Annotated[bool, Setting("whether the pipeline scales fields and weights classes")] = True
    image_size: Annotated[
        int,
        Meta(ge=8, le=4096),
        Setting("width and height of the images that the network gets on accelerator=cpu or gpu", unit="pixels"),
    ] = 64
    learning_rate: Annotated[LearningRate, Setting("learning rate of Adam")] = 1e-4
    stage: Annotated[
        str | None,
        Setting(
            "folder on each node's fast storage, such as /mnt/fast, to which each rank copies its files before the"
            " first epoch; null: no copies are made"
        ),
    ] = None


@contextmanager
def _begin(request: RunRequest) -> Iterator[ReadyRun]:
    settings, own_rank, own = request["settings"], ranks.this_rank(), request["settings"]["benchmark"]
    with ExitStack() as stack:
        files = stack.enter_context(files_of(request))
        folder, source = files.folder, files.source
        paths = sorted(path for path in files.sizes if path.name != _NO_DATA)
        size, steps, seed = settings["batch_size"], settings["iterations"], settings["seed"]
        rules = ClimateRules(len(paths), own_rank.size, own_rank.rank, own["epochs"], size, steps, seed)
        _require_batches(rules, folder)
        own_paths = [paths[file] for phase in (TRAIN, VALIDATION) for file in rules.share(phase)]
        parts = file_parts(settings.get("dataset", {}), own["channels"])
        spent = stack.enter_context(open_time_spent(request))
        possible_paths = [paths[file] for file in rules.readable_files(settings["prefetch"], settings["threads"])]
        staged = {path: files.sizes[path] for path in possible_paths}
        copies = (
            FileCopies(folder)
            if source
            else stack.enter_context(rank_copies(request, own_rank.rank, staged, spent.log))
        )
        read_paths = {path: copies.path_of(path) for path in paths}
        read = {path: read_paths[path] for path in own_paths} if own["control"] != "no_io" else {}
        first_image, reader = load_parts(read_paths[own_paths[0]], parts, source=source), None
        if read:
            parts_to_read = [Part(part.name, ()) for part in parts] if own["control"] == "metadata" else parts
            options = {"readers": own["readers"], "driver": own["driver"], "log": spent.log, "source": source}
            reader = stack.enter_context(open_reader(settings["reader"], parts_to_read, [*read.values()], **options))
        feed = ImageLoader(
            [*read_paths.values()], reader, first_image, own["control"] in ("none", "no_compute"), spent.log
        )
        training = CdbTraining(settings, rules, feed, spent, copies)
        certain_paths = {
            read_paths[paths[file]] for phase in (TRAIN, VALIDATION) for file in rules.consumed_files(phase)
        }
        asked_bytes = dict.fromkeys(read.values(), training.image_bytes if feed.reads else 0)
        reader_facts = (
            {"copies": copies.folder, "newest_ns": copies.newest_ns, "reading": reader.processes} if reader else {}
        )
        proof = [path for path in read.values() if path in certain_paths]
        yield files.work(training.measure, read, proof, asked=asked_bytes, **reader_facts)


def _require_batches(rules: ClimateRules, folder: Path) -> None:
    """Raise DatasetError if a rank has no batch for training, or fewer batches than the setting ``iterations``."""
    if rules.steps and rules.steps <= rules.batches(TRAIN):
        return
    batches_text = f"{rules.batches(TRAIN)} training batches of {rules.batch_size} for each of {rules.ranks} ranks"
    raise DatasetError(
        f"the {rules.files} files in {folder} make only {batches_text}", "more files, fewer nodes, fewer iterations"
    )


class CdbTraining(NerscTrainer):
    """The CDB training of one rank, from the first batch to the last; a validation pass follows each epoch."""

    wall_parts = ("load_s", "compute_s", "validate_s", "sync_s", "other_s")

    def __init__(
        self, settings: Settings, rules: ClimateRules, feed: ImageLoader, spent: TimeSpent, copies: FileCopies
    ) -> None:
        """Build the input pipelines, and the network or the emulated step."""
        self.rules, self.feed, self.copies, self.fields = rules, feed, copies, feed.example_arrays[0].shape[0]
        super().__init__(settings, rules.epochs * rules.steps, spent, cdb_kernels(self.fields), saved=False)
        self.train, self.validations = build_pipelines(feed, rules, settings)
        self.delivered: dict[Phase, list[int]] = {TRAIN: [], VALIDATION: []}
        self.bytes_read = 0
        self._iterators: list[Iterator[Any]] = []  # pipeline iterators, which run until the clock has stopped

    def build_network(self, *, trains: bool) -> CdbNetwork:  # noqa: ARG002 - CDB saves no snapshots
        """Return a network for the number of fields in an image, with all variables at their initial values."""
        network = CdbNetwork(self.settings["seed"], {**self.settings["benchmark"], "fields": self.fields})
        network.reset()
        return network

    @property
    def image_bytes(self) -> int:
        """Return the expected number of bytes read per file.

        For a generated data set, the number follows from the data set's parameters. For a user's own files, it is the
        size of the arrays in the first file.
        """
        dataset, channels = self.settings.get("dataset", {}), self.settings["benchmark"]["channels"]
        if "height" not in dataset:
            return sum(int(array.nbytes) for array in self.feed.example_arrays)
        fields = 16 if channels is None else len(channels)
        points: int = dataset["height"] * dataset["width"]
        return 4 * ((fields + 1) * points + 4 * fields)

    def begin(self) -> None:
        """Start the input pipeline of the training passes."""
        self._batches = self._start_pass(self.train)

    def place(self, number: int) -> tuple[str, int]:
        """Return the phase and the epoch of the step with this number."""
        return TRAIN, number // self.rules.steps

    def next_batch(self) -> Any:
        """Wait for the next batch, and return the batch, or None after the last batch."""
        return next(self._batches, None)

    def step(self, batch: Any) -> float | None:
        """Train on the arrays of a batch and return the loss, or None if no network is trained."""
        return super().step(self._count_batch(TRAIN, batch))

    def after(self, number: int) -> None:
        """Run the validation pass if this step was the last step of its epoch."""
        epoch, step = divmod(number, self.rules.steps)
        if step < self.rules.steps - 1 or epoch >= len(self.validations):
            return
        self.spent.set_place(VALIDATION, epoch)
        batches = self._start_pass(self.validations[epoch])
        while batch := self._wait_for_batch(batches):
            arrays = self._count_batch(VALIDATION, batch)
            with self.spent.during("validate"):
                self.validate(arrays)

    def finish(self) -> None:
        """Raise the first error of the input pipeline, if the pipeline had an error."""
        self.feed.raise_error()

    def settle(self) -> None:
        """Stop the input pipelines, and wait until their running reads have ended."""
        self._iterators.clear()
        del self._batches
        self.feed.settle()

    def _start_pass(self, batches: Any) -> Iterator[Any]:
        with self.spent.during("next"):
            self._iterators.append(iter(batches))
        return self._iterators[-1]

    def _wait_for_batch(self, batches: Iterator[Any]) -> Any:
        with self.spent.during("next"):
            return next(batches, None)

    def _count_batch(self, phase: Phase, batch: Any) -> list[Any]:
        """Count the files and bytes of a batch, and return its arrays.

        If the input pipeline had an error, the first error is raised.
        """
        self.feed.raise_error()
        files, sizes, *arrays = batch
        self.delivered[phase].extend(files.numpy().tolist())
        self.bytes_read += int(sizes.numpy().sum())
        return [*arrays]

    def metrics(self, wall_s: float) -> dict[str, Any]:
        """Return the raw metrics of the training, and the expected values with which checks compare the metrics."""
        rules, feed, settings = self.rules, self.feed, self.settings
        counts = {phase: len(files) for phase, files in self.delivered.items()}
        images = sum(counts.values()), sum(rules.images.values())
        size = self.bytes_read, images[1] * self.image_bytes if feed.reads else 0
        most_asked = rules.most_images_read(settings["prefetch"], settings["threads"])
        train = self.delivered[TRAIN]
        return {
            **self.common_metrics(wall_s, images, size),
            **{f"{phase}_images": count for phase, count in counts.items()},
            **{f"{phase}_reads": feed.asked[phase] for phase in counts},
            "images_ahead": sum(feed.asked.values()) - images[0],
            "bytes_ahead": feed.bytes - self.bytes_read,
            "read_sum_s": feed.seconds,
            **self.copies.figures,
            "expected": {
                **self.copies.expected,
                **rank_expectations(rules, counts, feed.asked, most_asked, size),
                **expectations_over_ranks(rules, self.reports(len(train) // rules.batch_size, train)),
            },
        }


class _Climate(Benchmark):
    def combined_metrics(self, ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the metrics of copying to the folder ``stage``, over all ranks.

        The metrics are the sums of files and bytes, the longest copying time of a rank, and the rate over that time.
        The result is empty if a rank made no copies.
        """
        if not all("stage_s" in metrics for metrics in ranks):
            return {}
        longest = max(metrics["stage_s"] for metrics in ranks)
        sums = {
            key: sum(metrics[key] for metrics in ranks) for key in ("stage_files", "stage_bytes", "stage_found_files")
        }
        return {**sums, "stage_s": longest, "stage_mb_per_s": sums["stage_bytes"] / 1e6 / longest}

    def settings_error(self, values: Mapping[str, Any]) -> tuple[str, str] | None:
        """Return an error message and its cure if the settings are not possible for ``climate``, else None.

        The checked settings are the data set, the channels, the folder ``stage``, the accelerator and the number of
        files.
        """
        is_own_folder, name = "dataset.path" in values, values["dataset.name"]
        if not is_own_folder and ("dataset.height" not in values or "dataset.median_bytes" in values):
            return f"benchmark=climate does not read dataset={name}", "dataset=climate_smoke"
        channels = values["benchmark.channels"]
        if channels is not None and not (
            channels and all(0 <= channel < (1 << 31 if is_own_folder else 16) for channel in channels)
        ):
            return f"benchmark.channels={channels}: the data have no such channels", "[0,1,2,10], or null for all 16"
        return _refuse_stage(values) or (_refuse_unlabelled(values) if is_own_folder else _refuse_too_few(values))


def _refuse_stage(values: Mapping[str, Any]) -> tuple[str, str] | None:
    stage = values["benchmark.stage"]
    if stage is None:
        return None
    if not (Path(stage).is_absolute() and stage.isprintable()):
        return f"benchmark.stage={stage!r} is no absolute path", "benchmark.stage=/mnt/fast"
    if values["benchmark.control"] == "no_io":
        return "benchmark.control=no_io reads no files, so no copies are needed", "leave out benchmark.stage"
    return None


def _refuse_unlabelled(values: Mapping[str, Any]) -> tuple[str, str] | None:
    computes = values["accelerator.name"]
    if computes != "emulated" and values["benchmark.control"] != "no_compute":
        return f"accelerator={computes}: your own files have no labels to train on", "accelerator=emulated"
    return None


def _refuse_too_few(values: Mapping[str, Any]) -> tuple[str, str] | None:
    files, nodes, iterations = values["dataset.files"], values.get("nodes", 1), values["iterations"]
    rules = ClimateRules(files - 1, nodes, 0, 1, values["batch_size"], iterations, 0)
    if rules.batches(TRAIN) and rules.steps <= rules.batches(TRAIN):
        return None
    batches = f"{rules.batches(TRAIN)} batches for training"
    return f"dataset.files={files} make {batches} on {nodes} nodes", "iterations=null, smaller batch"


BENCHMARK = _Climate(
    name="climate",
    version=1,
    kind="training",
    keys=Keys,
    begin=_begin,
    figure=Figure("wall_s", "s", "lower"),
    about="train on HDF5 files of a climate model through tf.data, as NERSC's benchmark CDB does",
    rate=RATE,
    data="hdf5",
    settings=tuple(name for name in EVERY if name not in {"staging", "checkpoint"}),
    own_defaults={"batch_size": 1, "prefetch": 16, "accelerator.step_s": 0.015},
    computes=True,
    emulates=True,
    several_nodes=True,
    wall_parts=CdbTraining.wall_parts,
)
