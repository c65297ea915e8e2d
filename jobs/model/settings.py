"""The settings of a cell, each declared once: type, range, unit, meaning and default.

The configuration, its help and its errors, the options of a run by hand and the shape of what is stored are made from
these declarations; those of a benchmark's own keys stand in its module. What they hold is a plain mapping everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, get_type_hints

from msgspec import Meta, field

from jobs.model.declared import MISSING, Keys, Setting

Node = dict[str, Any]
"""One node of the configuration as plain values; its keys differ by choice."""

Count = Annotated[int, Meta(ge=1, le=1024)]
Steps = Annotated[int, Meta(ge=1, le=10**9)]
Files = Annotated[int, Meta(ge=1, le=10_000_000)]
Pixels = Annotated[int, Meta(ge=16, le=16_384)]
Seed = Annotated[int, Meta(ge=0, le=2**31 - 1)]
StripeCount = Annotated[int, Meta(ge=-1, le=2000)]  # lfs-setstripe(1): at most 2000 OSTs, -1 for all
StripeMib = Annotated[int, Meta(ge=1, le=4095)]  # a stripe of less than 4 GiB


class Named(Keys):
    """A choice of a group."""

    name: Annotated[str, Setting("the choice; stands in ids of cells and in messages")] = MISSING


class Common(Keys):
    """What can change a result; together with the groups, these make a cell."""

    threads: Annotated[Count, Setting("parallel calls of the map: files read and decoded at once")] = 4
    batch_size: Annotated[int, Meta(ge=1, le=65_536), Setting("images a batch; climate: 1")] = 64
    prefetch: Annotated[
        int, Meta(ge=0, le=1024), Setting("batches kept ready ahead of the consumer; 0: none; climate: 16, of images")
    ] = 0
    iterations: Annotated[Steps | None, Setting("batches a run; null: each file once")] = None
    seed: Annotated[Seed, Setting("of the shuffled order of the files")] = 0
    cache: Annotated[
        Literal["cold", "warm", "as_is"],
        Setting("cold: evicted and proved | warm: read once before, and proved | as_is: left alone"),
    ] = "cold"
    reader: Annotated[
        Literal["h5py_threads", "h5py_pool", "h5py_shared", "offsets"],
        Setting("of HDF5: h5py_threads | h5py_pool | h5py_shared (processes) | offsets (without the library)"),
    ] = "h5py_threads"
    staging: Annotated[
        Literal["none", "smallest", "largest", "advised", "all"],
        Setting("files read from copies of `stage apply`: none | smallest | largest | advised | all (docs/staging.md)"),
    ] = "none"
    nodes: Annotated[
        Count, Setting("ranks of a run, one a node; on this machine so many processes (docs/cluster.md)")
    ] = 1
    sync: Annotated[
        Literal["none", "barrier", "allreduce", "ring"],
        Setting("what ranks do after each step: none | barrier | allreduce | ring (needs site.trusted_network)"),
    ] = "none"


class Profile(Keys):
    """POSIX calls of each run, seen from inside: profile-<n>.npz beside its record (docs/profiler.md).

    It costs a little, so a cell that is profiled is another cell; baselines, whose engines are other programs, are not
    profiled.
    """

    posix: Annotated[
        Literal["none", "counters", "trace"],
        Setting("none | counters: Darshan's, for each file | trace: every call"),
    ] = "none"
    tensorflow: Annotated[
        str, Setting("none | 5-15: TensorFlow's own profiler from step 5 to step 15 | all of them (docs/traces.md)")
    ] = "none"
    every: Annotated[
        Steps | None,
        Setting("batches after which another part of the window begins (trace); null: it is not divided"),
    ] = None
    compare: Annotated[
        bool,
        Setting("each measured run beside one without the profile, so that the record says what it costs", cell=False),
    ] = False


class Accelerator(Named):
    """What a training computes with."""

    step_s: Annotated[
        Annotated[float, Meta(ge=0, le=3600)] | None, Setting("seconds of an emulated step; null for others")
    ] = None


class Synthetic(Named):
    """Images that are made from a seed."""

    files: Annotated[Files, Setting("number of images")] = MISSING
    median_bytes: Annotated[int, Meta(ge=1_000, le=100_000_000), Setting("of a file")] = MISSING
    sigma: Annotated[float, Meta(ge=0, le=2), Setting("of ln(bytes): sqrt(2 ln(mean / median)) of a log-normal")] = (
        MISSING
    )
    width: Annotated[Pixels, Setting("median", unit="pixels")] = MISSING
    height: Annotated[Pixels, Setting("median", unit="pixels")] = MISSING
    classes: Annotated[int, Meta(ge=1, le=100_000), Setting("sub-folders")] = MISSING
    seed: Annotated[Seed, Setting("of the data")] = 0


class Executables(Named):
    """Files that are no images, made from a seed."""

    files: Annotated[Files, Setting("number of files")] = MISSING
    median_bytes: Annotated[int, Meta(ge=1_000, le=100_000_000), Setting("scales all sizes alike")] = MISSING
    classes: Annotated[int, Meta(ge=1, le=1_000), Setting("sub-folders")] = MISSING
    seed: Annotated[Seed, Setting("of the data")] = 0


class Hep(Named):
    """Jet images in HDF5, as HEPCNNB's."""

    train_files: Annotated[Files, Setting("files for training")] = MISSING
    validation_files: Annotated[int, Meta(ge=0, le=10_000_000), Setting("files for validation")] = MISSING
    samples: Annotated[
        int, Meta(ge=1, le=100_000), Setting("in a file for training; one for validation has 94 for each 709 of them")
    ] = MISSING
    image_size: Annotated[int, Meta(ge=1, le=16_384), Setting("both sides", unit="pixels")] = 224
    seed: Annotated[Seed, Setting("of the data")] = 0


