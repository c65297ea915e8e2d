"""The processes of the emulated accelerators of one node: their readers, their steps, and where they meet.

A step waits for its batch, computes until a deadline, and meets the others. The deadline is the moment at which the
accelerator was free and had its batch, plus the time of the step. It is free when the last of all deadlines of the step
before is over: a late batch lengthens the run, and a late wake-up does not. Where nodes meet, it is free when the hub
lets go.

What counts: the first step (its waiting contains what the readers need to start) is left out of the utilisation, as in
DLIO; its waiting is the part ``startup_s`` of the time. DLIO's figure begins where an accelerator ended its first step,
and so charges those that were fast there; ours begins where all were free.
"""

from __future__ import annotations

import ctypes
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
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, Self

from jobs.errors import JobError
from jobs.fork_server import die_with_parent
from jobs.lazy_imports import np, tf
from jobs.ranks import this_rank
from jobs.ranks.rank import Rank

_SPIN_S = 0.0002  # before a deadline in which a process does not sleep: a wake-up takes about 0.1 ms
_SWITCH_S = 0.0002  # Python's own threads give way to one that has been woken after so long
_GRACE_S = 5.0  # in which a process ends
_PR_SET_TIMERSLACK = 29  # prctl(2)
_libc = ctypes.CDLL(None, use_errno=True)


class AcceleratorError(JobError):
    """Raised when the process of an accelerator has failed; its own error is in the log of the run."""


class Sample(NamedTuple):
    """A sample: the file that it is in, its first byte there and its bytes."""

    path: Path
    offset: int
    bytes: int


@dataclass(frozen=True)
class Plan:
    """The work of the accelerators of a node; `batches`: one per accelerator and step, in the order of the steps."""

    accelerators: int
    step_s: float
    threads: int
    ahead: int
    engine: str
    from_memory: bool
    batches: Sequence[Sequence[Sample]]

    @property
    def steps(self) -> int:
        """Return the number of steps of each accelerator."""
        return len(self.batches) // self.accelerators


class _Meeting:
    """The place where the accelerators of a node meet: the parent counts them, and lets all go at once.

    Two descriptors take turns, so that nobody can take the word that another one has still to take.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._came = os.eventfd(0)
        self._go = [os.eventfd(0, os.EFD_SEMAPHORE) for _ in range(2)]
        self.times = np.frombuffer(mmap.mmap(-1, 8 * (size + 2)), np.float64)  # deadlines; when all are free, by turns

    def come(self, index: int, number: int, deadline_s: float) -> float:
        """Wait for the others at meeting `number`; return the moment at which all are free."""
        self.times[index] = deadline_s
        os.eventfd_write(self._came, 1)
        os.eventfd_read(self._go[number % 2])
        return float(self.times[self.size + number % 2])

    def lead(self, number: int, sentinels: Sequence[int], among: Rank) -> bool:
        """Wait until all have come, meet the other nodes, and let all go; return False if one has ended instead."""
        count, poll = 0, select.poll()
        for each in (self._came, *sentinels):
            poll.register(each, select.POLLIN)
        while count < self.size:
            ready = [each for each, _ in poll.poll()]
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
        """Close the descriptors."""
        for each in (self._came, *self._go):
            os.close(each)


class Accelerators:
    """The processes of all accelerators of this node, which end when the context is left."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._meeting = _Meeting(plan.accelerators)
        context = multiprocessing.get_context("fork")
        pipes = [context.Pipe() for _ in range(plan.accelerators)]
        self._pipes = [ours for ours, _ in pipes]
        self._processes = [
            context.Process(target=_emulate, args=(plan, index, self._meeting, theirs), daemon=True)
            for index, (_, theirs) in enumerate(pipes)
        ]
        self.rows: list[dict[str, Any]] = []
        """The times of each accelerator, after `run`."""

    def __enter__(self) -> Self:
        for each in self._processes:
            each.start()
        try:
            self._receive()  # that they are ready: what follows is watched
        except AcceleratorError:
            self.__exit__()
            raise
        return self

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
        """Return the numbers of the processes, which read for this one."""
        return [int(each.pid or 0) for each in self._processes]

    def run(self) -> None:
        """Run all steps; the clock of all accelerators starts when all of them, on all nodes, are there."""
        among, sentinels = this_rank(), [each.sentinel for each in self._processes]
        among.start()
        well = all(self._meeting.lead(number, sentinels, among) for number in range(self.plan.steps + 1))
        self.rows = self._receive(None if well else 0.0)

    def _receive(self, seconds: float | None = None) -> list[dict[str, Any]]:
        """Return the next message of each accelerator. Raises AcceleratorError if one has ended, or is silent."""
        messages = []
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            if pipe in wait([pipe, process.sentinel], seconds):
                messages.append(pipe.recv())
        errors = [error for each in messages if (error := each.get("error"))]
        if errors or len(messages) < len(self._pipes):
            raise AcceleratorError(errors[0] if errors else "the process of an accelerator has ended")
        return messages


