"""Declare the settings that cannot change a result: number of runs, limits of the checks, sites, and Slurm options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, get_type_hints

from msgspec import Meta, field

from jobs.model.declared import MISSING, Keys, Setting, declared_settings
from jobs.model.settings import Count, Node, NodeWithName, Seed, StripeCount, StripeMib


class Tolerances(Keys):
    """The limits of checks for which a site can set its own default."""

    spread_max: Annotated[
        float,
        Meta(ge=0, le=100),
        Setting("largest spread of the measured runs of a stable cell: (maximum - minimum) / median"),
    ] = 0.04  # the spread on the paper's cluster stayed below 4 % (IV.A)
    other_cpu_max: Annotated[
        float,
        Meta(ge=0, le=1e4),
        Setting("largest average number of CPU cores that other processes use during a run", unit="cores"),
    ] = 0.5
    throttled_max: Annotated[
        float,
        Meta(ge=0, le=1e4),
        Setting("largest share of a run's time in which a CPU quota (cgroup) stops the threads of the run"),
    ] = 0.01


class Limits(Tolerances):
    """Limits of the checks. A site can set its own default for the first three limits (for example site.spread_max).

    The checks are defined in jobs/checks.py.
    """

    resident_max: Annotated[
        float, Meta(ge=0, le=1), Setting("largest share of the files' pages in the page cache before a cold run")
    ] = 0.01
    device_bytes_min: Annotated[
        float,
        Meta(ge=0, le=1),
        Setting(
            "smallest ratio of the bytes that a cold run reads from the device to the size of the files on the device;"
            " for an object store, the limit is at most 0.9"
        ),
    ] = 0.99
    time_error_max: Annotated[
        float,
        Meta(ge=0, le=1),
        Setting("largest difference between the wall time and the sum of its parts, as a share of the wall time"),
    ] = 0.01
    other_device_max: Annotated[
        float, Meta(ge=0, le=1), Setting("largest share of a run's time in which the device served other processes")
    ] = 0.05
    stolen_max: Annotated[
        float,
        Meta(ge=0, le=1e4),
        Setting(
            "largest average number of CPU cores that the hypervisor takes from a virtual machine (steal time)",
            unit="cores",
        ),
    ] = 0.5
    delayed_max: Annotated[
        float,
        Meta(ge=0, le=1),
        Setting(
            "largest share of a run's time in which threads that had work slept, were blocked by another program or"
            " were stopped"
        ),
    ] = 0.05
    io_limit_max: Annotated[
        float,
        Meta(ge=0, le=1e4),
        Setting("largest share of the I/O limits of a run's control group (cgroup) that the run may use"),
    ] = 0.5
    peak_max: Annotated[
        float,
        Meta(ge=0, le=1000),
        Setting(
            "largest ratio of a cold run's MB/s to the baseline of the storage (benchmark=baseline); a faster run is"
            " unverifiable, and a run above the ceiling of the storage is invalid (docs/reference/measuring.md)"
        ),
    ] = 1.05


Flat = Mapping[str, Any]
"""Settings or a whole configuration as a flat mapping of dotted keys (`jobs.model.settings.flat_items`)."""

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

    runs: Annotated[Runs, Setting("number of runs per cell, including the warm-up runs", unit="runs")] = 6
    warmup_runs: Annotated[
        WarmUps,
        Setting("number of warm-up runs: the first runs of a cell, which the median leaves out", unit="runs"),
    ] = 1
    until_spread: Annotated[
        Share | None,
        Setting(
            "largest width of the confidence interval of the median, as a share of the median; runs are added to a cell"
            " until the interval is narrow enough; null: no runs are added"
        ),
    ] = None
    max_runs: Annotated[
        Runs,
        Setting("largest number of runs of a cell if until_spread adds runs, including the warm-up runs", unit="runs"),
    ] = 30
    min_valid_runs: Annotated[
        Runs,
        Setting(
            "number of valid measured runs that a cell needs; a cell with fewer measured runs needs all of its runs"
            " to be valid",
            unit="runs",
        ),
    ] = 3
    run_timeout_s: Annotated[
        float,
        Meta(ge=1, le=_WEEK_S),
        Setting("longest duration of a run; a longer run is killed and counts as failed", unit="seconds"),
    ] = 3600.0
    ranks_timeout_s: Annotated[
        float,
        Meta(ge=1, le=24 * 3600),
        Setting("longest time that the ranks wait for each other before a run begins", unit="seconds"),
    ] = 300.0
    drain_timeout_s: Annotated[
        Patience,
        Setting(
            "longest time after the training in which the burst buffer may copy snapshots to the slow storage",
            unit="seconds",
        ),
    ] = 600.0
    wait_quiet_s: Annotated[
        Patience | None,
        Setting(
            "longest time that a worker waits for a quiet machine after other programs disturbed two runs in succession"
            " (check `quiet`); then the worker ends; null: the worker does not wait, and disturbed runs do not count",
            unit="seconds",
        ),
    ] = 120.0
    order_seed: Annotated[
        Seed,
        Setting(
            "seed for the random order of the cells; in a random order, a machine that slowly becomes faster or slower"
            " adds noise but no bias"
        ),
    ] = 0
    in_turn: Annotated[
        bool,
        Setting(
            "whether cells a and b alternate run by run (a b b a), so that a machine that becomes slower or faster"
            " favours no cell (on Slurm, one job then measures all cells of a storage); false: all runs of one cell"
            " before the next cell"
        ),
    ] = False
    retries: Annotated[
        int,
        Meta(ge=0, le=100),
        Setting(
            "how often a cell is measured again after an external failure: the job of the cell ended, or other programs"
            " disturbed the runs"
        ),
    ] = 0
    redo: Annotated[bool, Setting("whether cells that already have a record are measured again")] = False
    campaign_dir: Annotated[
        str,
        Setting("folder of the campaign, which only you can read; a relative path starts at the current folder"),
    ] = "results"
    size: Annotated[
        Literal["paper", "lab", "smoke"] | None,
        Setting(
            "size of a recipe, typed with a plus sign (+size=smoke); paper: the published numbers; smoke: a test that"
            " takes minutes; lab: a size between paper and smoke, for NERSC's recipes only"
        ),
    ] = None
    detach: Annotated[
        bool,
        Setting(
            "whether the command ends as soon as the jobs are submitted to Slurm; `python -m campaign status` shows the"
            " progress"
        ),
    ] = False


class TraceSettings(Keys):
    """System trace of each run. The trace is saved beside the record as `trace-<n>.csv`."""

    interval_s: Annotated[
        Annotated[float, Meta(ge=0.1, le=3600)] | None,
        Setting("time between two samples of the trace; null: no trace", unit="seconds"),
    ] = 1.0
    tail_s: Annotated[
        float, Meta(ge=0, le=3600), Setting("time for which the trace continues after the last step", unit="seconds")
    ] = 0.0


class SiteStorage(Keys):
    """One storage of a site. A key that is null takes the default of the key of storage with the same name."""

    root: Annotated[
        str | None, Setting("existing folder of the storage; null: this site does not have the storage")
    ] = None
    shared: Annotated[
        bool | None,
        Setting("whether all nodes use the same file system; a shared storage is used by one cell at a time"),
    ] = None
    exclusive: Annotated[
        Literal["license", "singleton", "lock", "none"] | None,
        Setting(
            "method that keeps two jobs from using the storage at the same time; license: a Slurm licence; singleton:"
            " the same Slurm job name for all jobs on the storage; lock: a lock file in the root of the storage; none:"
            " no protection"
        ),
    ] = None
    license: Annotated[
        str | None,
        Setting(
            "Slurm licence that each job requests if exclusive is license; `scontrol show licenses` lists the licences"
        ),
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
            " rank's number; null: all ranks use root"
        ),
    ] = None
    kind: Annotated[
        Literal["posix", "s3"] | None,
        Setting("kind of storage; posix: files in a folder; s3: objects in a bucket; null: posix"),
    ] = None
    endpoint: Annotated[str | None, Setting("address of the object store, for example https://s3.example.org")] = None
    bucket: Annotated[str | None, Setting("name of an existing bucket")] = None
    prefix: Annotated[
        str | None, Setting("prefix of all object keys; generated datasets are below PREFIX/datasets")
    ] = None
    region: Annotated[str | None, Setting("region of the bucket; null: us-east-1")] = None
    device: Annotated[
        str | None,
        Setting(
            "disk of the object store's servers, or a folder on that disk, if the servers are on this machine; without"
            " the disk, no check can prove that a run was cold"
        ),
    ] = None


class SiteKeys(Tolerances):
    """One workstation or cluster; conf/site/mysite.yaml.template is an example."""

    name: Annotated[str, Setting("name of the site, as it appears in messages and in campaign.json")] = MISSING
    partition: Annotated[str | None, Setting("Slurm partition of the jobs; null: Slurm's default")] = None
    account: Annotated[str | None, Setting("Slurm account that pays for the jobs; null: Slurm's default")] = None
    qos: Annotated[str | None, Setting("Slurm quality of service (QOS) of the jobs; null: Slurm's default")] = None
    constraint: Annotated[
        str | None,
        Setting("features that a node must have, in the syntax of sbatch --constraint; null: no required feature"),
    ] = None
    pool: Annotated[str | None, Setting("nodes that jobs may use, for example n[1-4],n7; null: all nodes")] = None
    gpus_per_node: Annotated[
        Gpus | None,
        Setting(
            "number of GPUs that each job requests per node; null: no GPU; of a kind: +cluster.extra.gres=gpu:a100:1",
            unit="GPUs",
        ),
    ] = None
    mem_gb: Annotated[
        Memory | None, Setting("memory that each job requests per node; null: Slurm's default", unit="GB")
    ] = None
    wckey: Annotated[str | None, Setting("Slurm workload characterization key (WCKey); null: no key")] = None
    comment: Annotated[
        str | None, Setting("Slurm comment of each job; null: name of the campaign folder and of the figure")
    ] = None
    modules: Annotated[list[str], Setting("environment modules that each job loads at its start")] = field(
        default_factory=list
    )
    prelude: Annotated[list[str], Setting("shell commands that each job runs after loading the modules")] = field(
        default_factory=list
    )
    timeout_max_min: Annotated[
        Annotated[int, Meta(ge=1, le=_YEAR_MIN)] | None,
        Setting("longest time limit of a job that the site allows; null: unknown", unit="minutes"),
    ] = None
    ask_above_node_hours: Annotated[
        Amount,
        Setting(
            "largest cost that is submitted without a confirmation if the command has no terminal; a larger cost needs"
            " --yes or CAMPAIGN_YES=1",
            unit="node-hours",
        ),
    ] = 10.0
    login_data_gb: Annotated[
        Amount,
        Setting(
            "largest amount of data that a campaign generates on the login node; for a larger amount, see make_data",
            unit="GB",
        ),
    ] = 10.0
    make_data: Annotated[
        Literal["login", "job", "ask"],
        Setting(
            "where more data than login_data_gb is generated; login: on the login node; job: in a Slurm job; ask: in a"
            " Slurm job, after you have confirmed the cost"
        ),
    ] = "ask"
    login_processes: Annotated[
        Count, Setting("number of processes that generate data on the login node, with nice 19", unit="processes")
    ] = 2
    accelerator: Annotated[
        str,
        Setting(
            "accelerator that accelerator=auto selects on this site: gpu, cpu, emulated, or auto; auto: a GPU if the"
            " node has a GPU"
        ),
    ] = "auto"
    trusted_network: Annotated[
        bool,
        Setting(
            "whether only your jobs can reach the network of the nodes; sync=ring needs a trusted network, because"
            " TensorFlow's servers check no password"
        ),
    ] = False
    storages: Annotated[dict[str, SiteStorage], Setting("storages of the site, by name")] = field(default_factory=dict)


class LocalCluster(NodeWithName):
    """One worker process on this machine."""


class SlurmCluster(NodeWithName):
    """Jobs of Slurm. If the site has a key of the same name (for example site.partition), its value is the default."""

    partition: Annotated[str | None, Setting("Slurm partition of the jobs; null: Slurm's default")] = None
    account: Annotated[str | None, Setting("Slurm account that pays for the jobs; null: Slurm's default")] = None
    qos: Annotated[str | None, Setting("Slurm quality of service (QOS) of the jobs; null: Slurm's default")] = None
    constraint: Annotated[
        str | None,
        Setting("features that a node must have, in the syntax of sbatch --constraint; null: no required feature"),
    ] = None
    pool: Annotated[str | None, Setting("nodes that jobs may use, for example n[1-4],n7; null: all nodes")] = None
    exclude: Annotated[str | None, Setting("nodes that jobs must not use, for example n[1-4]; null: no node")] = None
    dependency: Annotated[
        str | None,
        Setting("jobs that must end before the campaign's jobs start, for example afterok:123; null: no dependency"),
    ] = None
    licenses: Annotated[
        str | None,
        Setting(
            "Slurm licences that each job requests in addition to storage.license, for example matlab:1; null: no other"
            " licence"
        ),
    ] = None
    wckey: Annotated[str | None, Setting("Slurm workload characterization key (WCKey); null: no key")] = None
    comment: Annotated[
        str | None, Setting("Slurm comment of each job; null: name of the campaign folder and of the figure")
    ] = None
    timeout_min: Annotated[int, Meta(ge=1, le=_YEAR_MIN), Setting("time limit of a job", unit="minutes")] = 60
    mem_gb: Annotated[
        Memory | None, Setting("memory that each job requests per node; null: Slurm's default", unit="GB")
    ] = None
    cpus_per_task: Annotated[
        Count | None,
        Setting("number of CPUs of a job; null: as many CPUs as the threads of the job's cells need", unit="CPUs"),
    ] = None
    gpus_per_node: Annotated[
        Gpus | None, Setting("number of GPUs that each job requests per node; null: no GPU", unit="GPUs")
    ] = None
    exclusive: Annotated[bool, Setting("whether no other job may run on the node of a job")] = True
    modules: Annotated[list[str], Setting("environment modules that each job loads at its start")] = field(
        default_factory=list
    )
    prelude: Annotated[list[str], Setting("shell commands that each job runs after loading the modules")] = field(
        default_factory=list
    )
    extra: Annotated[
        dict[str, Any],
        Setting("other options of sbatch, for example +cluster.extra.mail-type=END; true: an option without a value"),
    ] = field(default_factory=dict)
    cells_per_job: Annotated[
        int,
        Meta(ge=1, le=100_000),
        Setting("number of cells that one job measures, one cell after the other", unit="cells"),
    ] = 1
    pack: Annotated[
        bool, Setting("whether cells_per_job and timeout_min are calculated from the duration of recorded runs")
    ] = False
    parallel: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)] | None,
        Setting("number of jobs that run at the same time; null: 1 if the storage is shared, else 256", unit="jobs"),
    ] = None
    max_requeues: Annotated[
        int,
        Meta(ge=0, le=1000),
        Setting("how often a job is requeued after a reached time limit, a preemption or a node failure"),
    ] = 3
    signal_delay_s: Annotated[
        int,
        Meta(ge=1, le=65_535),  # the range of sbatch(1), --signal
        Setting(
            "time between a signal and the time limit of a job; at the signal, the job saves the record and requeues"
            " itself",
            unit="seconds",
        ),
    ] = 90
    oversubscribe: Annotated[bool, Setting("whether a cell may have more threads than CPUs")] = False
    save_patience_s: Annotated[
        Patience,
        Setting("time for which a job waits for free space on a full disk before the record is lost", unit="seconds"),
    ] = 600.0


SBATCH_TEXTS = tuple(
    name for name, each in declared_settings(SlurmCluster).items() if each.scalar is str and name != "name"
)
"""Settings of a Slurm cluster whose values are texts for sbatch, not lists: n[1-4],n7 needs no quotes for Hydra."""


_NODES = {"site": Node, "cluster": Node, "trace": Node, "checks": dict[str, float]}
if TYPE_CHECKING:
    Conduct = Node
else:  # at run time, stored files are checked against the declared types
    Conduct = TypedDict("Conduct", get_type_hints(ConductKeys, include_extras=True) | _NODES)
Conduct.__doc__ = "How to run a grid point: the values of `ConductKeys`, and the nodes site, cluster, trace and others."
Point = Node
"""A composed configuration: one point of the grid of settings."""
Site = Node
Cluster = Node
