"""Trainings that are saved, for a process that has TensorFlow; each function takes a dict and returns one."""

import threading
import time
from contextlib import closing
from pathlib import Path

from jobs.benchmarks.alexnet_network import Network
from jobs.burst_buffer import BurstBuffer
from jobs.checkpoints import snapshots
from jobs.checkpoints.buffer import DirectTarget
from jobs.checkpoints.restart import Snapshot, latest_snapshot
from jobs.checkpoints.saver import BackgroundSaver, Saver
from jobs.lazy_imports import tf
from jobs.system import clock
from tests.jobs.jobs_factory import eventually
from tests.jobs.template_jobs import STILL_S

CLASSES, SIZE, BATCH = 3, 32, 4
BENCHMARK = {"image_size": SIZE, "width": 0.05, "learning_rate": 1e-2, "dropout": 0.5, "optimizer": "adam"}


def _network():
    network = Network(CLASSES, 1, BENCHMARK)
    network.reset()
    return network


def _batch(number):
    images = tf.random.stateless_uniform((BATCH, SIZE, SIZE, 3), (number, 0))
    labels = tf.random.stateless_uniform((BATCH,), (number, 1), 0, CLASSES, tf.int32)
    return images, tf.one_hot(labels, CLASSES)


def _values(state):
    return [variable.numpy().tobytes() for variable in tf.nest.flatten(dict(state))]


def _target(argument):
    folders = [Path(folder) for folder in argument["folders"]]
    return DirectTarget(*folders) if len(folders) == 1 else BurstBuffer(*folders)


def _saver(argument, state, target, every):
    if argument["mode"] == "sync":
        return Saver(state, target, every)
    return BackgroundSaver(state, target, every, argument.get("in_flight", 1))


def restart(argument):
    """Train 5 steps, save every 2, start again from the newest: is the state that of step 4, the next loss that of 5?

    The state is compared as it was after the step, read by TensorFlow's own words.
    """
    with closing(_target(argument)) as target:
        network, states, losses = _network(), {}, {}
        saving = _saver(argument, network.state, target, every=2)
        for step in range(1, 6):
            losses[step] = network.train(*_batch(step))
            states[step] = _values(network.state)
            saving.after(step)
        saving.finish()
        steps = [line["step"] for line in saving.report()]
    again = _restored(latest_snapshot(*map(Path, argument["folders"])))
    return {"value": [steps, _values(again.state) == states[4], [again.train(*_batch(5)), losses[5]]]}


def _restored(files):
    network = _network()
    tf.train.Checkpoint(**network.state).read(str(files / snapshots.PREFIX)).assert_consumed()
    return network


class _Gate:
    """A target that is slow, or fails, as it is told; it keeps what it was given."""

    def __init__(self, folder, error=None):
        self.open, self.given, self._folder, self._error = threading.Event(), [], folder, error

    def save(self, step, write):
        self.open.wait()
        if self._error:
            raise self._error
        folder = self._folder / str(step)
        folder.mkdir()
        write(folder)
        self.given.append(step)
        return Snapshot(
            snapshots.new_snapshot_name(1, step), step, folder, "only", 1, clock.current_moment(), 0.0, 0.0, 0.0
        )

    def report(self, _ended=None):
        return [{"step": step, "durable_fast_s": 0.0, "durable_slow_s": None} for step in self.given]


def in_flight(argument):
    """Save each step while nothing can be written; return how many steps were done when the training stood still.

    Then let it go on to its end, and return what was written and the values that the first snapshot holds are those
    of its step.
    """
    gate = _Gate(Path(argument["folder"]))
    network, done, states = _network(), [], {}
    saving = BackgroundSaver(network.state, gate, 1, argument["in_flight"])

    def train():
        for step in range(1, 6):
            network.steps.assign_add(1)
            network.biases[0].assign_add(network.biases[0] * 0 + step)
            states[step] = _values(network.state)
            saving.after(step)
            done.append(step)
        saving.finish()

    thread = threading.Thread(target=train)
    thread.start()
    eventually(lambda: len(done) >= argument["in_flight"])
    time.sleep(STILL_S)
    still = len(done)
    gate.open.set()
    thread.join()
    folder = Path(argument["folder"])
    same = [_values(_restored(folder / str(step)).state) == states[step] for step in gate.given]
    return {"value": [still, gate.given, same, [line["blocked_s"] for line in saving.report()]]}


def failing(argument):
    """Save at the first step to a target that fails; return the step at which the training is told, and what."""
    gate = _Gate(Path(argument["folder"]), OSError(5, "Input/output error"))
    gate.open.set()
    network = _network()
    saving = BackgroundSaver(network.state, gate, argument["every"], 1)
    try:
        for step in range(1, 9):
            saving.after(step)
            eventually(lambda: all(each.done() for each in saving._writing))  # noqa: SLF001 - it tells nobody
        saving.finish()
    except OSError as error:
        return {"value": [step, str(error)]}
    return {"value": None}
