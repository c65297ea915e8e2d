"""A benchmark's interface to the other ranks of its run: meetings and exchange of values."""

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
    """Raised if the ranks of a run cannot go on: one has gone, is late, or is at another meeting point."""


class Rank:
    """The only rank of its run; it waits for no other rank and sums nothing."""

    rank = 0
    size = 1
    sync = "none"
    """How ranks meet at the end of a step: ``none``, ``barrier``, ``allreduce`` (by the hub), ``ring`` (TensorFlow)."""
    private_caches = True
    """Whether each rank has a page cache of its own."""

    @property
    def adds_up(self) -> bool:
        """Return whether a step sums tensors over the ranks."""
        return self.sync in {"allreduce", "ring"}

    def share(self, items: Sequence[Any]) -> Sequence[Any]:
        """Return this rank's part of `items`; the parts of all ranks are disjoint, and together they are all items."""
        return items[self.rank :: self.size]

    def start(self) -> float:
        """Wait for all ranks; return `time.perf_counter()` at the start of the run. Called once."""
        return time.perf_counter()

    def barrier(self) -> None:
        """Wait until all ranks have called this."""

    def gather(self, value: Any) -> list[Any]:
        """Return the values (JSON) of all ranks in the order of ranks; not to be called during the timed part."""
        return [value]

    def meet(self, tensors: Sequence[Any] = ()) -> list[Any]:
        """Meet the other ranks by the method ``sync``; return the tensors, summed over the ranks if it does so."""
        return list(tensors)

    def end(self) -> None:
        """Wait until all ranks have ended their timed part."""


class JoinedRank(Rank):
    """One of several ranks; they meet at a hub (`jobs.ranks.hub`), which answers when all ranks have come.

    Every method that waits raises RanksError if another rank has gone or comes too late.
    """

    def __init__(self, request: RankRequest, folder: Path | None) -> None:
        self.rank, self.size, self.sync = request["rank"], request["size"], request["sync"]
        self._address = request["address"]
        self._group: RankGroup | None = None
        self._folder = folder
        try:
            self._channel = connect(request["hub"], request["port"], request["secret"], request["timeout_s"])
        except ClosedError as error:
            raise RanksError(f"the hub of the ranks: {error}") from error
        self._tell({"rank": self.rank})

    def prepare(self) -> None:
        """Set `private_caches`; for ``ring`` make the group that sums tensors, before any other use of TensorFlow."""
        caches = self.gather(_page_cache(self._folder))
        self.private_caches = len({str(cache) for cache in caches}) == self.size
        if self.sync == "ring":
            with reserve_port() as number:
                addresses = self.gather(f"{self._address}:{number}")
            self._group = RankGroup(addresses, self.rank)

    def start(self) -> float:
        """Wait for all ranks; return the start of the run. The hub is notified at once, to bound the start."""
        self._meet_at("start")
        start_s, real_s = time.perf_counter(), time.time()
        self._tell({"left": real_s})
        return start_s

    def barrier(self) -> None:
        """Wait until all ranks have called this."""
        self._meet_at("barrier")

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks in the order of ranks."""
        values: list[Any] = self._meet_at("gather", value).value["values"]
        return values

    def meet(self, tensors: Sequence[Any] = ()) -> list[Any]:
        """Meet the other ranks at the end of a step; return the tensors, summed if ``sync`` sums them."""
        if self.sync == "barrier":
            self.barrier()
        if self._group:
            return self._group.sums(tensors)
        return self._sums(tensors) if self.adds_up else list(tensors)

    def end(self) -> None:
        """Wait until the clocks of all ranks have stopped."""
        self._meet_at("end")

    def leave(self) -> None:
        """Wait until all ranks have finished, because a rank that leaves early would stop the others."""
        self._meet_at("leave")

    def close(self) -> None:
        """Close the connection; the hub notifies the others."""
        self._channel.close()

    def _sums(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the tensors summed by the hub; a new size in bytes is first announced to the hub."""
        flat, shapes = pack_tensors(tensors)
        if flat.nbytes != self._channel.payload_longest:
            self._meet_at("sizes", flat.nbytes)
            self._channel.payload_longest = flat.nbytes
        return unpack_tensors(self._meet_at("sum", payload=flat).payload, shapes)

    def _meet_at(self, point: str, value: Any = None, payload: Any = b"") -> Message:
        self._tell({"at": point, "value": value}, payload)
        try:
            answer = self._channel.receive()  # the hub answers in time, or closes the connection
        except ClosedError as error:
            raise RanksError(f"the hub of the ranks has gone: {error}") from error
        if "error" in answer.value:
            raise RanksError(answer.value["error"])
        return answer

    def _tell(self, value: dict[str, Any], payload: Any = b"") -> None:
        try:
            self._channel.send(value, payload)
        except (ClosedError, TimeoutError) as error:
            raise RanksError(f"the hub of the ranks has gone: {error}") from error


