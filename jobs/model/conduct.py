"""How a campaign is run: what of its configuration cannot change a result.

Annotations are evaluated here: `jobs.model.reading` asks which keys are required.
"""

from collections.abc import Mapping
from typing import Any, NotRequired, Required, TypedDict

from jobs.model.settings import Node, Settings

Flat = Mapping[str, Any]
"""Settings or a whole configuration by dotted keys (`campaign.cells.cell.flat`)."""


class Trace(TypedDict):
    """Node ``trace``."""

    interval_s: float | None
    tail_s: float


class Cluster(TypedDict, total=False):
    """Group ``cluster``; other keys go to ``sbatch`` as they are. Choices without Slurm have a name alone."""

    name: Required[str]
    partition: str | None
    pool: str | None
    exclude: str | None
    dependency: str | None
    licenses: str | None
    timeout_min: int
    mem_gb: float | None
    cpus_per_task: int | None
    exclusive: bool
    wckey: str | None
    comment: str | None
    modules: list[str]
    prelude: list[str]
    extra: dict[str, str | float | None]
    cells_per_job: int
    pack: bool
    parallel: int | None
    max_requeues: int
    signal_delay_s: int
    oversubscribe: bool
    save_patience_s: float


class Site(TypedDict, total=False):
    """Group ``site``; its other keys are handed on to other groups (conf/)."""

    name: Required[str]
    storages: dict[str, Node]
    spread_max: float
    other_cpu_max: float
    throttled_max: float
    ask_above_node_hours: float
    make_data: str
    login_data_gb: float
    login_processes: int
    timeout_max_min: int | None
    trusted_network: bool


class Conduct(TypedDict):
    """How a campaign is run: every key of the configuration that cannot change a result."""

    site: Site
    cluster: Cluster
    runs: int
    warmup_runs: int
    min_valid_runs: int
    until_spread: float | None
    max_runs: int
    run_timeout_s: float
    ranks_timeout_s: float
    drain_timeout_s: float
    wait_quiet_s: float | None
    order_seed: int
    redo: bool
    campaign_dir: str
    size: str | None
    detach: bool
    trace: Trace
    checks: dict[str, float]
    retries: NotRequired[int]
    profile: NotRequired[dict[str, bool]]  # ``compare`` alone: the rest is what a cell is


class Point(Settings, Conduct):
    """A composed configuration: one point of the grid."""
