"""The interface of a benchmark to the other ranks of its run: the ranks meet, exchange values, and sum tensors."""

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from jobs.channel import ClosedError, Message
from jobs.errors import JobError
from jobs.lazy_imports import np, tf
from jobs.model.results import DeviceUse, Run
from jobs.model.work import RankRequest, RunRequest
from jobs.ranks.peers import connect
from jobs.system.layers import has_own_cache

_BOOT = Path("/proc/sys/kernel/random/boot_id")
Shapes = Sequence[tuple[int, ...]]


class RanksError(JobError):
    """Raised if a run cannot continue, because a rank has disconnected, is late, or is at another meeting point."""


class Rank:
    """The single rank of a run with only one rank; its methods wait for no other rank and sum nothing."""

    rank = 0
    size = 1
    sync = "none"
    """How the ranks meet at the end of a step.

    ``none``: the ranks do not meet; ``barrier``: the ranks wait for each other; ``allreduce``: the hub sums tensors;
    ``ring``: TensorFlow sums tensors.
    """
    private_caches = True
    """Whether each rank has its own page cache for the files of the run."""

    @property
    def adds_up(self) -> bool:
        """Return whether tensors are summed over the ranks in each step."""
        return self.sync in {"allreduce", "ring"}

    def share(self, items: Sequence[Any]) -> Sequence[Any]:
        """Return this rank's part of `items`; each item is in the part of exactly one rank."""
        return items[self.rank :: self.size]

    def start(self) -> float:
        """Wait until all ranks are ready, and return `time.perf_counter()` at the start of the run.

        This method is called once per run.
        """
        return time.perf_counter()

    def barrier(self) -> None:
        """Wait until all ranks have called this method."""

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks in the order of ranks; a value must be valid JSON.

        Do not call this method during the timed part of a run.
        """
        return [value]

    def meet(self, tensors: Sequence[Any] = ()) -> list[Any]:
        """Meet the other ranks by the method `sync` at the end of a step.

        Return the tensors summed over all ranks if `sync` sums tensors, else unchanged.
        """
        return list(tensors)

    def end(self) -> None:
        """Wait until all ranks have ended their timed part."""


class JoinedRank(Rank):
    """One of the ranks of a run with several ranks, which meet at a hub (`jobs.ranks.hub`).

    Every method that waits for other ranks raises RanksError if a rank has disconnected or is late.
    """

    def __init__(self, request: RankRequest, folder: Path | None) -> None:
        self.rank, self.size, self.sync = request["rank"], request["size"], request["sync"]
        self._address = request["address"]
        self._group: RankGroup | None = None
        self._folder = folder
        try:
            self._channel = connect(request["hub"], request["port"], request["secret"], request["timeout_s"])
        except ClosedError as error:
            raise RanksError(f"cannot connect to the hub of the ranks: {error}") from error
        self._tell({"rank": self.rank})

    def prepare(self) -> None:
        """Set `private_caches`, and for ``sync=ring`` make the group of ranks that sums tensors.

        Call this method before any other use of TensorFlow.
        """
        caches = self.gather(_page_cache(self._folder))
        self.private_caches = len({str(cache) for cache in caches}) == self.size
        if self.sync == "ring":
            with reserve_port() as number:
                addresses = self.gather(f"{self._address}:{number}")
            self._group = RankGroup(addresses, self.rank)

    def start(self) -> float:
        """Wait until all ranks are ready, and return `time.perf_counter()` at the start of the run.

        This rank then sends its time to the hub at once, so that the hub knows bounds of this rank's start.
        """
        self._meet_at("start")
        start_s, real_s = time.perf_counter(), time.time()
        self._tell({"left": real_s})
        return start_s

    def barrier(self) -> None:
        """Wait until all ranks have called this method."""
        self._meet_at("barrier")

    def gather(self, value: Any) -> list[Any]:
        """Wait for the values of all ranks, and return the values in the order of ranks."""
        values: list[Any] = self._meet_at("gather", value).value["values"]
        return values

    def meet(self, tensors: Sequence[Any] = ()) -> list[Any]:
        """Meet the other ranks by the method `sync` at the end of a step.

        Return the tensors summed over all ranks if `sync` sums tensors, else unchanged.
        """
        if self.sync == "barrier":
            self.barrier()
        if self._group:
            return self._group.sums(tensors)
        return self._sums(tensors) if self.adds_up else list(tensors)

    def end(self) -> None:
        """Wait until all ranks have ended their timed part."""
        self._meet_at("end")

    def leave(self) -> None:
        """Wait until all ranks have finished, because the hub ends the run if a rank disconnects earlier."""
        self._meet_at("leave")

    def close(self) -> None:
        """Close the connection to the hub; the hub then notifies the other ranks."""
        self._channel.close()

    def _sums(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the tensors summed over all ranks by the hub.

        If the tensors have another size in bytes than before, the size is announced to the hub first.
        """
        flat, shapes = pack_tensors(tensors)
        if flat.nbytes != self._channel.payload_longest:
            self._meet_at("sizes", flat.nbytes)
            self._channel.payload_longest = flat.nbytes
        return unpack_tensors(self._meet_at("sum", payload=flat).payload, shapes)

    def _meet_at(self, point: str, value: Any = None, payload: Any = b"") -> Message:
        self._tell({"at": point, "value": value}, payload)
        try:
            answer = self._channel.receive()  # without a time limit, because the hub limits the waiting time
        except ClosedError as error:
            raise RanksError(f"the hub of the ranks has disconnected: {error}") from error
        if "error" in answer.value:
            raise RanksError(answer.value["error"])
        return answer

    def _tell(self, value: dict[str, Any], payload: Any = b"") -> None:
        try:
            self._channel.send(value, payload)
        except (ClosedError, TimeoutError) as error:
            raise RanksError(f"the hub of the ranks has disconnected: {error}") from error


