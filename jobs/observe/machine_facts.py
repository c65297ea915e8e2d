"""What this machine is: the facts that stand beside every figure, taken without root and never guessed."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from jobs.model.results import Run
from jobs.system import cgroup
from jobs.system.device import UNKNOWN, device_of, mount_of

_PACKAGES = ("tensorflow", "numpy", "hydra-core", "omegaconf", "submitit", "pillow", "tfio-campaign")
# Named one by one: SLURM_JWT, say, is a credential.
_SLURM = (
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


def describe(dataset: Path) -> dict[str, Any]:
    """Describe the machine and what stands behind `dataset`; what cannot be had is ``unknown``."""
    there = dataset.exists()  # not where a node lacks the storage, and its record is to say so
    device = device_of(dataset) if there else None
    return {
        "host": platform.node() or UNKNOWN,
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or UNKNOWN,
        "affinity": sorted(os.sched_getaffinity(0)),
        "quota_cores": cgroup.quota(),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": {package: _version(package) for package in _PACKAGES},
        "git": _git(Path(__file__).resolve().parent),
        "mount": asdict(mount_of(dataset)) if there else UNKNOWN,
        "device": device.facts() if device else UNKNOWN,
        "boot_id": _read("/proc/sys/kernel/random/boot_id"),
        "slurm": {key: os.environ[key] for key in _SLURM if key in os.environ},
    }


def place() -> Run:
    """Say where this process runs: ``host``, Slurm's ``node`` and ``job`` (else None), ``cpus`` it may use.

    Fewer than there are where a control group's quota leaves less, also a part of one.
    """
    cpus, quota = len(os.sched_getaffinity(0)), cgroup.quota()
    return {
        "host": platform.node() or UNKNOWN,
        "node": os.environ.get("SLURMD_NODENAME"),
        "job": os.environ.get("SLURM_JOB_ID"),
        "cpus": cpus if quota is None else min(cpus, quota),
    }


def _cpu_model() -> str:
    for line in _read("/proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return UNKNOWN


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return UNKNOWN


def _git(folder: Path) -> dict[str, str | bool]:
    """Commit of the checkout this code runs from; unknown where it is an installed wheel or git is missing."""
    commit = _run_git(folder, "rev-parse", "HEAD")
    # A wheel may lie inside somebody else's checkout (a venv in a repository): then the commit is not ours.
    if commit is None or _run_git(folder, "ls-files", "--error-unmatch", "machine_facts.py") is None:
        return {"commit": UNKNOWN, "dirty": UNKNOWN}
    status = _run_git(folder.parent, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": UNKNOWN if status is None else bool(status)}


def _run_git(folder: Path, *words: str) -> str | None:
    command = ["git", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip() or UNKNOWN
    except OSError:
        return UNKNOWN
