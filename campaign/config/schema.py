"""The whole configuration, of the groups in `campaign.config.keys`; the values stand in ``conf/``.

The schemas are closed (an unknown key is an error) and mutable (a frozen one could not be overridden on the command
line). Limits of the values are checked in `campaign.config.limits`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from campaign.cells.cell import flat
from campaign.config.keys import benchmark
from campaign.config.keys.accelerator import Accelerator
from campaign.config.keys.checkpoint import Buffered, Direct, NoCheckpoint
from campaign.config.keys.dataset import Climate, Executables, Folder, Hep, Synthetic
from campaign.config.keys.runs import Checks, Profile, Trace
from campaign.config.keys.site import Site
from campaign.config.keys.slurm import Cluster, Slurm
from campaign.config.keys.storage import ObjectStorage, Storage
from campaign.storage.roots import storage_of
from jobs.benchmarks.registry import benchmarks, names_of
from jobs.model.settings import key
from jobs.objects.address import address_of


class Cache(Enum):
    """State of the page cache that a run starts from."""

    cold = "cold"
    warm = "warm"
    as_is = "as_is"


class Staging(Enum):
    """Which files are read from copies on a faster storage, by the rule that chose them."""

    none = "none"
    smallest = "smallest"
    largest = "largest"
    advised = "advised"
    all = "all"


class Sync(Enum):
    """What the ranks of a run on several nodes do together after each step."""

    none = "none"
    barrier = "barrier"
    allreduce = "allreduce"
    ring = "ring"


class Reader(Enum):
    """How HDF5 files are read."""

    h5py_threads = "h5py_threads"
    h5py_pool = "h5py_pool"
    h5py_shared = "h5py_shared"
    offsets = "offsets"


class Size(Enum):
    """What the numbers of a recipe are for."""

    paper = "paper"
    lab = "lab"
    smoke = "smoke"


@dataclass
class Campaign:
    """The whole configuration."""

    benchmark: Any = MISSING
    dataset: Any = MISSING
    # Before what it hands values on to, so that a wrong one is told by its own key.
    site: Site = MISSING
    storage: Any = MISSING
    accelerator: Accelerator = MISSING
    checkpoint: Any = MISSING
    cluster: Any = MISSING
    threads: int = key(MISSING, 1, 1024)
    batch_size: int = key(MISSING, 1, 65_536)
    prefetch: int = key(MISSING, 0, 1024)
    iterations: int | None = key(MISSING, 1, 10**9)
    seed: int = key(MISSING, 0, 2**31 - 1)
    cache: Cache = MISSING
    staging: Staging = MISSING
    nodes: int = key(MISSING, 1, 1024)
    sync: Sync = MISSING
    reader: Reader = MISSING
    runs: int = key(MISSING, 1, 1000)
    warmup_runs: int = key(MISSING, 0, 999)
    min_valid_runs: int = key(MISSING, 1, 1000)
    until_spread: float | None = key(MISSING, 0, 1)
    max_runs: int = key(MISSING, 1, 1000)
    run_timeout_s: float = key(MISSING, 1, 7 * 24 * 3600)
    ranks_timeout_s: float = key(MISSING, 1, 24 * 3600)
    drain_timeout_s: float = key(MISSING, 0, 7 * 24 * 3600)
    wait_quiet_s: float | None = key(MISSING, 0, 7 * 24 * 3600)
    order_seed: int = key(MISSING, 0, 2**31 - 1)
    redo: bool = MISSING
    retries: int = key(MISSING, 0, 100)
    campaign_dir: str = MISSING
    size: Size | None = MISSING
    detach: bool = MISSING
    trace: Trace = field(default_factory=Trace)
    profile: Profile = field(default_factory=Profile)
    checks: Checks = field(default_factory=Checks)  # type: ignore[valid-type] # made of the limits


CHOICES: dict[str, dict[str, type]] = {
    "benchmark": benchmark.KEYS,
    "dataset": {"synthetic": Synthetic, "executables": Executables, "hep": Hep, "climate": Climate, "folder": Folder},
    "cluster": {"here": Cluster, "slurm": Slurm},
    "checkpoint": {"none": NoCheckpoint, "direct": Direct, "buffered": Buffered},
    "storage": {"posix": Storage, "s3": ObjectStorage},
}
"""The groups whose choices have different keys, with their schemas."""


@cache
def register() -> None:
    """Store the schemas under ``schema/``, where Hydra does not offer them as choices."""
    store = ConfigStore.instance().store
    store(group="schema", name="campaign", node=Campaign, package="_global_")
    for name, node in {"accelerator": Accelerator, "site": Site}.items():
        store(group="schema", name=name, node=node)
    for group, nodes in CHOICES.items():
        for name, node in nodes.items():
            store(group=f"schema/{group}", name=name, node=node)
    by_site = (_site_storage, _site_storage_root, _storage_of, _site_accelerator)
    for resolver in (*by_site, _if_emulated, _by_size, _of_benchmark):
        OmegaConf.register_new_resolver(resolver.__name__.removeprefix("_"), resolver, replace=True)


def _site_storage(key: str, default: Any, *, _root_: DictConfig) -> Any:
    """Look up what the site says of the storage that is chosen; ``${oc.select:…}`` would pass its nulls on."""
    said = _root_.site.storages.get(_root_.storage.name)
    value = None if said is None else said.get(key)
    return default if value is None else value


def _site_storage_root(name: str, default: Any, *, _root_: DictConfig) -> Any:
    """Return where a storage lies that is not the chosen one, or is: one name is one place. Of a bucket its address."""
    said = _root_.storage if _root_.storage.name == name else _root_.site.storages.get(name)
    if said is not None and said.get("endpoint") and said.get("bucket"):
        return address_of(said)
    return default if said is None or said.get("root") is None else said.root


def _storage_of(path: str, key: str, *, _root_: DictConfig) -> str:
    """Return ``name`` or ``root`` of the storage that a folder lies on."""
    roots = {str(name): said.root for name, said in _root_.site.storages.items() if said.root is not None}
    name, root = storage_of(Path(path).expanduser(), roots)
    return {"name": name, "root": root}[key]


def _site_accelerator(*, _root_: DictConfig) -> Any:
    """Return what the site trains on; where nothing is trained, what fits any benchmark."""
    name = _root_.benchmark.name
    if _root_.site.accelerator == "auto" and name in names_of("emulates"):
        return "emulated"
    return _root_.site.accelerator if name in names_of("computes") else "auto"


def _if_emulated(accelerator: str, step_s: float) -> float | None:
    """Return the seconds of a step where the accelerator is emulated; others take what they take."""
    return step_s if accelerator == "emulated" else None


def _of_benchmark(name: str, default: Any, *, _root_: DictConfig) -> Any:
    """Return a benchmark's own default of a setting that others have, too."""
    chosen = benchmarks().get(_root_.benchmark.name)
    options = dict(flat(chosen.options)) if chosen else {}
    found = options.get(name)
    return default if found is None else found


def _by_size(paper: Any, smoke: Any, lab: Any = None, *, _root_: DictConfig) -> Any:
    """Choose a recipe's number: the paper's own, unless the size is ``smoke``, or ``lab``, by default the same."""
    small = {Size.smoke: smoke, Size.lab: smoke if lab is None else lab}
    return small.get(_root_.size, paper)
