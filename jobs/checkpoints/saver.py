"""Saves the variables of a training every so many steps: while it stands still, or behind its back.

What is written is TensorFlow's own format, which ``tf.train.Checkpoint(…).read`` reads.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from jobs.burst_buffer.restart import Snapshot
from jobs.burst_buffer.snapshots import PREFIX
from jobs.lazy_imports import tf
from jobs.system import page_cache

State = Mapping[str, Any]  # variables, and lists of them, by name


class Target(Protocol):
    """Where snapshots go: `jobs.checkpoints.direct.Direct` or `jobs.burst_buffer.BurstBuffer`."""

    def save(self, step: int, write: Callable[[Path], object]) -> Snapshot:
        """Save a snapshot and return when it is durable."""

    def report(self, training_ended_at: float | None = None) -> list[dict[str, Any]]:
        """Return the times of each snapshot."""


@dataclass
class _Request:
    """One snapshot that was asked for; `asked_s` and `began_s` are of ``time.perf_counter``."""

    asked_s: float
    blocked_s: float = 0.0
    began_s: float = 0.0


class Saver:
    """Saves variables, and lists of them, by name, every so many steps while the training stands still."""

    def __init__(self, state: State, target: Target, every: int) -> None:
        self._state, self._target, self._every = state, target, every
        self._requests: list[_Request] = []
        self._ended_at: float | None = None

    def after(self, step: int) -> None:
        """Save where the step that has just been done (the first is 1) is one to be saved."""
        if step % self._every == 0:
            request = _Request(time.perf_counter())
            self._requests.append(request)
            self._save(step, request)
            request.blocked_s = time.perf_counter() - request.asked_s

    def finish(self) -> None:
        """End the training: all that was asked for is durable when this returns."""
        self._ended_at = time.time()

    def close(self) -> None:
        """Give up what has not begun: the training has ended, perhaps by an error."""

    def report(self) -> list[dict[str, Any]]:
        """Return the times of each snapshot: `blocked_s` is how long training stood still for it.

        All times but those of the drain itself count from the end of the step that was saved. See
        `jobs.burst_buffer.BurstBuffer.report` for the rest.
        """
        return [
            _counted_from_the_step(line, request)
            for line, request in zip(self._target.report(self._ended_at), self._requests, strict=False)
        ]

    def _save(self, step: int, request: _Request) -> None:
        self._write(step, request, self._state)

    def _write(self, step: int, request: _Request, state: State) -> None:
        """Save values to the target, then the whole of its file system (paper III.C)."""
        request.began_s = time.perf_counter()
        snapshot = self._target.save(step, _writer(state))
        page_cache.sync(snapshot.path)


class BackgroundSaver(Saver):
    """Saves one of `in_flight` copies in memory while the training goes on; it stands still for the copy alone."""

    def __init__(self, state: State, target: Target, every: int, in_flight: int) -> None:
        super().__init__(state, target, every)
        self._copies: SimpleQueue[State] = SimpleQueue()
        for _ in range(in_flight):
            copy = _like(state)
            _fill(copy, state)  # a first copy costs more than the others; this one is nobody's time
            self._copies.put(copy)
        self._pool = ThreadPoolExecutor(1, "saver")
        self._writing: deque[Future[None]] = deque()

    def after(self, step: int) -> None:
        """Copy where the step is one to be saved; an error of an earlier snapshot is raised at whatever step it is."""
        self._raise_what_failed()
        super().after(step)

    def finish(self) -> None:
        """Wait until all that was asked for is durable."""
        self._pool.shutdown()
        self._raise_what_failed()
        super().finish()

    def close(self) -> None:
        """Give up what has not begun, and wait for the snapshot that is being written."""
        self._pool.shutdown(cancel_futures=True)

    def _save(self, step: int, request: _Request) -> None:
        copy = self._copies.get()
        self._raise_what_failed()
        _fill(copy, self._state)
        self._writing.append(self._pool.submit(self._write_copy, step, request, copy))

    def _write_copy(self, step: int, request: _Request, copy: State) -> None:
        try:
            self._write(step, request, copy)
        finally:
            self._copies.put(copy)  # after an error too: the training must not wait for it for ever

    def _raise_what_failed(self) -> None:
        while self._writing and self._writing[0].done():
            self._writing.popleft().result()


def _writer(state: State) -> Callable[[Path], object]:
    checkpoint = tf.train.Checkpoint(**state)
    return lambda folder: checkpoint.write(str(folder / PREFIX))


def _like(state: State) -> State:
    """Make variables of the same shapes in the host's memory."""
    with tf.device("/CPU:0"):
        made: State = tf.nest.map_structure(lambda one: tf.Variable(tf.zeros_like(one)), dict(state))
    return made


def _fill(copy: State, state: State) -> None:
    with tf.device("/CPU:0"):
        for target, source in zip(tf.nest.flatten(dict(copy)), tf.nest.flatten(dict(state)), strict=True):
            # A true copy, here and now, 4.8 GB/s where `numpy` makes 1: with `tf.identity` both share a buffer, and the
            # next step pays for the copy that it must make before it changes it.
            target.assign(tf.raw_ops.DeepCopy(x=source))


def _counted_from_the_step(line: Mapping[str, Any], request: _Request) -> dict[str, Any]:
    late_s = request.began_s - request.asked_s
    durable = {key: line[key] and line[key] + late_s for key in ("durable_fast_s", "durable_slow_s")}
    return {**line, **durable, "blocked_s": request.blocked_s}