class _Readers:
    """Threads that read samples in order, each into a buffer of its own, at most `ahead` batches early.

    They end with their process.
    """

    def __init__(self, plan: Plan, batches: Sequence[Sequence[Sample]]) -> None:
        self._plan, self._batches, self.bytes_read = plan, batches, 0
        self._due: SimpleQueue[tuple[int, Sample]] = SimpleQueue()  # with the number of its batch
        self._done: SimpleQueue[tuple[int, Sample, float] | BaseException] = SimpleQueue()  # and when it was read
        self._asked = self._taken = 0  # batches
        self._left = [len(batch) for batch in batches]
        self._complete_s = [0.0] * len(batches)
        largest = max(sample.bytes for batch in batches for sample in batch)
        self._original = np.ones(largest, np.uint8) if plan.from_memory else None
        for _ in range(plan.threads):
            buffer = np.ones(largest, np.uint8)  # touched, so that it is in memory
            threading.Thread(target=self._read, args=(buffer,), daemon=True).start()

    def begin(self) -> None:
        """Begin to read: the clock runs."""
        for _ in range(self._plan.ahead):
            self._ask()

    def _ask(self) -> None:
        """Let the readers have the next batch, if there is one."""
        for sample in self._batches[self._asked] if self._asked < len(self._batches) else ():
            self._due.put((self._asked, sample))
        self._asked += 1

    def next(self) -> float:
        """Wait for the next batch; return when it was complete."""
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
        except BaseException as error:  # noqa: BLE001 - the accelerator raises it
            self._done.put(error)


def _read_whole(descriptor: int, buffer: memoryview, sample: Sample) -> None:
    """Read a sample into a buffer of its size. Raises OSError if the file is shorter."""
    done = 0
    while done < len(buffer):
        count = os.preadv(descriptor, [buffer[done:]], sample.offset + done)
        if not count:
            raise OSError(f"{sample.path} ends at byte {sample.offset + done}")
        done += count


class _Pipeline:
    """The samples of batches by tf.data: files are read by parallel calls, and batched as texts; nothing is decoded."""

    def __init__(self, plan: Plan, batches: Sequence[Sequence[Sample]]) -> None:
        tf.config.set_visible_devices([], "GPU")
        for _ in tf.data.Dataset.from_tensor_slices([os.devnull]).map(tf.io.read_file, 1).batch(1).prefetch(1):
            pass  # what TensorFlow loads at its first use
        names = [os.fsencode(sample.path) for batch in batches for sample in batch]
        data = tf.data.Dataset.from_tensor_slices(tf.constant(names)).map(tf.io.read_file, plan.threads)
        data = data.batch(len(batches[0]), drop_remainder=True)
        options = tf.data.Options()
        options.autotune.enabled = False
        options.threading.private_threadpool_size = plan.threads
        self._data = (data.prefetch(plan.ahead) if plan.ahead else data).with_options(options)
        self.bytes_read = 0

    def begin(self) -> None:
        """Begin to read: the clock runs."""
        self._batches = iter(self._data)

    def next(self) -> float:
        """Wait for the next batch; return when it was handed over."""
        batch = next(self._batches)
        complete_s = time.perf_counter()
        self.bytes_read += int(tf.reduce_sum(tf.strings.length(batch)))
        return complete_s


def _emulate(plan: Plan, index: int, meeting: _Meeting, pipe: Any) -> None:
    """Run the steps of one accelerator and send its times; ends when the parent says so."""
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
        pipe.send({"error": f"accelerator {index}: {error}"})
        raise
    pipe.send({"accelerator": index, **row, "samples": sum(map(len, own)), "bytes_read": batches.bytes_read})
    pipe.recv()  # the parent reads the counters of this process before


def run_steps(plan: Plan, index: int, meeting: _Meeting, batches: _Pipeline | _Readers) -> dict[str, Any]:
    """Run all steps; return the times of the accelerator in seconds and its utilisation in percent."""
    loads, computes, meetings, late = [], [], [], []
    waited_s = _waited_s()
    began_s = free_s = meeting.come(index, 0, 0.0)
    batches.begin()
    for number in range(1, plan.steps + 1):
        asked_s = time.perf_counter()
        complete_s = batches.next()
        loaded_s = time.perf_counter()
        deadline_s = max(free_s, complete_s) + plan.step_s
        wait_until(deadline_s)
        ended_s = time.perf_counter()
        free_s = meeting.come(index, number, deadline_s)
        met_s = time.perf_counter()
        loads.append(loaded_s - asked_s)
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
    """Return by thread of this process for how many seconds it was ready and had no processor (proc(5), schedstat)."""
    waited_s = {}
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended, or this kernel keeps no account
            waited_s[thread.name] = int((thread / "schedstat").read_text().split()[1]) / 1e9
    return waited_s


def wait_until(deadline_s: float) -> None:
    """Wait until a moment of `time.perf_counter`: asleep, and awake for the last moment."""
    if (left_s := deadline_s - time.perf_counter() - _SPIN_S) > 0:
        time.sleep(left_s)
    while time.perf_counter() < deadline_s:
        pass
