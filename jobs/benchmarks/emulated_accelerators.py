"""Emulate the accelerators of one node: a process per accelerator reads batches, runs steps, and meets the others.

In each step, an accelerator waits for its batch, waits until a deadline in place of computing, and then meets the other
accelerators. The deadline is the moment at which the accelerator is free and has its batch, plus the duration of a
step. All accelerators are free again when the latest deadline of the step has passed. Because of the deadlines, a late
batch lengthens the run, but a process that wakes up late does not. In a run on several nodes, the accelerators are free
when the hub releases all nodes.

As in DLIO, the utilisation (AU) does not count the first step, because its waiting time includes the start of the
readers. The waiting time of the first step is the metric ``startup_s``. The AU of DLIO counts from the end of an
accelerator's own first step, so a fast first step lowers DLIO's AU. The AU of this module counts from the moment at
which all accelerators are free after the first step.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import multiprocessing
import os
import select
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, Self

from jobs.errors import MORE_FILES, JobError
from jobs.fork_server import die_with_parent
from jobs.lazy_imports import np, tf
from jobs.ranks import this_rank
from jobs.ranks.rank import Rank
from jobs.system.files import error_text

_SPIN_S = 0.0002  # last seconds before a deadline, spent in a busy loop because waking up takes about 0.1 ms
_SWITCH_S = 0.0002  # seconds after which a running Python thread must let another thread run (setswitchinterval)
_GRACE_S = 5.0  # seconds that a process gets to end by itself
_PR_SET_TIMERSLACK = 29  # option number for prctl(2)
_libc = ctypes.CDLL(None, use_errno=True)


class AcceleratorError(JobError):
    """Raised if the process of an emulated accelerator has failed; the log of the run has the traceback."""


class Sample(NamedTuple):
    """A sample: its file, the offset of its first byte in the file, and its number of bytes."""

    path: Path
    offset: int
    bytes: int


@dataclass(frozen=True)
class Plan:
    """The work of the emulated accelerators of one node.

    `batches` has one batch per accelerator and step: all batches of the first step, then all of the second step, and so
    on.
    """

    accelerators: int
    step_s: float
    threads: int  # reading threads per accelerator
    prefetched_batches: int  # batches that are read before a step needs them
    engine: str  # value of the setting ``benchmark.engine``: ``raw`` or ``tf``
    from_memory: bool  # whether batches are copied from memory, without reading files
    batches: Sequence[Sequence[Sample]]

    @property
    def steps(self) -> int:
        """Return the number of steps of each accelerator."""
        return len(self.batches) // self.accelerators


class _Meeting:
    """A barrier for the accelerators of a node: the parent process counts arrivals, and releases all processes at once.

    Successive meetings use two event file descriptors in turn. A fast process that is already at the next meeting can
    then not take the release of a slow process that is still at the last meeting.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._came = os.eventfd(0)
        self._go = [os.eventfd(0, os.EFD_SEMAPHORE) for _ in range(2)]
        # Memory shared by all processes: the deadline of each accelerator, then the moments at which all accelerators
        # are free, one for even and one for odd meetings.
        self.times = np.frombuffer(mmap.mmap(-1, 8 * (size + 2)), np.float64)

    def come(self, index: int, number: int, deadline_s: float) -> float:
        """Wait until all accelerators are at meeting `number`, and return the moment at which all are free.

        `index` is the number of the calling accelerator, and `deadline_s` the deadline of its step.
        """
        self.times[index] = deadline_s
        os.eventfd_write(self._came, 1)
        os.eventfd_read(self._go[number % 2])
        return float(self.times[self.size + number % 2])

    def lead(self, number: int, sentinels: Sequence[int], among: Rank) -> bool:
        """Wait until all accelerators are at meeting `number`, meet the other nodes, and release all accelerators.

        Return False at once if the process of an accelerator ends.
        """
        count, poll = 0, select.poll()
        for descriptor in (self._came, *sentinels):
            poll.register(descriptor, select.POLLIN)
        while count < self.size:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if self._came not in ready:
                return False
            count += os.eventfd_read(self._came)
        free_s = float(self.times[: self.size].max())
        if among.size > 1:
            among.barrier()
        self.times[self.size + number % 2] = time.perf_counter() if among.size > 1 or not number else free_s
        os.eventfd_write(self._go[number % 2], self.size)
        return True

    def close(self) -> None:
        """Close the event file descriptors."""
        for descriptor in (self._came, *self._go):
            os.close(descriptor)


