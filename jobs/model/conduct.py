"""How a campaign is run: the settings that cannot change a result, each declared once; the sites, and Slurm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict, get_type_hints

from msgspec import Meta, field

from jobs.model.declared import MISSING, Keys, Setting
from jobs.model.limits import Tolerances
from jobs.model.settings import Count, Named, Node, Seed, StripeCount, StripeMib

Flat = Mapping[str, Any]
"""Settings or a whole configuration by dotted keys (`campaign.cells.cell.flat`)."""

_YEAR_MIN, _WEEK_S = 365 * 24 * 60, 7 * 24 * 3600
Runs = Annotated[int, Meta(ge=1, le=1000)]
Gpus = Annotated[int, Meta(ge=0, le=64)]
Memory = Annotated[float, Meta(ge=0.001, le=100_000)]
Patience = Annotated[float, Meta(ge=0, le=_WEEK_S)]
Amount = Annotated[float, Meta(ge=0, le=1e9)]


class Running(Keys):
    """How a campaign is run; none of these can change a result, so none is part of a cell."""

    runs: Annotated[Runs, Setting("executions of a cell, warm-up included")] = 6
    warmup_runs: Annotated[
        int, Meta(ge=0, le=999), Setting("the first of them, kept and shown but not in the median")
    ] = 1
    until_spread: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None,
        Setting("adds runs until the interval of the median is no wider than this share of it; null: never"),
    ] = None
    max_runs: Annotated[
        Runs, Setting("executions of a cell at most where until_spread adds some, warm-up included")
    ] = 30
    min_valid_runs: Annotated[
        Runs,
        Setting("a cell with fewer valid measured runs is invalid; where fewer are asked for, one that lacks any"),
    ] = 3
    run_timeout_s: Annotated[
        float, Meta(ge=1, le=_WEEK_S), Setting("seconds; a run still going after this is killed and failed")
    ] = 3600.0
    ranks_timeout_s: Annotated[
        float, Meta(ge=1, le=24 * 3600), Setting("seconds that ranks wait for one another before their clocks start")
    ] = 300.0
    drain_timeout_s: Annotated[
        Patience, Setting("seconds that a run waits for its burst buffer to be drained when the training has ended")
    ] = 600.0
    wait_quiet_s: Annotated[
        Patience | None,
        Setting(
            "seconds that a worker waits for a machine to become quiet, where others disturbed two runs in succession"
            " (check quiet); then it ends. What a desktop or a nightly job does in passing is over in two minutes; who"
            " stays longer stays. null: runs go on, and do not count"
        ),
    ] = 120.0
    order_seed: Annotated[Seed, Setting("of the shuffled order of the cells, so that drift is noise and no trend")] = 0
    retries: Annotated[
        int,
        Meta(ge=0, le=100),
        Setting("times that what failed for no reason of its own is run again: its job ended, others disturbed it"),
    ] = 0
    redo: Annotated[bool, Setting("measure again what is already recorded")] = False
    campaign_dir: Annotated[str, Setting("private to you; a relative one belongs to the folder you are in")] = "results"
    size: Annotated[
        Literal["paper", "lab", "smoke"] | None,
        Setting("what a recipe's numbers are: +size=paper (its default), +size=smoke or, for NERSC's, +size=lab"),
    ] = None
    detach: Annotated[
        bool, Setting("submit to Slurm and return at once; `python -m campaign status` shows the rest")
    ] = False


class Trace(Keys):
    """The system trace of each run: trace-<n>.csv beside its record."""

    interval_s: Annotated[
        Annotated[float, Meta(ge=0.1, le=3600)] | None,
        Setting("seconds between samples; null: no trace"),
    ] = 1.0
    tail_s: Annotated[float, Meta(ge=0, le=3600), Setting("seconds for which it continues after the last step")] = 0.0


class SiteStorage(Keys):
    """What a site says of one of its storages; null: nothing, and storage=… has its own default."""

    root: Annotated[str | None, Setting("must be there; without it, the storage is not here")] = None
    shared: Annotated[bool | None, Setting("is it one file system on every node: then one cell at a time")] = None
    exclusive: Annotated[
        Literal["license", "singleton", "lock", "none"] | None,
        Setting(
            "license: Slurm's licence; singleton: one job name for the storage; lock: a lock file in its root; none"
        ),
    ] = None
    license: Annotated[str | None, Setting("for exclusive: license; `scontrol show licenses` lists them")] = None
    stripe_count: Annotated[StripeCount | None, Setting("Lustre: OSTs that each file is spread over, -1: all")] = None
    stripe_size_mib: Annotated[StripeMib | None, Setting("Lustre: MiB on one OST before the next")] = None
    node_root: Annotated[str | None, Setting("where rank {rank} of a run sees it, on emulated nodes")] = None
    kind: Annotated[Literal["posix", "s3"] | None, Setting("posix: files in a folder | s3: objects in a bucket")] = None
    endpoint: Annotated[str | None, Setting("of objects: https://s3.example.org")] = None
    bucket: Annotated[str | None, Setting("there already; made datasets lie in it below datasets/")] = None
    prefix: Annotated[str | None, Setting("of all keys")] = None
    region: Annotated[str | None, Setting("of the bucket")] = None
    device: Annotated[str | None, Setting("its disk, or a folder on that: proves a cold run of objects")] = None


class SiteKeys(Tolerances):
    """What one workstation or cluster has; conf/site/mysite.yaml.template explains each key at length."""

    name: Annotated[str, Setting("stands in messages and in campaign.json")] = MISSING
    partition: Annotated[str | None, Setting("of Slurm; null: the site's default")] = None
    account: Annotated[str | None, Setting("of Slurm, where the site wants one")] = None
    qos: Annotated[str | None, Setting("quality of service of Slurm")] = None
    constraint: Annotated[str | None, Setting("features that a node must have")] = None
    pool: Annotated[str | None, Setting("nodes that may be used; null: all")] = None
    gpus_per_node: Annotated[Gpus | None, Setting("asked for with each job; null: none")] = None
    mem_gb: Annotated[Memory | None, Setting("asked for on each node, in 10^9 bytes; null: Slurm's default")] = None
    wckey: Annotated[str | None, Setting("workload key of Slurm, where the site wants one")] = None
    comment: Annotated[str | None, Setting("of each job; null: campaign folder and figure")] = None
    modules: Annotated[list[str], Setting("environment modules that a job loads first")] = field(default_factory=list)
    prelude: Annotated[list[str], Setting("commands that a job then begins with, one a line")] = field(
        default_factory=list
    )
    timeout_max_min: Annotated[
        Annotated[int, Meta(ge=1, le=_YEAR_MIN)] | None,
        Setting("the longest job that the site allows; null: not known", unit="minutes"),
    ] = None
    ask_above_node_hours: Annotated[
        Amount, Setting("without a terminal to ask on, more is submitted with --yes or CAMPAIGN_YES=1 alone")
    ] = 10.0
    login_data_gb: Annotated[
        Amount, Setting("what a campaign on Slurm makes on the login node, in 10^9 bytes; for more see make_data")
    ] = 10.0
    make_data: Annotated[
        Literal["login", "job", "ask"],
        Setting("login: there all the same; job: by a job of its own; ask: by one, and never without a yes"),
    ] = "ask"
    login_processes: Annotated[Count, Setting("that make data there, at nice 19")] = 2
    accelerator: Annotated[
        str, Setting("what accelerator=auto trains on: auto (a GPU where there is one) | gpu | cpu | emulated")
    ] = "auto"
    trusted_network: Annotated[
        bool,
        Setting("nobody else reaches the nodes: TensorFlow's servers, which ask for no secret, add gradients up"),
    ] = False
    storages: Annotated[dict[str, SiteStorage], Setting("what the site has, by name; see storage=site")] = field(
        default_factory=dict
    )


class Here(Named):
    """One worker process on this machine."""


class Slurm(Named):
    """Jobs of Slurm; what the site says of these keys is their default."""

    partition: Annotated[str | None, Setting("where jobs go; null: the site's default")] = None
    account: Annotated[str | None, Setting("who pays")] = None
    qos: Annotated[str | None, Setting("quality of service")] = None
    constraint: Annotated[str | None, Setting("features that a node must have, as sbatch writes them")] = None
    pool: Annotated[
        str | None, Setting("nodes that may be used: n[1-4],n7; a job gets one of them, the others are excluded")
    ] = None
    exclude: Annotated[str | None, Setting("never on these nodes: n[1-4]")] = None
    dependency: Annotated[str | None, Setting("start after other jobs of yours: afterok:123")] = None
    licenses: Annotated[str | None, Setting("beside what storage.license asks for: matlab:1")] = None
    wckey: Annotated[str | None, Setting("workload key")] = None
    comment: Annotated[str | None, Setting("null: campaign folder and figure")] = None
    timeout_min: Annotated[int, Meta(ge=1, le=_YEAR_MIN), Setting("minutes a job may take")] = 60
    mem_gb: Annotated[Memory | None, Setting("memory of a job, in 10^9 bytes; null: Slurm's default")] = None
    cpus_per_task: Annotated[Count | None, Setting("null: as many as the cell's threads need")] = None
    gpus_per_node: Annotated[Gpus | None, Setting("null: none")] = None
    exclusive: Annotated[bool, Setting("a node for each job alone")] = True
    modules: Annotated[list[str], Setting("environment modules that a job loads first")] = field(default_factory=list)
    prelude: Annotated[list[str], Setting("commands that a job then begins with")] = field(default_factory=list)
    extra: Annotated[
        dict[str, Any], Setting("other options of sbatch: +cluster.extra.mail-type=END; true: the option alone")
    ] = field(default_factory=dict)
    cells_per_job: Annotated[int, Meta(ge=1, le=100_000), Setting("cells that one job takes, one after the other")] = 1
    pack: Annotated[bool, Setting("cells_per_job and a shorter timeout_min by what the recorded runs took")] = False
    parallel: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)] | None,
        Setting("jobs at once; null: one where the storage is shared, else 256 of an array"),
    ] = None
    max_requeues: Annotated[
        int,
        Meta(ge=0, le=1000),
        Setting("times that a job is begun again: after its time limit, a preemption, a lost node"),
    ] = 3
    signal_delay_s: Annotated[
        int,
        Meta(ge=1, le=65_535),  # sbatch(1), --signal
        Setting("seconds before its time limit at which a job is told to save and ask for more"),
    ] = 90
    oversubscribe: Annotated[bool, Setting("may a cell have fewer CPUs than threads")] = False
    save_patience_s: Annotated[Patience, Setting("seconds a job waits on a full disk before it gives up a record")] = (
        600.0
    )


_OTHERS = {"site": Node, "cluster": Node, "trace": Node, "checks": dict[str, float], "profile": NotRequired[Node]}
if TYPE_CHECKING:
    Conduct = Node
else:  # what is stored has the declared types
    Conduct = TypedDict("Conduct", get_type_hints(Running, include_extras=True) | _OTHERS)
Conduct.__doc__ = "The keys of a point that say how it is run: those of `Running` and these nodes."
Point = Node
"""A composed configuration: one point of the grid."""
Site = Node
Cluster = Node
