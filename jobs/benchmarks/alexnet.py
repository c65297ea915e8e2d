"""Benchmark ``alexnet``: the mini-application, AlexNet trained from a folder of images (paper III.B-C; Figs 6 to 10).

By hand, on any node::

    python -m jobs alexnet FOLDER --threads 4 --prefetch 1
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from jobs import steps as step_marks
from jobs.benchmarks import accelerator, images
from jobs.benchmarks.alexnet_network import Network, state_bytes
from jobs.benchmarks.benchmark import Benchmark, Figure
from jobs.checkpoints.run_snapshots import Checkpoints
from jobs.checkpoints.saver import Saver
from jobs.data import pipeline
from jobs.data.pipeline import dropped, first_complaint
from jobs.errors import UnreadableImageError
from jobs.lazy_imports import tf
from jobs.model.declared import Setting
from jobs.model.settings import Settings
from jobs.objects.source import Source

Step = Callable[[Any, Any], float | None]  # of images and labels; returns the loss where it trains

WALL_PARTS = ("startup_s", "load_s", "compute_s", "checkpoint_s", "other_s")


def prepare(  # noqa: PLR0913 - what differs from run to run, and from benchmark to benchmark
    settings: Settings,
    paths: Sequence[Path],
    checkpoints: Checkpoints | None = None,
    *,
    originals: Sequence[Path] | None = None,
    source: Source | None = None,
    kind: type[Network] = Network,
) -> Callable[..., dict[str, Any]]:
    """Start TensorFlow, build the pipeline and what computes, and return what runs the clock.

    With `checkpoints` the network is saved as it trains. Where nothing is trained (``accelerator=emulated``,
    ``control=no_compute``) it is built all the same, and saved as it was built: the same bytes. With ``control=no_io``
    the first batch is loaded here and served again at every step; else none of `paths` is read yet. Classes are the
    folders of `originals`, where `paths` are copies; of a `source` they are objects. `kind` is the network.

    What is returned takes a context that is entered before the iterator is made and left after the last step, both
    outside the clock. Raises NoGpuError for ``accelerator.name=gpu`` where there is none.
    """
    chosen = accelerator.choose(settings["accelerator"]["name"])
    tf.random.set_seed(settings["seed"])
    names = [str(path) for path in paths]
    wanted = images_asked(settings, len(names))
    steps = wanted // settings["batch_size"]
    classified = [str(path) for path in originals or paths]
    dataset = pipeline.build_labelled(names, settings, accelerator.DEVICES[chosen], classified, source)
    classes = dataset.element_spec[-1].shape[-1]
    step, network, built = _build_step(chosen, settings, kind, classes, saved=checkpoints is not None)
    saver = checkpoints.saver(network.state) if checkpoints and network else None
    with _bad_file_named(names, settings, source):
        batches = _from_memory(dataset, steps) if settings["benchmark"]["control"] == "no_io" else dataset

    def measure(watched: AbstractContextManager[Any]) -> dict[str, Any]:
        with _bad_file_named(names, settings, source):
            delivered, figures = _measure(batches, steps, step, watched, saver)
        exhausted = len(delivered) < wanted
        errors, unreadable = dropped(names, delivered, settings, source, exhausted=exhausted, whole_batches=True)
        asked = {"images_asked": wanted, "image_errors": errors, "unreadable": unreadable}
        saves = {"checkpoints_asked": steps // settings["checkpoint"]["every"]} if checkpoints else {}
        return {**figures, **asked, **saves, **built, "accelerator": accelerator.described(chosen)}

    return measure


@contextmanager
def _bad_file_named(names: Sequence[str], settings: Settings, source: Source | None) -> Iterator[None]:
    """Name the file that TensorFlow fails on where `ignore_errors` is off; its own error does not."""
    try:
        yield
    except tf.errors.OpError as error:
        complaint = first_complaint(names, settings, source)
        if complaint is None:
            raise  # not the input's fault
        raise UnreadableImageError(complaint) from error


def images_asked(settings: Settings, files: int) -> int:
    """Count the images that a run asks for: ``iterations`` batches, or the whole batches of one epoch, at least one."""
    batch_size: int = settings["batch_size"]
    iterations = settings["iterations"]
    return batch_size * (max(1, files // batch_size) if iterations is None else iterations)


def to_save(settings: Settings, paths: Sequence[Path]) -> tuple[int, int]:
    """Return the number of snapshots of a run and the bytes of each, before anything is built; an index adds kB."""
    benchmark, (_, classes) = settings["benchmark"], pipeline.labels([str(path) for path in paths])
    steps = images_asked(settings, len(paths)) // settings["batch_size"]
    size = state_bytes(benchmark, classes)
    return steps // settings["checkpoint"]["every"], size


def _build_step(
    chosen: str, settings: Settings, kind: type[Network], classes: int, *, saved: bool
) -> tuple[Step, Network | None, dict[str, Any]]:
    """Make what is done with a batch; returns it, the network if one is trained or saved, and what making them took."""
    began = time.perf_counter()
    idle = _idle_step(chosen, settings)
    if idle and not saved:
        return idle, None, {"build_s": time.perf_counter() - began, "parameters": 0, "state_bytes": 0}
    device = accelerator.DEVICES[chosen]
    with tf.device(device):
        network = kind(classes, settings["seed"], settings["benchmark"])
    if idle:
        network.reset()
    else:
        # As within the clock: TensorFlow prepares a step for where its batch stands and for the scope it is called in.
        to_device = settings["benchmark"]["prefetch_to_device"]
        network.warm_up(settings["batch_size"], device if to_device else accelerator.HOST)
    size = {"parameters": network.parameters, "state_bytes": network.state_bytes}
    return idle or network.train, network, {"build_s": time.perf_counter() - began, **size}


def _idle_step(chosen: str, settings: Settings) -> Step | None:
    """Return what is done with a batch where nothing is trained; None where the network is."""
    if settings["benchmark"]["control"] == "no_compute":
        return lambda _images, _labels: None
    return accelerator.emulated(settings["accelerator"]["step_s"]) if chosen == "emulated" else None


def _from_memory(dataset: Any, steps: int) -> list[Any]:
    """Load one batch and repeat it, with no bytes read: ``control=no_io``; empty where not one can be loaded."""
    batch = next(iter(dataset), None)
    if batch is None:
        return []
    index, size, images, labels = batch
    return [(index, size * 0, images, labels)] * steps


def _measure(
    batches: Iterable[Any], steps: int, step: Step, watched: AbstractContextManager[Any], saver: Saver | None = None
) -> tuple[list[int], dict[str, Any]]:
    """Run the clock from just before the iterator is made to the end of the last step, what it saves included.

    Each part has a stamp before and after, and the wall time has two of its own, so that work between the parts,
    that none of them names, shows as time that does not add up.
    """
    clock = time.perf_counter
    with watched:
        start = clock()
        requested = clock()
        iterator = iter(batches)
        startup_s = clock() - requested
        delivered, figures = _train(iterator, steps, step, saver)
        wall_s = clock() - start
    figures |= {
        "load_s": sum(figures["step_load_s"]),
        "compute_s": sum(figures["step_compute_s"]),
        "images": len(delivered),
    }
    return delivered, {"wall_s": wall_s, "startup_s": startup_s, **figures}


def _train(iterator: Iterator[Any], steps: int, step: Step, saver: Saver | None) -> tuple[list[int], dict[str, Any]]:
    """Take at most `steps` batches and do a step with each; returns the indices delivered, and times, losses, bytes.

    A step of waiting ends with the batch in hand, one of computing with the loss on the host; saving begins after the
    book-keeping, and ends when the training may go on.
    """
    clock = time.perf_counter
    delivered: list[int] = []
    step_load_s: list[float] = []
    step_compute_s: list[float] = []
    losses: list[float | None] = []
    bytes_read, other_s, checkpoint_s = 0, 0.0, 0.0
    for number in (marked := step_marks.marked(range(steps))):
        requested = clock()
        with step_marks.part("input"):
            batch = next(iterator, None)
        arrived = clock()
        step_load_s.append(arrived - requested)
        if batch is None:
            break
        index, size, images, labels = batch  # the batch before is let go here: tens of MB, which takes its time
        began = clock()
        other_s += began - arrived
        with step_marks.part("compute"):
            loss = step(images, labels)
        ended = clock()
        step_compute_s.append(ended - began)
        losses += [] if loss is None else [loss if math.isfinite(loss) else None]
        delivered.extend(index.numpy().tolist())
        bytes_read += int(size.numpy().sum(dtype="int64"))
        kept = clock()
        other_s += kept - ended
        if saver:
            with step_marks.part("checkpoint"):
                saver.after(number + 1)
            checkpoint_s += clock() - kept
    finish_s = 0.0
    if saver:
        ended = clock()
        saver.finish()
        finish_s = clock() - ended
    times = {"step_load_s": step_load_s, "step_compute_s": step_compute_s, "other_s": other_s + marked.spent_s}
    times |= {"checkpoint_s": checkpoint_s + finish_s, "checkpoint_finish_s": finish_s}
    return delivered, {**times, "step_loss": losses, "bytes_read": bytes_read}


Control = Literal["none", "no_io", "no_compute"]
LearningRate = Annotated[float, Meta(ge=0, le=10)]
Width = Annotated[float, Meta(ge=0.01, le=4)]
Dropout = Annotated[float, Meta(ge=0, le=0.99)]


class TrainingKeys(pipeline.PipelineKeys):
    """Training on files."""

    prefetch_to_device: Annotated[
        bool, Setting("whether prefetched batches are copied to the device that computes (the GPU, if there is one)")
    ] = False
    control: Annotated[
        Control,
        Setting(
            "what is left out, for comparison; none: nothing; no_io: reading (one batch in memory is used again and"
            " again); no_compute: the training step"
        ),
    ] = "none"
    optimizer: Annotated[
        Literal["adam", "sgd"],
        Setting(
            "optimizer of the training; adam: Adam; sgd: gradient descent, which has no moments, so that a snapshot"
            " has a third of the bytes"
        ),
    ] = "adam"
    learning_rate: Annotated[LearningRate, Setting("learning rate of the optimizer")] = 1e-4


class Keys(TrainingKeys):
    """Training of AlexNet."""

    width: Annotated[Width, Setting("number of channels and units, relative to AlexNet")] = 1.0
    dropout: Annotated[Dropout, Setting("dropout rate of the first two dense layers")] = 0.5


BENCHMARK = Benchmark(
    name="alexnet",
    version=1,
    kind="training",
    keys=Keys,
    begin=images.begin_with(prepare, images_asked, to_save, labelled=True),
    figure=Figure("wall_s", "s", "lower"),
    about="train AlexNet from a folder of images, as the paper's mini-application does, and save snapshots if asked",
    rate=images.RATE,
    computes=True,
    saves=True,
    whole_batches=True,
    wall_parts=WALL_PARTS,
)
