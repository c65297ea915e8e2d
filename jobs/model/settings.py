"""The settings of a cell, each declared once: type, range, unit, meaning and default.

The configuration, its help and its errors, the options of a run by hand, and the types of stored values are made from
these declarations. The keys of a benchmark are declared in its module. Values are plain mappings everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, get_type_hints

from msgspec import Meta, field

from jobs.model.declared import MISSING, Keys, Setting

Node = dict[str, Any]
"""One node of the configuration as plain values; its keys depend on the choice."""

Count = Annotated[int, Meta(ge=1, le=1024)]
Steps = Annotated[int, Meta(ge=1, le=10**9)]
Files = Annotated[int, Meta(ge=1, le=10_000_000)]
Pixels = Annotated[int, Meta(ge=16, le=16_384)]
Seed = Annotated[int, Meta(ge=0, le=2**31 - 1)]
StripeCount = Annotated[int, Meta(ge=-1, le=2000)]  # lfs-setstripe(1): at most 2000 OSTs, -1 for all
StripeMib = Annotated[int, Meta(ge=1, le=4095)]  # a stripe of less than 4 GiB


class NodeWithName(Keys):
    """No keys."""

    name: Annotated[str, Setting("name of the choice, as it appears in cell ids and messages")] = MISSING


class Common(Keys):
    """Settings that can change a result. These keys and the choices of the groups make a cell."""

    threads: Annotated[
        Count, Setting("files that are read and decoded in parallel; benchmark=baseline: parallel readers")
    ] = 4
    batch_size: Annotated[
        int, Meta(ge=1, le=65_536), Setting("images per batch; default of benchmark=climate: 1", unit="images")
    ] = 64
    prefetch: Annotated[
        int,
        Meta(ge=0, le=1024),
        Setting(
            "batches that are prepared before the step asks for them; 0: none; benchmark=climate: 16 images by default",
            unit="batches",
        ),
    ] = 0
    iterations: Annotated[Steps | None, Setting("length of a run; null: each file is read once", unit="batches")] = None
    seed: Annotated[Seed, Setting("seed of the random order of the files, and of the random numbers of a training")] = 0
    cache: Annotated[
        Literal["cold", "warm", "as_is"],
        Setting(
            "page cache before a run; cold: it has none of the files; warm: it has all of them; both are proved;"
            " as_is: it is not changed"
        ),
    ] = "cold"
    reader: Annotated[
        Literal["h5py_threads", "h5py_pool", "h5py_shared", "offsets"],
        Setting(
            "how HDF5 files are read; h5py_threads: by threads of the pipeline; h5py_pool: by processes that send"
            " pickled arrays; h5py_shared: by processes that write into shared memory; offsets: without the HDF5"
            " library (docs/how-to/hdf5.md)"
        ),
    ] = "h5py_threads"
    staging: Annotated[
        Literal["none", "smallest", "largest", "advised", "all"],
        Setting(
            "files that are read from the copies that `stage apply` made; none: no copies are read; smallest,"
            " largest: the files that fit, by size; advised: the files that save the most time; all: every file"
            " (docs/how-to/staging.md)"
        ),
    ] = "none"
    nodes: Annotated[
        Count,
        Setting(
            "nodes of a run, with one rank per node; on one machine, a process stands for a node"
            " (docs/how-to/several-nodes.md)",
            unit="nodes",
        ),
    ] = 1
    sync: Annotated[
        Literal["none", "barrier", "allreduce", "ring"],
        Setting(
            "what ranks do together after each step; none: nothing; barrier: wait for each other; allreduce: add up"
            " gradients on the first node; ring: add up gradients with TensorFlow's servers (needs"
            " site.trusted_network=true)"
        ),
    ] = "none"


class Profile(Keys):
    """Profile of the calls of each run. The file `profile-<n>.npz` is beside the record (docs/how-to/profile.md).

    A profile slows a run down a little, so a cell with a profile differs from the cell without one. A baseline is not
    profiled, because its engine is another program.
    """

    posix: Annotated[
        Literal["none", "counters", "trace"],
        Setting(
            "what is recorded of the POSIX calls; none: nothing; counters: Darshan's counters per file; trace: every"
            " call"
        ),
    ] = "none"
    tensorflow: Annotated[
        str,
        Setting(
            "steps that TensorFlow's own profiler records: none, all, or a range such as 5-15 (docs/how-to/traces.md)"
        ),
    ] = "none"
    every: Annotated[
        Steps | None,
        Setting(
            "length of one part of the profile, for profile.posix=trace; null: the profile is one part", unit="batches"
        ),
    ] = None
    compare: Annotated[
        bool,
        Setting(
            "whether each measured run is paired with a run without the profile, to measure what the profile costs",
            cell=False,
        ),
    ] = False


class Accelerator(NodeWithName):
    """Device that computes the steps of a training."""

    step_s: Annotated[
        Annotated[float, Meta(ge=0, le=3600)] | None,
        Setting("duration of a step of accelerator=emulated; null: the other accelerators", unit="seconds"),
    ] = None


class DefinedAccelerator(NodeWithName):
    """Emulated accelerator of `feed`: size of samples, batch, time of a step (docs/reference/feed.md)."""

    sample_bytes: Annotated[int, Meta(ge=1, le=10**12), Setting("mean size of a sample", unit="bytes")] = MISSING
    batch: Annotated[int, Meta(ge=1, le=65_536), Setting("samples that a step takes", unit="samples")] = MISSING
    step_s: Annotated[float, Meta(ge=0, le=3600), Setting("duration of a step, at least 0.001", unit="seconds")] = (
        MISSING
    )
    sample_sd: Annotated[
        int, Meta(ge=0, le=10**12), Setting("standard deviation of the sizes of samples", unit="bytes")
    ] = 0
    samples_per_file: Annotated[int, Meta(ge=1, le=10**9), Setting("samples in a file", unit="samples")] = 1
    read_threads: Annotated[Count, Setting("threads that read for one accelerator; default of `threads`")] = 4
    minimum: Annotated[
        float, Meta(ge=0.01, le=1), Setting("smallest share of the time for which a fed accelerator computes")
    ] = 0.9
    source: Annotated[str, Setting("file that the definition comes from, with its commit", cell=False)] = ""


class ImageDataset(NodeWithName):
    """Generated images."""

    files: Annotated[Files, Setting("number of images")] = MISSING
    median_bytes: Annotated[int, Meta(ge=1_000, le=100_000_000), Setting("median size of a file", unit="bytes")] = (
        MISSING
    )
    sigma: Annotated[
        float,
        Meta(ge=0, le=2),
        Setting("standard deviation of ln(file size): sizes are log-normal, so sigma is sqrt(2 ln(mean / median))"),
    ] = MISSING
    width: Annotated[Pixels, Setting("median width of an image", unit="pixels")] = MISSING
    height: Annotated[Pixels, Setting("median height of an image", unit="pixels")] = MISSING
    classes: Annotated[int, Meta(ge=1, le=100_000), Setting("number of classes; each class is a sub-folder")] = MISSING
    seed: Annotated[Seed, Setting("seed of the content of the files")] = 0


class ExecutableDataset(NodeWithName):
    """Generated files that are no images."""

    files: Annotated[Files, Setting("number of files")] = MISSING
    median_bytes: Annotated[
        int, Meta(ge=1_000, le=100_000_000), Setting("median size of a file; all sizes scale with it", unit="bytes")
    ] = MISSING
    classes: Annotated[int, Meta(ge=1, le=1_000), Setting("number of classes; each class is a sub-folder")] = MISSING
    seed: Annotated[Seed, Setting("seed of the content of the files")] = 0


class SampleDataset(NodeWithName):
    """Generated files of random bytes, with the samples of accelerators that `feed` emulates."""

    files: Annotated[Files, Setting("number of files")] = MISSING
    sample_bytes: Annotated[int, Meta(ge=1, le=10**12), Setting("mean size of a sample", unit="bytes")] = MISSING
    sample_sd: Annotated[
        int, Meta(ge=0, le=10**12), Setting("standard deviation of the sizes of samples", unit="bytes")
    ] = MISSING
    samples_per_file: Annotated[int, Meta(ge=1, le=10**9), Setting("samples in a file", unit="samples")] = MISSING
    seed: Annotated[Seed, Setting("seed of the content of the files")] = 0


class HepDataset(NodeWithName):
    """Generated HDF5 files of jet images, as in HEPCNNB."""

    train_files: Annotated[Files, Setting("number of training files")] = MISSING
    validation_files: Annotated[int, Meta(ge=0, le=10_000_000), Setting("number of validation files")] = MISSING
    samples: Annotated[
        int,
        Meta(ge=1, le=100_000),
        Setting("samples per training file; a validation file has 94/709 of them", unit="samples"),
    ] = MISSING
    image_size: Annotated[int, Meta(ge=1, le=16_384), Setting("width and height of an image", unit="pixels")] = 224
    seed: Annotated[Seed, Setting("seed of the content of the files")] = 0


class ClimateDataset(NodeWithName):
    """Generated HDF5 files of a climate model, as in CDB."""

    files: Annotated[Files, Setting("number of files, with the file of statistics (stats.h5)")] = MISSING
    height: Annotated[Pixels, Setting("height of a field", unit="pixels")] = MISSING
    width: Annotated[Pixels, Setting("width of a field", unit="pixels")] = MISSING
    seed: Annotated[Seed, Setting("seed of the content of the files")] = 0


class FolderDataset(NodeWithName):
    """Your own images or HDF5 files; of benchmark=command files of any kind."""

    path: Annotated[str, Setting("folder of your files; of benchmark=command also a single file")] = MISSING
    list: Annotated[
        str | None,
        Setting(
            "file with the names of the files that count, one per line, relative to dataset.path (benchmark=command);"
            " null: every file below dataset.path"
        ),
    ] = None
    hdf5: Annotated[
        str | None,
        Setting(
            "data set that is read from each HDF5 file (.h5, .hdf5, .nc), for example climate/data; null: the files"
            " are images"
        ),
    ] = None


class Access(NodeWithName):
    """What prevents jobs from using a storage at the same time. It does not change the id of a cell."""

    shared: Annotated[
        bool,
        Setting("whether all nodes use the same file system or object store, so that jobs share its speed", cell=False),
    ] = True
    exclusive: Annotated[
        Literal["license", "singleton", "lock", "none"],
        Setting(
            "what prevents two jobs from using the storage at the same time; license: a Slurm licence; singleton: one"
            " Slurm job name per storage; lock: a lock file; none: nothing",
            cell=False,
        ),
    ] = "lock"
    license: Annotated[
        str | None,
        Setting("Slurm licence that each job asks for with exclusive=license, for example lustre:1", cell=False),
    ] = None


class Storage(Access):
    """Files in a folder of a file system."""

    root: Annotated[
        str | None, Setting("folder of the storage; generated datasets are in its sub-folder `datasets`")
    ] = None
    stripe_count: Annotated[
        StripeCount | None,
        Setting("number of Lustre OSTs per generated file; -1: all; null: default of the file system"),
    ] = None
    stripe_size_mib: Annotated[
        StripeMib | None, Setting("size of a Lustre stripe; null: default of the file system", unit="MiB")
    ] = None
    node_root: Annotated[
        str | None,
        Setting("folder of the storage as rank {rank} sees it, for emulated nodes; null: storage.root for every rank"),
    ] = None


class ObjectStorage(Access):
    """Objects in a bucket of an S3 store (docs/how-to/s3.md)."""

    kind: Annotated[
        Literal["posix", "s3"], Setting("kind of storage; posix: files in a folder; s3: objects in a bucket")
    ] = "s3"
    endpoint: Annotated[
        str | None,
        Setting("address of the object store: http://HOST:PORT or https://HOST; an https certificate is verified"),
    ] = None
    bucket: Annotated[str | None, Setting("bucket, which must exist")] = None
    prefix: Annotated[str, Setting("prefix of all object keys; generated datasets are below PREFIX/datasets")] = ""
    region: Annotated[str, Setting("region of the bucket")] = "us-east-1"
    engine: Annotated[
        Literal["threads", "async"],
        Setting(
            "how objects are requested; threads: each pipeline thread requests its own object; async: one event loop"
            " requests objects in advance"
        ),
    ] = "threads"
    concurrency: Annotated[
        Count | None, Setting("requests in flight of engine=async; null: as many as `threads`", unit="requests")
    ] = None
    timeout_s: Annotated[
        float,
        Meta(ge=0.1, le=3600),
        Setting("time after which an incomplete request is sent again", unit="seconds"),
    ] = 30.0
    retries: Annotated[
        int,
        Meta(ge=0, le=10_000),
        Setting("repetitions of a failing request before the run fails; the record has their number"),
    ] = 60
    backoff_s: Annotated[
        float, Meta(ge=0.05, le=600), Setting("longest pause before a request is repeated", unit="seconds")
    ] = 1.0
    checksum: Annotated[
        bool,
        Setting("whether the SHA-256 of each generated object is verified during the run, which costs processor time"),
    ] = False
    device: Annotated[
        str | None,
        Setting(
            "disk of the object store's servers, or a folder on it, if it is on this machine; needed to prove a cold"
            " run",
            cell=False,
        ),
    ] = None


class Checkpoint(NodeWithName):
    """When and how snapshots are saved, on every kind of target."""

    every: Annotated[
        Steps,
        Setting(
            "steps between two snapshots; a snapshot has all variables, with those of the optimizer",
            unit="steps",
            smoke=2,
        ),
    ] = 20
    keep: Annotated[
        int,
        Meta(ge=1, le=1000),
        Setting("number of snapshots that are kept on each storage; older ones are deleted", unit="snapshots"),
    ] = 5
    mode: Annotated[
        Literal["sync", "async"],
        Setting(
            "what training waits for; sync: the snapshot is durable on the storage (of a burst buffer: the fast one);"
            " async: the snapshot is copied in memory"
        ),
    ] = "sync"
    in_flight: Annotated[
        int,
        Meta(ge=1, le=64),
        Setting("copies in memory with mode=async; training waits if all of them are being written", unit="copies"),
    ] = 1


class DirectCheckpoint(Checkpoint):
    """Snapshots on one storage."""

    root: Annotated[
        str | None, Setting("folder of the storage; during a run, snapshots are in its sub-folder `checkpoints`")
    ] = None


class BufferSide(NodeWithName):
    """One of the two storages of a burst buffer."""

    root: Annotated[
        str | None,
        Setting(
            "folder of the storage; the slow storage can also be a bucket, https://HOST/BUCKET/PREFIX"
            " (docs/how-to/s3.md)"
        ),
    ] = None


class BufferedCheckpoint(Checkpoint):
    """Snapshots on a fast storage. A separate process copies them to a slow one (paper III.C)."""

    fast: BufferSide = field(default_factory=BufferSide)
    slow: BufferSide = field(default_factory=BufferSide)
    bandwidth_mb_per_s: Annotated[
        Annotated[float, Meta(ge=0.001, le=1e6)] | None,
        Setting("limit on the speed of the copy to the slow storage; null: no limit", unit="MB/s"),
    ] = None
    streams: Annotated[int, Meta(ge=1, le=256), Setting("threads that copy to the slow storage", unit="threads")] = 1


EVERY = ("benchmark", "dataset", "storage", *Common.__struct_fields__, "accelerator", "checkpoint", "profile")
"""The settings that can change the result of a benchmark."""

if TYPE_CHECKING:
    Settings = Node
else:  # stored values have the declared types
    _TYPES = dict.fromkeys(EVERY, Node) | get_type_hints(Common, include_extras=True)
    Settings = TypedDict("Settings", _TYPES, total=False)
Settings.__doc__ = "The settings of a cell: those of `EVERY` that act on it."


def flat_items(node: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value of a nested mapping with its dotted key."""
    for key, value in node.items():
        if isinstance(value, dict):
            yield from flat_items(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