class Accelerators:
    """A context manager that runs one process per emulated accelerator of this node, and ends the processes on exit."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._meeting = _Meeting(plan.accelerators)
        self._pipes: list[Any] = []
        self._processes: list[ForkProcess] = []
        self.rows: list[dict[str, Any]] = []
        """The metrics of each accelerator, filled by `run`."""

    def __enter__(self) -> Self:
        try:
            for index in range(self.plan.accelerators):
                self._start(index)
            self._receive()  # waits until every process is ready, so that observers do not count the preparations
        except (AcceleratorError, OSError):
            self.__exit__()
            raise
        return self

    def _start(self, index: int) -> None:
        """Start the process of an accelerator; only that process keeps its end of the pipe open."""
        context = multiprocessing.get_context("fork")
        pipe, theirs = context.Pipe()
        with theirs:
            process = context.Process(target=_emulate, args=(self.plan, index, self._meeting, theirs), daemon=True)
            process.start()
        self._pipes.append(pipe)
        self._processes.append(process)

    def __exit__(self, *_: object) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            with suppress(OSError):
                pipe.send(None)
            process.join(0.0 if len(self.rows) < self.plan.accelerators else _GRACE_S)
            process.kill()
            process.join()
            pipe.close()
        self._meeting.close()

    def pids(self) -> list[int]:
        """Return the ids of the processes of the accelerators, which read the data for this process."""
        return [int(process.pid or 0) for process in self._processes]

    def run(self) -> None:
        """Run all steps; the clock starts when the accelerators of all nodes are at the first meeting."""
        among, sentinels = this_rank(), [process.sentinel for process in self._processes]
        among.start()
        is_complete = all(self._meeting.lead(number, sentinels, among) for number in range(self.plan.steps + 1))
        self.rows = self._receive(None if is_complete else 0.0)

    def _receive(self, seconds: float | None = None) -> list[dict[str, Any]]:
        """Return the next message of each accelerator.

        Raises AcceleratorError if the process of an accelerator has ended, or sends no message within `seconds`.
        """
        messages = []
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            if pipe in wait([pipe, process.sentinel], seconds):
                with suppress(EOFError, ConnectionError):  # the process has ended without a message
                    messages.append(pipe.recv())
        if errors := [error for message in messages if (error := message.get("error"))]:
            raise errors[0]
        if len(messages) < len(self._pipes):
            raise AcceleratorError("the process of an accelerator has ended unexpectedly")
        return messages


class _Readers:
    """Threads that read the samples of one accelerator in order, at most `prefetched_batches` batches ahead of a step.

    Each thread reads into its own buffer. The threads end with their process.
    """

    def __init__(self, plan: Plan, batches: Sequence[Sequence[Sample]]) -> None:
        self._plan, self._batches, self.bytes_read = plan, batches, 0
        self._due: SimpleQueue[tuple[int, Sample]] = SimpleQueue()  # batch number and sample to read
        # Batch number, sample that was read, and the moment at which it was read; or the error of a thread.
        self._done: SimpleQueue[tuple[int, Sample, float] | BaseException] = SimpleQueue()
        self._asked = self._taken = 0  # numbers of batches
        self._left = [len(batch) for batch in batches]
        self._complete_s = [0.0] * len(batches)
        largest = max(sample.bytes for batch in batches for sample in batch)
        self._original = np.ones(largest, np.uint8) if plan.from_memory else None
        for _ in range(plan.threads):
            buffer = np.ones(largest, np.uint8)  # writing the buffer now makes the kernel allocate its pages
            threading.Thread(target=self._read, args=(buffer,), daemon=True).start()

    def begin(self) -> None:
        """Start reading the first batches, while the clock is running."""
        for _ in range(self._plan.prefetched_batches):
            self._ask()

    def _ask(self) -> None:
        """Put the samples of the next batch, if a batch is left, into the queue of the reading threads."""
        for sample in self._batches[self._asked] if self._asked < len(self._batches) else ():
            self._due.put((self._asked, sample))
        self._asked += 1

    def next(self) -> float:
        """Wait for the next batch, and return the moment at which the batch was complete."""
        self._ask()
        number, self._taken = self._taken, self._taken + 1
        while self._left[number]:
            done = self._done.get()
            if isinstance(done, BaseException):
                raise done
            batch, sample, done_s = done
            self.bytes_read += 0 if self._plan.from_memory else sample.bytes
            self._left[batch] -= 1
            self._complete_s[batch] = max(self._complete_s[batch], done_s)
        return self._complete_s[number]

    def _read(self, buffer: Any) -> None:
        path, descriptor = None, -1
        try:
            while True:
                batch, sample = self._due.get()
                if self._original is not None:
                    np.copyto(buffer[: sample.bytes], self._original[: sample.bytes])
                else:
                    if sample.path != path:
                        if descriptor >= 0:
                            os.close(descriptor)
                        path, descriptor = sample.path, os.open(sample.path, os.O_RDONLY)
                    _read_whole(descriptor, memoryview(buffer)[: sample.bytes], sample)
                self._done.put((batch, sample, time.perf_counter()))
        except BaseException as error:  # noqa: BLE001 - `next` raises the error in the main thread
            self._done.put(error)


def _read_whole(descriptor: int, buffer: memoryview, sample: Sample) -> None:
    """Read a whole sample into a buffer of the sample's size. Raises OSError if the file ends within the sample."""
    done = 0
    while done < len(buffer):
        count = os.preadv(descriptor, [buffer[done:]], sample.offset + done)
        if not count:
            raise OSError(f"{sample.path} ends at byte {sample.offset + done}, within a sample")
        done += count


