"""Save a training's variables at every n-th step: while the training is stopped, or in a background thread.

The files of a snapshot have TensorFlow's own format, which ``tf.train.Checkpoint(…).read`` reads.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from jobs.checkpoints.buffer import DirectTarget
from jobs.checkpoints.snapshots import PREFIX
from jobs.lazy_imports import tf
from jobs.system import clock, page_cache
from jobs.system.clock import Moment

State = Mapping[str, Any]  # variables, and lists of variables, by name


@dataclass
class _Request:
    """A requested snapshot; `asked_s` and `began_s` are times of ``time.perf_counter``."""

    asked_s: float  # end of the step that is saved
    blocked_s: float = 0.0  # seconds for which the training was stopped
    began_s: float = 0.0  # begin of the writing


class Saver:
    """A saver that stops the training at every n-th step (`every`), and saves the training's variables."""

    def __init__(self, state: State, target: DirectTarget, every: int) -> None:
        self._state, self._target, self._every = state, target, every
        self._requests: list[_Request] = []
        self._ended: Moment | None = None

    def after(self, step: int) -> None:
        """Save a snapshot after a finished step, if the number of the step is a multiple of `every`.

        The first step has the number 1.
        """
        if step % self._every == 0:
            request = _Request(time.perf_counter())
            self._requests.append(request)
            self._save(step, request)
            request.blocked_s = time.perf_counter() - request.asked_s

    def finish(self) -> None:
        """Record the end of the training; when this method returns, all requested snapshots are durable."""
        self._ended = clock.current_moment()

    def close(self) -> None:
        """Do not write snapshots whose writing has not begun, because the training has ended, perhaps by an error."""

    def report(self) -> list[dict[str, Any]]:
        """Return the times of each snapshot, with the keys of `jobs.checkpoints.buffer.BurstBuffer.report`.

        ``blocked_s`` is the time for which the training was stopped. ``durable_fast_s`` and ``durable_slow_s`` count
        from the end of the saved step.
        """
        return [
            _count_from_step(line, request)
            for line, request in zip(self._target.report(self._ended), self._requests, strict=False)
        ]

    def _save(self, step: int, request: _Request) -> None:
        self._write(step, request, self._state)

    def _write(self, step: int, request: _Request, state: State) -> None:
        """Save a snapshot to the target, and then sync the target's whole file system, as in the paper (III.C)."""
        request.began_s = time.perf_counter()
        snapshot = self._target.save(step, _write_function(state))
        page_cache.sync_file_system(snapshot.path)


class BackgroundSaver(Saver):
    """A saver that stops the training only to copy the variables in memory, and writes in a background thread.

    At most `in_flight` snapshots are in memory; if a further snapshot is due, the training waits.
    """

    def __init__(self, state: State, target: DirectTarget, every: int, in_flight: int) -> None:
        super().__init__(state, target, every)
        self._copies: SimpleQueue[State] = SimpleQueue()
        for _ in range(in_flight):
            copy = _host_copies(state)
            _copy_values(copy, state)  # a first copy before the training, because it takes longer than later copies
            self._copies.put(copy)
        self._pool = ThreadPoolExecutor(1, "saver")
        self._writing: deque[Future[None]] = deque()

    def after(self, step: int) -> None:
        """Copy the variables if the step is to be saved.

        If writing an earlier snapshot failed, its error is raised at the next step.
        """
        self._raise_error()
        super().after(step)

    def finish(self) -> None:
        """Wait until all requested snapshots are durable, and record the end of the training."""
        self._pool.shutdown()
        self._raise_error()
        super().finish()

    def close(self) -> None:
        """Wait for the snapshot that is being written; do not write snapshots whose writing has not begun."""
        self._pool.shutdown(cancel_futures=True)

    def _save(self, step: int, request: _Request) -> None:
        copy = self._copies.get()
        self._raise_error()
        _copy_values(copy, self._state)
        self._writing.append(self._pool.submit(self._write_copy, step, request, copy))

    def _write_copy(self, step: int, request: _Request, copy: State) -> None:
        try:
            self._write(step, request, copy)
        finally:
            self._copies.put(copy)  # also after an error, because the training may wait for this copy

    def _raise_error(self) -> None:
        while self._writing and self._writing[0].done():
            self._writing.popleft().result()


def _write_function(state: State) -> Callable[[Path], object]:
    checkpoint = tf.train.Checkpoint(**state)
    return lambda folder: checkpoint.write(str(folder / PREFIX))


def _host_copies(state: State) -> State:
    """Return new variables in host memory with the names and shapes of `state`, and zeros as values."""
    with tf.device("/CPU:0"):
        copies: State = tf.nest.map_structure(lambda variable: tf.Variable(tf.zeros_like(variable)), dict(state))
    return copies


def _copy_values(copy: State, state: State) -> None:
    with tf.device("/CPU:0"):
        for target, source in zip(tf.nest.flatten(dict(copy)), tf.nest.flatten(dict(state)), strict=True):
            # DeepCopy copies the bytes now, at 4.8 GB/s (numpy: 1 GB/s). With `tf.identity`, the two variables would
            # share a buffer, and the next training step would have to copy this buffer before changing it.
            target.assign(tf.raw_ops.DeepCopy(x=source))


def _count_from_step(line: Mapping[str, Any], request: _Request) -> dict[str, Any]:
    delay_s = request.began_s - request.asked_s
    durable_times = {key: line[key] and line[key] + delay_s for key in ("durable_fast_s", "durable_slow_s")}
    return {**line, **durable_times, "blocked_s": request.blocked_s}