def boot_id() -> str:
    """Return the boot id, which only processes of one running kernel share; the name of the node if it is unknown."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return os.uname().nodename


def _page_cache(folder: Path | None) -> list[Any]:
    """Return a key that two ranks share if and only if they share the page cache of the files of a folder."""
    device = [folder.stat().st_dev] if folder and has_own_cache(folder) else []
    return [boot_id(), *device]


_here: list[Rank] = [Rank()]


def this_rank() -> Rank:
    """Return the rank of this process in its run."""
    return _here[-1]


@contextmanager
def join_ranks(request: RunRequest) -> Iterator[Rank]:
    """Yield this process's rank after it has joined the others, if any; at the end all ranks leave together."""
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
    """Return one float32 array of all tensors, one after the other, and the shapes of the tensors."""
    arrays = [np.asarray(tensor, np.float32) for tensor in tensors]
    flat = np.concatenate([array.ravel() for array in arrays]) if arrays else np.empty(0, np.float32)
    return flat, [array.shape for array in arrays]


def sum_payloads(payloads: Sequence[memoryview]) -> Any:
    """Return the sum of float32 arrays, added in the given order, so that the result is always the same."""
    total = np.array(np.frombuffer(payloads[0], np.float32))
    for payload in payloads[1:]:
        total += np.frombuffer(payload, np.float32)
    return total


def unpack_tensors(payload: memoryview, shapes: Shapes) -> list[Any]:
    """Return the arrays of these shapes from one array that `pack_tensors` made."""
    boundaries = np.cumsum([math.prod(shape) for shape in shapes], dtype=np.int64)
    parts = np.split(np.frombuffer(payload, np.float32), boundaries[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)] if shapes else []


@contextmanager
def reserve_port() -> Iterator[int]:
    """Yield a free TCP port, which no other call of this function gets during the block.

    TensorFlow listens on all addresses of a machine, so each rank on one machine needs its own port.
    """
    with socket.socket() as listener:
        listener.bind(("", 0))
        yield listener.getsockname()[1]


class RankGroup:
    """The ranks as a TensorFlow MultiWorkerMirroredStrategy on their processors: ``sync=ring``.

    Its servers need no secret: any process that reaches a server's port can run operations (also ``write_file``) as the
    user of the job. So it is used only if the site's file declares that only the job reaches its nodes
    (``site.trusted_network``).

    It must be made before TensorFlow runs any operation. `addresses`: ``host:port`` of all ranks, in their order.
    """

    def __init__(self, addresses: Sequence[str], rank: int) -> None:
        tf.config.set_visible_devices([], "GPU")  # with a visible GPU it would use NCCL
        task = {"type": "worker", "index": rank}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": list(addresses)}, "task": task})
        self._options = tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation.RING
        )
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=self._options)
        self._sums: Any = tf.function(self._sum_over_ranks, autograph=False)

    def sums(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the tensors summed over all ranks; the first call with new shapes compiles and takes longer."""
        return list(self._sums([tf.convert_to_tensor(tensor) for tensor in tensors]))

    def _sum_over_ranks(self, tensors: list[Any]) -> Any:
        def add(values: list[Any]) -> Any:
            context = tf.distribute.get_replica_context()
            placed = [tf.identity(value) for value in values]  # on a device, unlike the arguments of a function
            return context.all_reduce(tf.distribute.ReduceOp.SUM, placed, self._options)

        return self._strategy.run(add, args=(tensors,))


def without_other_ranks(run: Run, own_rank: Rank) -> Run:
    """Return a run whose numbers of other processes' CPU and device use exclude the other ranks on this machine."""
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
    """Return the device use with the requests of all ranks as own requests; None if a rank does not know its own."""
    sharing = [report for report in neighbours if report["device"] == run["device"]]
    if run["device_use"] is None or None in [report["device_use"] for report in sharing]:
        return None
    first, *lower = run["device_use"]  # lower devices count all requests anyway
    disk = f"dsk/{run['device']}"  # the name of the snapshots' device in `jobs.observe.trace`
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