class _Pipeline:
    """A tf.data pipeline that reads files in parallel, decodes nothing, and returns batches of strings."""

    def __init__(self, plan: Plan, batches: Sequence[Sequence[Sample]]) -> None:
        tf.config.set_visible_devices([], "GPU")
        for _ in tf.data.Dataset.from_tensor_slices([os.devnull]).map(tf.io.read_file, 1).batch(1).prefetch(1):
            pass  # a first pipeline makes TensorFlow load its code before the clock starts
        names = [os.fsencode(sample.path) for batch in batches for sample in batch]
        data = tf.data.Dataset.from_tensor_slices(tf.constant(names)).map(tf.io.read_file, plan.threads)
        data = data.batch(len(batches[0]), drop_remainder=True)
        options = tf.data.Options()
        options.autotune.enabled = False
        options.threading.private_threadpool_size = plan.threads
        self._data = (data.prefetch(plan.prefetched_batches) if plan.prefetched_batches else data).with_options(options)
        self.bytes_read = 0

    def begin(self) -> None:
        """Start the tf.data pipeline, while the clock is running."""
        self._batches = iter(self._data)

    def next(self) -> float:
        """Wait for the next batch, and return the moment at which tf.data returned the batch."""
        batch = next(self._batches)
        complete_s = time.perf_counter()
        self.bytes_read += int(tf.reduce_sum(tf.strings.length(batch)))
        return complete_s


def _emulate(plan: Plan, index: int, meeting: _Meeting, pipe: Any) -> None:
    """Run the steps of one accelerator, send its metrics, and wait for the parent's message before ending.

    This function is the main function of the accelerator's process.
    """
    die_with_parent()
    sys.setswitchinterval(_SWITCH_S)
    _libc.prctl(_PR_SET_TIMERSLACK, 1)
    own = plan.batches[index :: plan.accelerators]
    source = _Pipeline if plan.engine == "tf" and not plan.from_memory else _Readers
    try:
        batches = source(plan, own)
        pipe.send({})
        row = run_steps(plan, index, meeting, batches)
    except Exception as error:
        text = error_text(error) if isinstance(error, OSError) else str(error)
        has_too_many_files = isinstance(error, OSError) and error.errno == errno.EMFILE
        pipe.send({"error": AcceleratorError(f"accelerator {index}: {text}", MORE_FILES if has_too_many_files else "")})
        raise
    pipe.send({"accelerator": index, **row, "samples": sum(map(len, own)), "bytes_read": batches.bytes_read})
    pipe.recv()  # wait, because the parent reads this process's counters in /proc before the process may end


def run_steps(plan: Plan, index: int, meeting: _Meeting, batches: _Pipeline | _Readers) -> dict[str, Any]:
    """Run all steps of accelerator `index`; return its times in seconds and its utilisation (AU) in percent."""
    loads, computes, meetings, late = [], [], [], []
    waited_s = _waited_s()
    began_s = free_s = meeting.come(index, 0, 0.0)
    batches.begin()
    for number in range(1, plan.steps + 1):
        start_s = time.perf_counter()
        complete_s = batches.next()
        loaded_s = time.perf_counter()
        deadline_s = max(free_s, complete_s) + plan.step_s
        wait_until(deadline_s)
        ended_s = time.perf_counter()
        free_s = meeting.come(index, number, deadline_s)
        met_s = time.perf_counter()
        loads.append(loaded_s - start_s)
        computes.append(ended_s - loaded_s)
        meetings.append(met_s - ended_s)
        late.append(ended_s - deadline_s)
        if number == 1:
            first_s, first_ended_s = free_s, ended_s
    cpu_wait_s = max((end_s - waited_s.get(thread, 0.0) for thread, end_s in _waited_s().items()), default=0.0)
    wall_s = met_s - began_s
    parts = {"startup_s": loads[0], "load_s": sum(loads[1:]), "compute_s": sum(computes), "sync_s": sum(meetings)}
    return {
        **parts,
        "wall_s": wall_s,
        "other_s": max(0.0, wall_s - sum(parts.values())),
        "au_percent": 100 * (plan.steps - 1) * plan.step_s / (met_s - first_s),
        "au_dlio_percent": 100 * sum(computes[1:]) / (met_s - first_ended_s),
        "late_share": sum(late) / plan.steps / plan.step_s,
        "latest_s": max(late),
        "cpu_wait_percent": 100 * cpu_wait_s / wall_s,
        "step_load_s": loads,
        "step_compute_s": computes,
    }


def _waited_s() -> dict[str, float]:
    """Return, for each thread of this process, the seconds that the ready thread waited for a CPU (schedstat)."""
    waited_s = {}
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended, or this kernel has no schedstat
            waited_s[thread.name] = int((thread / "schedstat").read_text().split()[1]) / 1e9
    return waited_s


def wait_until(deadline_s: float) -> None:
    """Wait until `time.perf_counter` reaches `deadline_s`: sleep first, and spend the last 0.2 ms in a busy loop."""
    if (left_s := deadline_s - time.perf_counter() - _SPIN_S) > 0:
        time.sleep(left_s)
    while time.perf_counter() < deadline_s:
        pass
