"""Observe conditions that can change the speed of a run but are not settings, and describe the machine.

`jobs.system.tunables` reads the conditions. The facts about the machine are read without root permissions. A fact that
cannot be read is ``unknown``; no fact is guessed.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from jobs.checkpoints.run_snapshots import storages_by_role
from jobs.model.results import Conditions, Run
from jobs.model.settings import Settings
from jobs.observe.observer import Observer
from jobs.system import cgroup, tunables
from jobs.system.device import UNKNOWN, device_of, mount_of


def observe_conditions(settings: Settings, folders: Sequence[Path], targets: Sequence[Path]) -> Conditions:
    """Return the conditions of the ``process``, of the ``machine``, and of the ``storages`` by name.

    `folders` contain the folder of the data and, if there is one, the folder of the copies of the data. `targets` are
    the folders of the snapshots, in the order of `storages_by_role`; the target of a bucket is the disk of its servers.
    """
    name = settings.get("storage", {}).get("name", "data")  # a run by `python -m jobs` has no storage name
    target_names = (
        f"{target['name']} (checkpoints)"
        for target in storages_by_role(settings.get("checkpoint", {"name": "none"})).values()
    )
    folder_names = [*zip((name, f"{name} (copies)"), folders, strict=False), *zip(target_names, targets, strict=False)]
    return {
        "process": tunables.describe_process(),
        "machine": tunables.describe_machine(),
        "storages": {name: tunables.describe_storage(folder) for name, folder in folder_names if folder.exists()},
    }


class ConditionsObserver(Observer):
    """Observes the conditions of the process, the machine and the storages."""

    place = 2
    gives = ("conditions", "conditions_after")

    def start(self) -> None:
        """Read the conditions before the run."""
        self._before = self._conditions()

    def stop(self, *, failed: bool) -> None:  # noqa: ARG002
        """Read the conditions after the run."""
        self._after = self._conditions()

    def metrics(self) -> Mapping[str, Any]:
        """Return ``conditions``, and ``conditions_after`` if they changed during the run."""
        change = {"conditions_after": self._after} if self._after != self._before else {}
        return {"conditions": self._before, **change}

    def _conditions(self) -> Conditions:
        return observe_conditions(self.request["settings"], self.work.folders, self.snapshot_folders)


_PACKAGES = ("tensorflow", "numpy", "hydra-core", "omegaconf", "submitit", "pillow", "tfio-campaign")
# Only these variables are recorded, because other variables of Slurm are credentials, for example SLURM_JWT.
_SLURM_VARIABLES = (
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_CLUSTER_NAME",
    "SLURM_CPUS_PER_TASK",
    "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_PARTITION",
    "SLURM_RESTART_COUNT",
)
_GIT_TIMEOUT_S = 10.0


def describe_node(dataset: Path) -> dict[str, Any]:
    """Return facts about the machine and about the storage of `dataset`; a missing fact is ``unknown``."""
    is_mounted = dataset.exists()  # False on a node without the storage, which the record must show
    device = device_of(dataset) if is_mounted else None
    return {
        "host": platform.node() or UNKNOWN,
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or UNKNOWN,
        "affinity": sorted(os.sched_getaffinity(0)),
        "quota_cores": cgroup.quota_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": {package: _package_version(package) for package in _PACKAGES},
        "git": _git_commit(Path(__file__).resolve().parent),
        "mount": asdict(mount_of(dataset)) if is_mounted else UNKNOWN,
        "device": device.facts() if device else UNKNOWN,
        "boot_id": _read_file("/proc/sys/kernel/random/boot_id"),
        "proactive_reclaim": tunables.proactive_reclaim(),
        "slurm": {key: os.environ[key] for key in _SLURM_VARIABLES if key in os.environ},
    }


def place_of_process() -> Run:
    """Return where this process runs: ``host``, ``node``, ``job``, and the number of usable ``cpus``.

    ``node`` and ``job`` are None outside a Slurm job. ``cpus`` may be a fraction if a control group has a CPU quota.
    """
    cpus, quota = len(os.sched_getaffinity(0)), cgroup.quota_cores()
    return {
        "host": platform.node() or UNKNOWN,
        "node": os.environ.get("SLURMD_NODENAME"),
        "job": os.environ.get("SLURM_JOB_ID"),
        "cpus": cpus if quota is None else min(cpus, quota),
    }


def _cpu_model() -> str:
    for line in _read_file("/proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return UNKNOWN


def _package_version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return UNKNOWN


def _git_commit(folder: Path) -> dict[str, str | bool]:
    """Return the git commit of the checkout that contains this code, or ``unknown`` for an installed wheel."""
    commit = _run_git(folder, "rev-parse", "HEAD")
    # A wheel may be installed inside the checkout of another project. Then the commit does not belong to this code.
    if commit is None or _run_git(folder, "ls-files", "--error-unmatch", Path(__file__).name) is None:
        return {"commit": UNKNOWN, "dirty": UNKNOWN}
    status = _run_git(folder.parent, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": UNKNOWN if status is None else bool(status)}


def _run_git(folder: Path, *words: str) -> str | None:
    command = ["git", "-C", str(folder), *words]
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return completed.stdout.strip()


def _read_file(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip() or UNKNOWN
    except OSError:
        return UNKNOWN


OBSERVERS = (ConditionsObserver,)
