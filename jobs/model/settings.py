"""Declare the settings of a cell: the type, range, unit, meaning and default of every setting.

The configuration, the help texts, the error messages, the command-line options and the types of stored values are made
from the declarations in this module. The module of a benchmark declares the settings of that benchmark. The program
stores the values of settings in plain dictionaries, not in instances of the classes below.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, get_type_hints

from msgspec import Meta, field

from jobs.model.declared import MISSING, Keys, Setting

Node = dict[str, Any]
"""A group of settings (for example ``storage``) as a plain dictionary; the keys depend on the choice for the group."""

Count = Annotated[int, Meta(ge=1, le=1024)]
Steps = Annotated[int, Meta(ge=1, le=10**9)]
Files = Annotated[int, Meta(ge=1, le=10_000_000)]
Pixels = Annotated[int, Meta(ge=16, le=16_384)]
Seed = Annotated[int, Meta(ge=0, le=2**31 - 1)]
StripeCount = Annotated[int, Meta(ge=-1, le=2000)]  # lfs-setstripe(1) allows at most 2000 OSTs; -1 means all
StripeMib = Annotated[int, Meta(ge=1, le=4095)]  # Lustre requires a stripe size below 4 GiB


class NodeWithName(Keys):
    """No settings."""

    name: Annotated[str, Setting("name of the choice, as it appears in cell ids and messages")] = MISSING


class Common(Keys):
    """Settings that can change a result. A cell is one combination of the settings below and of the group choices."""

    threads: Annotated[
        Count,
        Setting(
            "number of files that are read and decoded in parallel; for benchmark=baseline: number of parallel readers"
        ),
    ] = 4
    batch_size: Annotated[
        int,
        Meta(ge=1, le=65_536),
        Setting("number of images per batch; the default for benchmark=climate is 1", unit="images"),
    ] = 64
    prefetch: Annotated[
        int,
        Meta(ge=0, le=1024),
        Setting(
            "number of batches that the pipeline prepares before the training step needs them; 0: no prefetching; the"
            " default for benchmark=climate is 16 images",
            unit="batches",
        ),
    ] = 0
    iterations: Annotated[
        Steps | None, Setting("number of batches per run; null: the run reads every file once", unit="batches")
    ] = None
    seed: Annotated[
        Seed, Setting("seed for the random order of the files and for the random numbers of the training")
    ] = 0
    cache: Annotated[
        Literal["cold", "warm", "as_is"],
        Setting(
            "state of the page cache before a run; cold: the cache holds no page of the files; warm: the cache holds"
            " all pages of the files; as_is: the cache is not changed; checks verify a cold and a warm cache"
        ),
    ] = "cold"
    reader: Annotated[
        Literal["h5py_threads", "h5py_pool", "h5py_shared", "offsets"],
        Setting(
            "method of reading HDF5 files; h5py_threads: h5py in the threads of the pipeline; h5py_pool: h5py in other"
            " processes, which send pickled arrays; h5py_shared: h5py in other processes, which write the arrays into"
            " shared memory; offsets: plain reads of the bytes, without the HDF5 library (docs/how-to/hdf5.md)"
        ),
    ] = "h5py_threads"
    staging: Annotated[
        Literal["none", "smallest", "largest", "advised", "all"],
        Setting(
            "selection of the files that a run reads from copies on a faster storage (`stage apply` makes the copies);"
            " none: no file; smallest: the smallest files that fit; largest: the largest files that fit; advised: the"
            " files whose copies save the most time; all: every file (docs/how-to/staging.md)"
        ),
    ] = "none"
    nodes: Annotated[
        Count,
        Setting(
            "number of nodes of a run, with one rank per node; on a single machine, one process emulates one node"
            " (docs/how-to/several-nodes.md)",
            unit="nodes",
        ),
    ] = 1
    sync: Annotated[
        Literal["none", "barrier", "allreduce", "ring"],
        Setting(
            "synchronization of the ranks after each step; none: no synchronization; barrier: the ranks wait for each"
            " other; allreduce: the first node adds up the gradients; ring: TensorFlow's servers add up the gradients"
            " (needs site.trusted_network=true)"
        ),
    ] = "none"


class Profile(Keys):
    """Profile of the calls of each run.

    The profile is saved beside the record as `profile-<n>.npz` (docs/how-to/profile.md). Profiling slows down a run a
    little. Therefore the cell with a profile and the cell without a profile are different cells. A baseline is not
    profiled, because another program (the engine) reads and writes the file.
    """

    posix: Annotated[
        Literal["none", "counters", "trace"],
        Setting(
            "recording of POSIX calls; none: no recording; counters: Darshan's counters for each file; trace: every"
            " single call"
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
            "number of batches after which a new part of the profile begins, if profile.posix=trace; null: the profile"
            " has only one part",
            unit="batches",
        ),
    ] = None


class Accelerator(NodeWithName):
    """Device that computes the steps of a training."""

    step_s: Annotated[
        Annotated[float, Meta(ge=0, le=3600)] | None,
        Setting("duration of a training step, for accelerator=emulated; null for other accelerators", unit="seconds"),
    ] = None


class DefinedAccelerator(NodeWithName):
    """Accelerator that benchmark=feed emulates, by step time, batch and sample size (docs/reference/feed.md)."""

    sample_bytes: Annotated[int, Meta(ge=1, le=10**12), Setting("mean size of a sample", unit="bytes")] = MISSING
    batch: Annotated[int, Meta(ge=1, le=65_536), Setting("number of samples per training step", unit="samples")] = (
        MISSING
    )
    step_s: Annotated[
        float, Meta(ge=0, le=3600), Setting("duration of a training step, at least 0.001", unit="seconds")
    ] = MISSING
    sample_sd: Annotated[
        int, Meta(ge=0, le=10**12), Setting("standard deviation of the sizes of samples", unit="bytes")
    ] = 0
    samples_per_file: Annotated[int, Meta(ge=1, le=10**9), Setting("number of samples in a file", unit="samples")] = 1
    read_threads: Annotated[
        Count, Setting("number of threads that read for one accelerator, unless `threads` is set")
    ] = 4
    minimum: Annotated[
        float,
        Meta(ge=0.01, le=1),
        Setting("smallest accepted utilization: the share of the time in which the accelerator computes"),
    ] = 0.9
    source: Annotated[
        str, Setting("file and commit from which the definition of the accelerator was taken", cell=False)
    ] = ""


class ImageDataset(NodeWithName):
    """Generated images."""

    files: Annotated[Files, Setting("number of images")] = MISSING
    median_bytes: Annotated[int, Meta(ge=1_000, le=100_000_000), Setting("median size of a file", unit="bytes")] = (
        MISSING
    )
    sigma: Annotated[
        float,
        Meta(ge=0, le=2),
        Setting(
            "standard deviation of ln(file size); the file sizes are log-normal, so sigma is sqrt(2 ln(mean / median))"
        ),
    ] = MISSING
    width: Annotated[Pixels, Setting("median width of an image", unit="pixels")] = MISSING
    height: Annotated[Pixels, Setting("median height of an image", unit="pixels")] = MISSING
    classes: Annotated[int, Meta(ge=1, le=100_000), Setting("number of classes; each class is a sub-folder")] = MISSING
    seed: Annotated[Seed, Setting("seed of the content of the files")] = 0


class ExecutableDataset(NodeWithName):
    """Generated files that are not images."""

    files: Annotated[Files, Setting("number of files")] = MISSING
    median_bytes: Annotated[
        int,
        Meta(ge=1_000, le=100_000_000),
        Setting("median file size; the sizes of all files are proportional to this value", unit="bytes"),
    ] = MISSING
    classes: Annotated[int, Meta(ge=1, le=1_000), Setting("number of classes; each class is a sub-folder")] = MISSING
    seed: Annotated[Seed, Setting("seed of the content of the files")] = 0


class SampleDataset(NodeWithName):
    """Generated files of random bytes that hold the samples for benchmark=feed."""

    files: Annotated[Files, Setting("number of files")] = MISSING
    sample_bytes: Annotated[int, Meta(ge=1, le=10**12), Setting("mean size of a sample", unit="bytes")] = MISSING
    sample_sd: Annotated[
        int, Meta(ge=0, le=10**12), Setting("standard deviation of the sizes of samples", unit="bytes")
    ] = MISSING
    samples_per_file: Annotated[int, Meta(ge=1, le=10**9), Setting("number of samples in a file", unit="samples")] = (
        MISSING
    )
    seed: Annotated[Seed, Setting("seed of the content of the files")] = 0


class HepDataset(NodeWithName):
    """Generated HDF5 files of jet images, as in HEPCNNB."""

    train_files: Annotated[Files, Setting("number of training files")] = MISSING
    validation_files: Annotated[int, Meta(ge=0, le=10_000_000), Setting("number of validation files")] = MISSING
    samples: Annotated[
        int,
        Meta(ge=1, le=100_000),
        Setting(
            "number of samples per training file; a validation file has 94/709 times as many samples", unit="samples"
        ),
    ] = MISSING
    image_size: Annotated[int, Meta(ge=1, le=16_384), Setting("width and height of an image", unit="pixels")] = 224
    seed: Annotated[Seed, Setting("seed of the content of the files")] = 0


class ClimateDataset(NodeWithName):
    """Generated HDF5 files of a climate model, as in CDB."""

    files: Annotated[Files, Setting("number of files, including the file of statistics (stats.h5)")] = MISSING
    height: Annotated[Pixels, Setting("height of a climate field", unit="pixels")] = MISSING
    width: Annotated[Pixels, Setting("width of a climate field", unit="pixels")] = MISSING
    seed: Annotated[Seed, Setting("seed of the content of the files")] = 0


class FolderDataset(NodeWithName):
    """Your own images or HDF5 files, or files of any kind for benchmark=command."""

    path: Annotated[str, Setting("folder with your files; for benchmark=command, a single file is also allowed")] = (
        MISSING
    )
    list: Annotated[
        str | None,
        Setting(
            "text file that names the files to read for benchmark=command, one name per line, relative to dataset.path;"
            " null: every file below dataset.path"
        ),
    ] = None
    hdf5: Annotated[
        str | None,
        Setting(
            "name of the HDF5 data set to read from each file (.h5, .hdf5, .nc), for example climate/data; null: the"
            " files are images"
        ),
    ] = None


class Access(NodeWithName):
    """Method that keeps two jobs from using a storage at the same time. The method does not change the id of a cell."""

    shared: Annotated[
        bool,
        Setting(
            "whether all nodes use the same file system or object store, so that jobs on different nodes slow each"
            " other down",
            cell=False,
        ),
    ] = True
    exclusive: Annotated[
        Literal["license", "singleton", "lock", "none"],
        Setting(
            "method that keeps two jobs from using the storage at the same time; license: a Slurm licence; singleton:"
            " the same Slurm job name for all jobs on the storage; lock: a lock file; none: no protection",
            cell=False,
        ),
    ] = "lock"
    license: Annotated[
        str | None,
        Setting("Slurm licence that each job requests if exclusive=license, for example lustre:1", cell=False),
    ] = None


class Storage(Access):
    """Files in a folder of a file system."""

    root: Annotated[
        str | None, Setting("folder of the storage; generated datasets are in the sub-folder `datasets` of this folder")
    ] = None
    stripe_count: Annotated[
        StripeCount | None,
        Setting("number of Lustre OSTs per generated file; -1: all OSTs; null: the file system's default"),
    ] = None
    stripe_size_mib: Annotated[
        StripeMib | None,
        Setting("size of a Lustre stripe of generated files; null: the file system's default", unit="MiB"),
    ] = None
    node_root: Annotated[
        str | None,
        Setting(
            "folder of the storage for each rank if one machine emulates the nodes; {rank} in the path becomes the"
            " rank's number; null: all ranks use storage.root"
        ),
    ] = None


class ObjectStorage(Access):
    """Objects in a bucket of an S3 store (docs/how-to/s3.md)."""

    kind: Annotated[
        Literal["posix", "s3"], Setting("kind of storage; posix: files in a folder; s3: objects in a bucket")
    ] = "s3"
    endpoint: Annotated[
        str | None,
        Setting(
            "address of the object store: http://HOST:PORT or https://HOST; the certificate of an https address is"
            " verified"
        ),
    ] = None
    bucket: Annotated[str | None, Setting("name of an existing bucket")] = None
    prefix: Annotated[str, Setting("prefix of all object keys; generated datasets are below PREFIX/datasets")] = ""
    region: Annotated[str, Setting("region of the bucket")] = "us-east-1"
    engine: Annotated[
        Literal["threads", "async"],
        Setting(
            "method of requesting objects; threads: each pipeline thread requests the object that it needs; async: one"
            " event loop requests objects in advance"
        ),
    ] = "threads"
    concurrency: Annotated[
        Count | None,
        Setting(
            "number of simultaneous requests if storage.engine=async; null: the value of `threads`", unit="requests"
        ),
    ] = None
    timeout_s: Annotated[
        float,
        Meta(ge=0.1, le=3600),
        Setting("time after which an incomplete request is sent again", unit="seconds"),
    ] = 30.0
    retries: Annotated[
        int,
        Meta(ge=0, le=10_000),
        Setting(
            "how often a failed request is repeated before the run fails; the record has the number of repetitions"
        ),
    ] = 60
    backoff_s: Annotated[
        float, Meta(ge=0.05, le=600), Setting("longest pause before a failed request is repeated", unit="seconds")
    ] = 1.0
    checksum: Annotated[
        bool,
        Setting("whether the run verifies the SHA-256 of each generated object; the verification costs CPU time"),
    ] = False
    device: Annotated[
        str | None,
        Setting(
            "disk of the object store's servers, or a folder on that disk, if the servers are on this machine; without"
            " the disk, no check can prove that a run was cold",
            cell=False,
        ),
    ] = None


class Checkpoint(NodeWithName):
    """Settings of snapshots that all kinds of checkpoint storage have in common."""

    every: Annotated[
        Steps,
        Setting(
            "number of steps between two snapshots; a snapshot has all variables of the model and of the optimizer",
            unit="steps",
            smoke=2,
        ),
    ] = 20
    keep: Annotated[
        int,
        Meta(ge=1, le=1000),
        Setting("largest number of snapshots on each storage; older snapshots are deleted", unit="snapshots"),
    ] = 5
    mode: Annotated[
        Literal["sync", "async"],
        Setting(
            "time for which the training waits; sync: until the snapshot is durable on the storage (with a burst"
            " buffer, on the fast storage); async: until the snapshot is copied in memory"
        ),
    ] = "sync"
    in_flight: Annotated[
        int,
        Meta(ge=1, le=64),
        Setting(
            "number of copies in memory for mode=async; the training waits while all copies are being written",
            unit="copies",
        ),
    ] = 1


class DirectCheckpoint(Checkpoint):
    """Snapshots on one storage."""

    root: Annotated[
        str | None,
        Setting("folder of the storage; during a run, snapshots are in the sub-folder `checkpoints` of this folder"),
    ] = None


class BufferSide(NodeWithName):
    """The fast or the slow storage of a burst buffer."""

    root: Annotated[
        str | None,
        Setting(
            "folder of the storage; the slow storage can also be a bucket, https://HOST/BUCKET/PREFIX"
            " (docs/how-to/s3.md)"
        ),
    ] = None


class BufferedCheckpoint(Checkpoint):
    """Snapshots on a fast storage. A separate process copies the snapshots to a slow storage (paper III.C)."""

    fast: BufferSide = field(default_factory=BufferSide)
    slow: BufferSide = field(default_factory=BufferSide)
    bandwidth_mb_per_s: Annotated[
        Annotated[float, Meta(ge=0.001, le=1e6)] | None,
        Setting("speed limit for copying to the slow storage; null: no limit", unit="MB/s"),
    ] = None
    streams: Annotated[
        int, Meta(ge=1, le=256), Setting("number of threads that copy to the slow storage", unit="threads")
    ] = 1


EVERY = ("benchmark", "dataset", "storage", *Common.__struct_fields__, "accelerator", "checkpoint", "profile")
"""The names of all settings that can change the result of a benchmark."""

if TYPE_CHECKING:
    Settings = Node
else:  # at run time, stored files are checked against the declared types
    _TYPES = dict.fromkeys(EVERY, Node) | get_type_hints(Common, include_extras=True)
    Settings = TypedDict("Settings", _TYPES, total=False)
Settings.__doc__ = "The settings of a cell: all settings in `EVERY` that affect the cell."


def flat_items(node: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted key and the value of each item in a nested mapping."""
    for key, value in node.items():
        if isinstance(value, dict):
            yield from flat_items(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