class Climate(Named):
    """Fields of a climate model in HDF5, as CDB's."""

    files: Annotated[Files, Setting("number of files; the last one is stats.h5")] = MISSING
    height: Annotated[Pixels, Setting("of a field", unit="pixels")] = MISSING
    width: Annotated[Pixels, Setting("of a field", unit="pixels")] = MISSING
    seed: Annotated[Seed, Setting("of the data")] = 0


class Folder(Named):
    """The user's own images, or HDF5 files of which a data set is named."""

    path: Annotated[str, Setting("dataset.path=/where/the/images/are")] = MISSING
    hdf5: Annotated[
        str | None,
        Setting("of HDF5 files (.h5, .hdf5, .nc) the data set that is read of each, as in climate/data; null: images"),
    ] = None


class Access(Named):
    """How jobs are kept apart on a storage: no part of what a cell is."""

    shared: Annotated[
        bool, Setting("is it one file system (or store) on every node, so that jobs share its speed", cell=False)
    ] = True
    exclusive: Annotated[
        Literal["license", "singleton", "lock", "none"],
        Setting("what keeps jobs apart on it: license | singleton | lock | none", cell=False),
    ] = "lock"
    license: Annotated[str | None, Setting("Slurm licence of one user of it, for exclusive=license", cell=False)] = None


class Storage(Access):
    """Files below a folder."""

    root: Annotated[str | None, Setting("its folder; made datasets lie in <root>/datasets")] = None
    stripe_count: Annotated[
        StripeCount | None, Setting("Lustre: OSTs a made file is spread over, -1: all; null: left alone")
    ] = None
    stripe_size_mib: Annotated[
        StripeMib | None, Setting("Lustre: MiB on one OST before the next; null: left alone")
    ] = None
    node_root: Annotated[
        str | None, Setting("where rank {rank} of a run sees it, on emulated nodes; null: as all others")
    ] = None