def boot_id() -> str:
    """Return the boot id of the running kernel, which is different on each machine and after each boot.

    If the boot id is unknown, return the name of the node.
    """
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return os.uname().nodename


def _page_cache(folder: Path | None) -> list[Any]:
    """Return a key of the page cache of the files in a folder.

    The keys of two ranks are equal if, and only if, the ranks use the same page cache for these files.
    """
    device = [folder.stat().st_dev] if folder and has_own_cache(folder) else []
    return [boot_id(), *device]


_here: list[Rank] = [Rank()]


def this_rank() -> Rank:
    """Return the rank of this process, which is `Rank()` if the run has only one rank."""
    return _here[-1]


def file_of_rank(file: Path, rank: int) -> Path:
    """Return the path of a rank's own output file; the first rank uses the path `file` itself."""
    return file.with_stem(f"{file.stem}-rank{rank}") if rank else file


@contextmanager
def join_ranks(request: RunRequest) -> Iterator[Rank]:
    """Yield the rank of this process, after it has connected to the other ranks of the run, if there are any.

    At the end, all ranks wait for each other and then disconnect.
    """
    rank_request = request.get("rank")
    if rank_request is None:
        yield Rank()
        return
    among = JoinedRank(rank_request, Path(request["dataset"]) if "dataset" in request else None)
    _here.append(among)
    try:
        among.prepare()
        yield among
        among.leave()
    finally:
        _here.pop()
        among.close()


def pack_tensors(tensors: Sequence[Any]) -> tuple[Any, Shapes]:
    """Return one float32 array with the values of all tensors, one tensor after the other, and the tensors' shapes."""
    arrays = [np.asarray(tensor, np.float32) for tensor in tensors]
    flat = np.concatenate([array.ravel() for array in arrays]) if arrays else np.empty(0, np.float32)
    return flat, [array.shape for array in arrays]


def sum_payloads(payloads: Sequence[memoryview]) -> Any:
    """Return the sum of float32 arrays.

    The arrays are added in the order of `payloads`, because another order could change the rounding.
    """
    total = np.array(np.frombuffer(payloads[0], np.float32))
    for payload in payloads[1:]:
        total += np.frombuffer(payload, np.float32)
    return total


def unpack_tensors(payload: memoryview, shapes: Shapes) -> list[Any]:
    """Split one array, made by `pack_tensors`, into arrays of these shapes."""
    boundaries = np.cumsum([math.prod(shape) for shape in shapes], dtype=np.int64)
    parts = np.split(np.frombuffer(payload, np.float32), boundaries[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)] if shapes else []


