"""The settings of how a campaign is run, which cannot change a result: limits of the checks, sites, and Slurm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict, get_type_hints

from msgspec import Meta, field

from jobs.model.declared import MISSING, Keys, Setting
from jobs.model.settings import Count, Node, NodeWithName, Seed, StripeCount, StripeMib


class Tolerances(Keys):
    """Limits of the checks that a site can set for itself."""

    spread_max: Annotated[
        float, Meta(ge=0, le=100), Setting("largest (max - min) / median of the measured runs of a stable cell")
    ] = 0.04  # the paper's cluster stayed below 4 % (IV.A)
    other_cpu_max: Annotated[
        float,
        Meta(ge=0, le=1e4),
        Setting("largest CPU use of other processes during a run", unit="cores"),
    ] = 0.5
    throttled_max: Annotated[
        float, Meta(ge=0, le=1e4), Setting("largest share of a run for which a CPU quota (cgroup) stops its threads")
    ] = 0.01


class Limits(Tolerances):
    """Limits of the checks. The site (site.spread_max) sets the first three; jobs/checks.py has the rules."""

    resident_max: Annotated[
        float, Meta(ge=0, le=1), Setting("largest share of the files' pages in memory before a cold run")
    ] = 0.01
    device_bytes_min: Annotated[
        float,
        Meta(ge=0, le=1),
        Setting(
            "smallest ratio of bytes read from the device to bytes of the files on the device, in a cold run; of an"
            " object store it is 0.9"
        ),
    ] = 0.99
    time_error_max: Annotated[
        float,
        Meta(ge=0, le=1),
        Setting("largest difference between the wall time and the sum of its parts, as a share of the wall time"),
    ] = 0.01
    other_device_max: Annotated[
        float, Meta(ge=0, le=1), Setting("largest share of a run for which the device served other processes")
    ] = 0.05
    stolen_max: Annotated[
        float,
        Meta(ge=0, le=1e4),
        Setting("largest average CPU time that the hypervisor takes from a virtual machine", unit="cores"),
    ] = 0.5
    delayed_max: Annotated[
        float,
        Meta(ge=0, le=1),
        Setting(
            "largest share of a run for which threads with work slept, were blocked by another program or were stopped"
        ),
    ] = 0.05
    io_limit_max: Annotated[
        float,
        Meta(ge=0, le=1e4),
        Setting("largest share that a run uses of the I/O limits of its control group (cgroup)"),
    ] = 0.5
    peak_max: Annotated[
        float,
        Meta(ge=0, le=1000),
        Setting(
            "largest ratio of a cold run's MB/s to the baseline of its storage (benchmark=baseline); a faster run is"
            " unverifiable, and invalid above the ceiling (docs/reference/measuring.md)"
        ),
    ] = 1.05


Flat = Mapping[str, Any]
"""Settings or a whole configuration by dotted keys (`jobs.model.settings.flat_items`)."""

_YEAR_MIN, _WEEK_S = 365 * 24 * 60, 7 * 24 * 3600
Runs = Annotated[int, Meta(ge=1, le=1000)]
WarmUps = Annotated[int, Meta(ge=0, le=999)]
Share = Annotated[float, Meta(ge=0, le=1)]
Gpus = Annotated[int, Meta(ge=0, le=64)]
Memory = Annotated[float, Meta(ge=0.001, le=100_000)]
Patience = Annotated[float, Meta(ge=0, le=_WEEK_S)]
Amount = Annotated[float, Meta(ge=0, le=1e9)]


class ConductKeys(Keys):
    """How a campaign is run. These keys do not change a result, so they do not change the id of a cell."""

    runs: Annotated[Runs, Setting("runs per cell, with the warm-up runs", unit="runs")] = 6
    warmup_runs: Annotated[
        WarmUps,
        Setting("warm-up runs: the first runs of a cell, which are not in the median", unit="runs"),
    ] = 1
    until_spread: Annotated[
        Share | None,
        Setting(
            "runs are added until the confidence interval of the median is at most this share of the median wide;"
            " null: no runs are added"
        ),
    ] = None
    max_runs: Annotated[
        Runs, Setting("limit on the runs of a cell if until_spread adds some, with the warm-up runs", unit="runs")
    ] = 30
    min_valid_runs: Annotated[
        Runs,
        Setting(
            "valid measured runs that a cell needs; if fewer runs are asked for, all of them must be valid", unit="runs"
        ),
    ] = 3
    run_timeout_s: Annotated[
        float,
        Meta(ge=1, le=_WEEK_S),
        Setting("longest duration of a run; after it the run is killed and counts as failed", unit="seconds"),
    ] = 3600.0
    ranks_timeout_s: Annotated[
        float,
        Meta(ge=1, le=24 * 3600),
        Setting("longest time that ranks wait for each other before the clock of a run starts", unit="seconds"),
    ] = 300.0
    drain_timeout_s: Annotated[
        Patience,
        Setting(
            "longest time after the training for the burst buffer to copy its snapshots to the slow storage",
            unit="seconds",
        ),
    ] = 600.0
    wait_quiet_s: Annotated[
        Patience | None,
        Setting(
            "longest time that a worker waits until other programs are quiet, after they disturbed two runs in"
            " succession"
            " (check quiet); then the worker ends; null: runs go on, and disturbed runs do not count",
            unit="seconds",
        ),
    ] = 120.0
    order_seed: Annotated[
        Seed,
        Setting("seed of the random order of the cells; a random order turns a slow drift of the machine into noise"),
    ] = 0
    in_turn: Annotated[
        bool,
        Setting(
            "whether cells take turns, run by run and there and back (a b b a), so that a machine that becomes slower"
            " or faster favours none; on Slurm the cells of a storage are one job then; false: one cell after the other"
        ),
    ] = False
    retries: Annotated[
        int,
        Meta(ge=0, le=100),
        Setting(
            "repetitions of a cell that failed for an external reason: its job ended, or other programs disturbed it"
        ),
    ] = 0
    redo: Annotated[bool, Setting("whether recorded cells are measured again")] = False
    campaign_dir: Annotated[
        str, Setting("folder of the campaign, readable by you only; a relative path starts at the current folder")
    ] = "results"
    size: Annotated[
        Literal["paper", "lab", "smoke"] | None,
        Setting(
            "size of a recipe; paper: the published numbers; smoke: a test of minutes; lab: between the two, for"
            " NERSC's recipes; typed with a plus: +size=smoke"
        ),
    ] = None
    detach: Annotated[
        bool,
        Setting(
            "whether the command ends after it has submitted to Slurm; `python -m campaign status` then shows the"
            " progress"
        ),
    ] = False


class TraceSettings(Keys):
    """System trace of each run. The file `trace-<n>.csv` is beside the record."""

    interval_s: Annotated[
        Annotated[float, Meta(ge=0.1, le=3600)] | None,
        Setting("time between two samples; null: no trace", unit="seconds"),
    ] = 1.0
    tail_s: Annotated[
        float, Meta(ge=0, le=3600), Setting("time for which the trace continues after the last step", unit="seconds")
    ] = 0.0


class SiteStorage(Keys):
    """One storage of a site. A key that is null has the default of the same key of storage."""

    root: Annotated[
        str | None, Setting("folder of the storage, which must exist; null: this site does not have the storage")
    ] = None
    shared: Annotated[
        bool | None, Setting("whether all nodes use the same file system; then it serves one cell at a time")
    ] = None
    exclusive: Annotated[
        Literal["license", "singleton", "lock", "none"] | None,
        Setting(
            "what prevents two jobs from using the storage at the same time; license: a Slurm licence; singleton: one"
            " Slurm job name per storage; lock: a lock file in its root; none: nothing"
        ),
    ] = None
    license: Annotated[
        str | None,
        Setting("Slurm licence that each job asks for with exclusive: license; `scontrol show licenses` lists them"),
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
        Setting("folder of the storage as rank {rank} sees it, for emulated nodes; null: root for every rank"),
    ] = None
    kind: Annotated[
        Literal["posix", "s3"] | None,
        Setting("kind of storage; posix: files in a folder; s3: objects in a bucket; null: posix"),
    ] = None
    endpoint: Annotated[str | None, Setting("address of the object store, for example https://s3.example.org")] = None
    bucket: Annotated[str | None, Setting("bucket, which must exist")] = None
    prefix: Annotated[
        str | None, Setting("prefix of all object keys; generated datasets are below PREFIX/datasets")
    ] = None
    region: Annotated[str | None, Setting("region of the bucket; null: us-east-1")] = None
    device: Annotated[
        str | None,
        Setting(
            "disk of the object store's servers, or a folder on it, if it is on this machine; needed to prove a cold"
            " run"
        ),
    ] = None


class SiteKeys(Tolerances):
    """One workstation or cluster; conf/site/mysite.yaml.template is an example."""

    name: Annotated[str, Setting("name of the site, as it appears in messages and in campaign.json")] = MISSING
    partition: Annotated[str | None, Setting("Slurm partition of the jobs; null: Slurm's default")] = None
    account: Annotated[str | None, Setting("Slurm account that pays for the jobs; null: Slurm's default")] = None
    qos: Annotated[str | None, Setting("Slurm quality of service (QOS) of the jobs; null: Slurm's default")] = None
    constraint: Annotated[
        str | None, Setting("features that a node must have, in the syntax of sbatch --constraint; null: none")
    ] = None
    pool: Annotated[str | None, Setting("nodes that jobs may use, for example n[1-4],n7; null: all")] = None
    gpus_per_node: Annotated[Gpus | None, Setting("GPUs that each job asks for per node; null: none", unit="GPUs")] = (
        None
    )
    mem_gb: Annotated[
        Memory | None, Setting("memory that each job asks for per node; null: Slurm's default", unit="GB")
    ] = None
    wckey: Annotated[str | None, Setting("Slurm workload characterization key (WCKey); null: none")] = None
    comment: Annotated[
        str | None, Setting("comment of each job; null: name of the campaign folder and of the figure")
    ] = None
    modules: Annotated[list[str], Setting("environment modules that each job loads before anything else")] = field(
        default_factory=list
    )
    prelude: Annotated[list[str], Setting("shell commands that each job runs after it has loaded the modules")] = field(
        default_factory=list
    )
    timeout_max_min: Annotated[
        Annotated[int, Meta(ge=1, le=_YEAR_MIN)] | None,
        Setting("longest job that the site allows; null: unknown", unit="minutes"),
    ] = None
    ask_above_node_hours: Annotated[
        Amount,
        Setting(
            "largest cost that is submitted without a question if there is no terminal; more needs --yes or"
            " CAMPAIGN_YES=1",
            unit="node-hours",
        ),
    ] = 10.0
    login_data_gb: Annotated[
        Amount,
        Setting(
            "largest amount of data that a campaign generates on the login node; make_data decides what happens above"
            " it",
            unit="GB",
        ),
    ] = 10.0
    make_data: Annotated[
        Literal["login", "job", "ask"],
        Setting(
            "where data above login_data_gb is generated; login: on the login node; job: in a Slurm job; ask: in a"
            " Slurm job, after a confirmation"
        ),
    ] = "ask"
    login_processes: Annotated[
        Count, Setting("processes that generate data on the login node, with nice 19", unit="processes")
    ] = 2
    accelerator: Annotated[
        str,
        Setting(
            "accelerator that accelerator=auto stands for: gpu, cpu, emulated, or auto, which takes a GPU if there is"
            " one"
        ),
    ] = "auto"
    trusted_network: Annotated[
        bool,
        Setting(
            "whether only your jobs can reach the network of the nodes, so that TensorFlow's servers, which check no"
            " password, are safe (sync=ring)"
        ),
    ] = False
    storages: Annotated[dict[str, SiteStorage], Setting("storages of the site, by name")] = field(default_factory=dict)


class LocalCluster(NodeWithName):
    """One worker process on this machine."""


class SlurmCluster(NodeWithName):
    """Jobs of Slurm. A key that the site also has (site.partition) takes its default from there."""

    partition: Annotated[str | None, Setting("Slurm partition of the jobs; null: Slurm's default")] = None
    account: Annotated[str | None, Setting("Slurm account that pays for the jobs; null: Slurm's default")] = None
    qos: Annotated[str | None, Setting("Slurm quality of service (QOS) of the jobs; null: Slurm's default")] = None
    constraint: Annotated[
        str | None, Setting("features that a node must have, in the syntax of sbatch --constraint; null: none")
    ] = None
    pool: Annotated[str | None, Setting("nodes that jobs may use, for example n[1-4],n7; null: all")] = None
    exclude: Annotated[str | None, Setting("nodes that jobs must not use, for example n[1-4]; null: none")] = None
    dependency: Annotated[
        str | None, Setting("jobs that must end before these start, for example afterok:123; null: none")
    ] = None
    licenses: Annotated[
        str | None,
        Setting(
            "Slurm licences that each job asks for in addition to storage.license, for example matlab:1; null: none"
        ),
    ] = None
    wckey: Annotated[str | None, Setting("Slurm workload characterization key (WCKey); null: none")] = None
    comment: Annotated[
        str | None, Setting("comment of each job; null: name of the campaign folder and of the figure")
    ] = None
    timeout_min: Annotated[int, Meta(ge=1, le=_YEAR_MIN), Setting("time limit of a job", unit="minutes")] = 60
    mem_gb: Annotated[
        Memory | None, Setting("memory that each job asks for per node; null: Slurm's default", unit="GB")
    ] = None
    cpus_per_task: Annotated[
        Count | None, Setting("CPUs of a job; null: as many as the threads of its cells need", unit="CPUs")
    ] = None
    gpus_per_node: Annotated[Gpus | None, Setting("GPUs that each job asks for per node; null: none", unit="GPUs")] = (
        None
    )
    exclusive: Annotated[bool, Setting("whether a job has its node for itself")] = True
    modules: Annotated[list[str], Setting("environment modules that each job loads before anything else")] = field(
        default_factory=list
    )
    prelude: Annotated[list[str], Setting("shell commands that each job runs after it has loaded the modules")] = field(
        default_factory=list
    )
    extra: Annotated[
        dict[str, Any],
        Setting("other options of sbatch, for example +cluster.extra.mail-type=END; true: an option without a value"),
    ] = field(default_factory=dict)
    cells_per_job: Annotated[
        int, Meta(ge=1, le=100_000), Setting("cells that one job measures, one after the other", unit="cells")
    ] = 1
    pack: Annotated[
        bool, Setting("whether cells_per_job and timeout_min follow from the duration of recorded runs")
    ] = False
    parallel: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)] | None,
        Setting("jobs that run at the same time; null: 1 if the storage is shared, else 256", unit="jobs"),
    ] = None
    max_requeues: Annotated[
        int,
        Meta(ge=0, le=1000),
        Setting("how often a job is requeued after its time limit, a preemption or the loss of its node"),
    ] = 3
    signal_delay_s: Annotated[
        int,
        Meta(ge=1, le=65_535),  # sbatch(1), --signal
        Setting(
            "time before its time limit at which a job gets the signal to save its record and to requeue itself",
            unit="seconds",
        ),
    ] = 90
    oversubscribe: Annotated[bool, Setting("whether a cell may have more threads than CPUs")] = False
    save_patience_s: Annotated[
        Patience,
        Setting("time that a job waits for space on a full disk before it gives up the record", unit="seconds"),
    ] = 600.0


_NODES = {"site": Node, "cluster": Node, "trace": Node, "checks": dict[str, float], "profile": NotRequired[Node]}
if TYPE_CHECKING:
    Conduct = Node
else:  # stored values have the declared types
    Conduct = TypedDict("Conduct", get_type_hints(ConductKeys, include_extras=True) | _NODES)
Conduct.__doc__ = "The keys of a point that decide how it is run: those of `ConductKeys` and these nodes."
Point = Node
"""A composed configuration: one point of the grid."""
Site = Node
Cluster = Node