class ObjectStorage(Access):
    """Objects in a bucket that speaks S3 (docs/s3.md)."""

    kind: Annotated[Literal["posix", "s3"], Setting("s3: objects in a bucket")] = "s3"
    endpoint: Annotated[str | None, Setting("http://HOST:PORT, or https://…, whose certificate is verified")] = None
    bucket: Annotated[str | None, Setting("there already")] = None
    prefix: Annotated[str, Setting("of all keys; made datasets lie in <prefix>/datasets")] = ""
    region: Annotated[str, Setting("of the bucket")] = "us-east-1"
    engine: Annotated[
        Literal["threads", "async"],
        Setting("threads: a get in each call of the map | async: one event loop gets objects ahead of them"),
    ] = "threads"
    concurrency: Annotated[Count | None, Setting("requests in flight of async; null: threads")] = None
    timeout_s: Annotated[
        float,
        Meta(ge=0.1, le=3600),
        Setting("seconds until a request whose last byte has not come is sent again"),
    ] = 30.0
    retries: Annotated[
        int, Meta(ge=0, le=10_000), Setting("times that a request is sent again before the run fails; each is counted")
    ] = 60
    backoff_s: Annotated[float, Meta(ge=0.05, le=600), Setting("seconds between two of them at most")] = 1.0
    checksum: Annotated[
        bool, Setting("SHA-256 of each object that a manifest of ours has one of; it costs processor time")
    ] = False
    device: Annotated[
        str | None,
        Setting("the servers' disk (or a folder on it) on this machine: proves a cold run", cell=False),
    ] = None


class Saved(Named):
    """What every target says of its snapshots."""

    every: Annotated[
        Steps,
        Setting("iterations from one snapshot to the next; all variables are saved, the optimiser's too", smoke=2),
    ] = 20
    keep: Annotated[int, Meta(ge=1, le=1000), Setting("newest snapshots that are kept, on each storage")] = 5
    mode: Annotated[
        Literal["sync", "async"],
        Setting("sync: training waits until the snapshot is durable (fast storage) | async: for a copy in memory"),
    ] = "sync"
    in_flight: Annotated[
        int,
        Meta(ge=1, le=64),
        Setting("async: copies in memory at most; where all are being written, training waits for one"),
    ] = 1


class Direct(Saved):
    """Snapshots go straight to a storage."""

    root: Annotated[str | None, Setting("its folder; snapshots lie in <root>/checkpoints while a run lasts")] = None


class Side(Named):
    """One of the two storages of a burst buffer."""

    root: Annotated[
        str | None, Setting("a folder; of the slow one also a bucket: https://HOST/BUCKET/PREFIX (docs/s3.md)")
    ] = None


class Buffered(Saved):
    """Snapshots go to a fast storage and are copied to a slow one by a separate process (paper III.C)."""

    fast: Side = field(default_factory=Side)
    slow: Side = field(default_factory=Side)
    when_full: Annotated[
        Literal["block", "fall_through"],
        Setting(
            "fast storage full of what is not drained yet: block: training waits | fall_through: write to the slow one"
        ),
    ] = "block"
    bandwidth_mb_per_s: Annotated[
        Annotated[float, Meta(ge=0.001, le=1e6)] | None,
        Setting("bound on the drain, in 10^6 bytes a second; null: none"),
    ] = None
    direct: Annotated[bool, Setting("does the drain write past the page cache (O_DIRECT)")] = False
    streams: Annotated[int, Meta(ge=1, le=256), Setting("threads of the drain")] = 1


EVERY = ("benchmark", "dataset", "storage", *Common.__struct_fields__, "accelerator", "checkpoint", "profile")
"""The settings that can change the result of a benchmark."""

if TYPE_CHECKING:
    Settings = Node
else:  # what is stored has the declared types
    _TYPES = dict.fromkeys(EVERY, Node) | get_type_hints(Common, include_extras=True)
    Settings = TypedDict("Settings", _TYPES, total=False)
Settings.__doc__ = "The settings of a cell: those of `EVERY` that act on it."