@contextmanager
def reserve_port() -> Iterator[int]:
    """Yield the number of a free TCP port, which no other call of this function yields during the ``with`` block.

    Each rank on a machine needs its own port, because TensorFlow listens on all addresses of the machine.
    """
    with socket.socket() as listener:
        listener.bind(("", 0))
        yield listener.getsockname()[1]


class RankGroup:
    """All ranks as a TensorFlow MultiWorkerMirroredStrategy, which sums tensors on the CPUs (``sync=ring``).

    TensorFlow's servers check no secret. Any process that reaches the port of a server can run TensorFlow operations,
    such as ``write_file``, as the user of the job. Therefore ``sync=ring`` is allowed only if the site's file says, by
    ``site.trusted_network=true``, that only the job can reach its nodes.

    Make the group before TensorFlow runs any operation. `addresses` has ``host:port`` of each rank, in the order of
    ranks.
    """

    def __init__(self, addresses: Sequence[str], rank: int) -> None:
        tf.config.set_visible_devices([], "GPU")  # with a visible GPU, the strategy would use NCCL
        task = {"type": "worker", "index": rank}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": list(addresses)}, "task": task})
        self._options = tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation.RING
        )
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=self._options)
        self._sums: Any = tf.function(self._sum_over_ranks, autograph=False)

    def sums(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the tensors summed over all ranks.

        The first call with new shapes takes longer, because TensorFlow compiles a function for these shapes.
        """
        return list(self._sums([tf.convert_to_tensor(tensor) for tensor in tensors]))

    def _sum_over_ranks(self, tensors: list[Any]) -> Any:
        def add(values: list[Any]) -> Any:
            context = tf.distribute.get_replica_context()
            placed = [tf.identity(value) for value in values]  # puts values on a device, unlike arguments
            return context.all_reduce(tf.distribute.ReduceOp.SUM, placed, self._options)

        return self._strategy.run(add, args=(tensors,))


def without_other_ranks(run: Run, own_rank: Rank) -> Run:
    """Return the run after subtracting the other ranks on this machine from the CPU and device use of other processes.

    Without this correction, the other ranks of the run would count as foreign processes that disturb the run.
    """
    keys = ("device", "device_bytes", "device_use", "cpu_s", "readers_cpu_s")
    own_report = {"boot": boot_id(), **{key: run.get(key) for key in keys}}
    saved = [(target["source"], target["bytes"]) for target in run.get("targets", ())]
    reports = own_rank.gather({**own_report, "saved": saved})
    neighbours = [
        report for rank, report in enumerate(reports) if rank != own_rank.rank and report["boot"] == own_report["boot"]
    ]
    return {**run, "other_cpu": _other_cpu(run, neighbours), "device_use": _device_use(run, neighbours)}


def _other_cpu(run: Run, neighbours: Sequence[Mapping[str, Any]]) -> float:
    neighbours_s: float = sum(report["cpu_s"] + (report["readers_cpu_s"] or 0.0) for report in neighbours)
    return max(0.0, run["other_cpu"] - neighbours_s / run["elapsed_s"])


def _device_use(run: Run, neighbours: Sequence[Mapping[str, Any]]) -> list[DeviceUse] | None:
    """Return the device use in which the requests of all ranks on this machine count as the run's own requests.

    Return None if a rank does not know its own device use.
    """
    sharing = [report for report in neighbours if report["device"] == run["device"]]
    if run["device_use"] is None or None in [report["device_use"] for report in sharing]:
        return None
    first, *lower = run["device_use"]  # the counts of lower devices need no correction
    disk = f"dsk/{run['device']}"  # the name that `jobs.observe.trace` gives to the device of the snapshots
    saved_bytes: int = sum(size for report in neighbours for source, size in report["saved"] if source == disk)
    written_bytes = first["own_written_bytes"]
    own_use = {
        **{
            key: first[key] + sum(report["device_use"][0][key] for report in sharing)
            for key in ("own_reads", "own_read_bytes")
        },
        "own_written_bytes": (written_bytes or 0) + saved_bytes if saved_bytes else written_bytes,
    }
    return [cast("DeviceUse", {**first, **own_use}), *lower]
