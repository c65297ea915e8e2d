"""Read what else can change the speed of a run and is no setting of a cell: process, machine, storage.

Of the process its environment and how the kernel treats it, and the libraries that answer its calls in place of the C
library: a preloaded one can delay them, or answer for itself. Of the machine processors, memory and the kernel's own
settings; of a storage how it is mounted and the queues of its devices. What this system does not tell is left out. A
library that replaces a call inside one other library alone, or in Python, is not seen.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import platform
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path

from jobs.system import cgroup
from jobs.system.cgroup import io_limits
from jobs.system.device import devices_behind, mount_of

READING = (
    "open", "open64", "openat", "openat64", "fopen", "fopen64", "read", "readv", "pread", "pread64", "preadv", "fread",
    "mmap", "mmap64", "close", "posix_fadvise", "posix_fadvise64", "syscall", "stat", "stat64", "fstat", "fstat64",
    "lstat", "lstat64", "__xstat", "__xstat64", "__fxstat", "__fxstat64", "statx", "access", "lseek", "lseek64",
    "opendir", "readdir", "readdir64", "preadv64", "preadv2", "madvise", "readahead",
)  # fmt: skip
WRITING = ("write", "writev", "pwrite", "pwrite64", "fsync", "fdatasync", "msync", "rename")
TIMING = ("clock_gettime", "gettimeofday", "time", "nanosleep", "clock_nanosleep", "pthread_create")
_ALLOCATING = ("malloc", "calloc", "free")
_KERNEL = "linux-vdso"  # its code in each process, which answers for the clock
_BESIDE = ("libpthread.so.0", "librt.so.1", "libpthread-", "librt-")  # parts of the C library before version 2.34


class _Symbol(ctypes.Structure):
    """The answer of dladdr(3) on an address."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def interposed_calls() -> dict[str, str]:
    """Return the library behind each call to files or clocks that is not the C library's, by the call's name."""
    return _calls_answered_elsewhere((*READING, *WRITING, *TIMING))


def memory_allocator() -> str | None:
    """Return the library that allocates memory; None if it is the C library."""
    return next(iter(_calls_answered_elsewhere(_ALLOCATING).values()), None)


def _calls_answered_elsewhere(names: tuple[str, ...]) -> dict[str, str]:
    libc = _library_of_call("gnu_get_libc_version")
    if libc is None:  # another C library than GNU's
        return {}
    libraries = {name: library for name in names if (library := _library_of_call(name)) not in (None, libc)}
    return {name: str(library) for name, library in libraries.items() if not _is_part_of(str(library), libc)}


def _is_part_of(library: str, libc: str) -> bool:
    name = Path(library).name
    return name.startswith(_KERNEL) or (name.startswith(_BESIDE) and Path(library).parent == Path(libc).parent)


def _library_of_call(name: str) -> str | None:
    """Return the file of the library that answers a call of this process; None if there is no such call."""
    process = ctypes.CDLL(None)
    symbol = _Symbol()
    try:
        address = ctypes.cast(getattr(process, name), ctypes.c_void_p)
    except AttributeError:
        return None
    return symbol.file.decode(errors="replace") if process.dladdr(address, ctypes.byref(symbol)) else None


_libc = ctypes.CDLL(None)

Facts = dict[str, str | int | float]

# Names of variables begin so; OpenMP, Intel's libraries and TensorFlow read theirs at the start.
_VARIABLES = (
    "LD_", "GLIBC_TUNABLES", "MALLOC_", "MIMALLOC_", "TCMALLOC_", "PYTHONMALLOC", "PYTHONTRACEMALLOC", "PYTHONDEVMODE",
    "HDF5_", "TF_", "XLA_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "ONEDNN_", "DNNL_", "CUDA_LAUNCH_BLOCKING",
    "NVIDIA_TF32_OVERRIDE",
)  # fmt: skip
# Of those not: what this tool sets itself, and Terraform's, which are secrets.
_NOT_VARIABLES = ("TF_CPP_MIN_LOG_LEVEL", "TF_CONFIG", "TF_VAR_", "TF_TOKEN_", "TF_CLI_")
_LONGEST = 200  # letters of a value; a longer one is cut, and told from others by its checksum
_POLICIES = {0: "other", 1: "fifo", 2: "round robin", 3: "batch", 5: "idle", 6: "deadline"}  # sched(7)
_IO_CLASSES = ("none", "realtime", "best effort", "idle")  # ioprio_get(2)
_IOPRIO_GET = {"x86_64": 252, "aarch64": 31}.get(platform.machine())  # asm/unistd.h
_GET_MEMPOLICY = {"x86_64": 239, "aarch64": 236}.get(platform.machine())
_MEMORY_POLICIES = {1: "preferred", 2: "bind", 3: "interleave", 4: "local", 5: "preferred many", 6: "weighted"}
_GET_FLAGS = 0x80086601  # FS_IOC_GETFLAGS, linux/fs.h
# Letters of lsattr(1) that change how files are read or written; the others follow from what a folder holds.
_ATTRIBUTES = {"c": 0x4, "S": 0x8, "A": 0x80, "j": 0x4000, "D": 0x10000, "C": 0x800000, "x": 0x2000000}
_CPUS = "/sys/devices/system/cpu"
_OF_MACHINE = {
    "huge_pages": "/sys/kernel/mm/transparent_hugepage/enabled",
    "huge_pages_defrag": "/sys/kernel/mm/transparent_hugepage/defrag",
    "cpu_governor": f"{_CPUS}/cpufreq/policy*/scaling_governor",
    "cpu_min_khz": f"{_CPUS}/cpufreq/policy*/scaling_min_freq",
    "cpu_max_khz": f"{_CPUS}/cpufreq/policy*/scaling_max_freq",
    "cpu_energy_preference": f"{_CPUS}/cpufreq/policy*/energy_performance_preference",
    "cpu_idle_disabled": f"{_CPUS}/cpu*/cpuidle/state*/disable",
    "cpu_boost": f"{_CPUS}/cpufreq/boost",
    "cpu_no_turbo": f"{_CPUS}/intel_pstate/no_turbo",
    "clock_source": "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "pcie_power": "/sys/module/pcie_aspm/parameters/policy",
    **{
        f"vm.{name}": f"/proc/sys/vm/{name}"
        for name in (
            "dirty_ratio", "dirty_bytes", "dirty_background_ratio", "dirty_background_bytes", "dirty_expire_centisecs",
            "dirty_writeback_centisecs", "swappiness", "vfs_cache_pressure", "zone_reclaim_mode",
        )
    },
}  # fmt: skip
_KDAMONDS, _MOST_KDAMONDS = Path("/sys/kernel/mm/damon/admin/kdamonds"), 64
_DAMON_RECLAIM = Path("/sys/module/damon_reclaim/parameters/enabled")
_OF_DEVICE = (
    *(
        f"queue/{name}"
        for name in (
            "scheduler", "read_ahead_kb", "nr_requests", "max_sectors_kb", "nomerges", "rq_affinity", "wbt_lat_usec",
            "write_cache", "io_poll",
        )
    ),
    "device/queue_depth", "loop/dio", "md/degraded", "md/sync_action",
)  # fmt: skip
# Options of a mount that name a place, which is another one at each.
_PLACES = ("addr=", "clientaddr=", "mountaddr=", "mountport=", "lowerdir=", "upperdir=", "workdir=")


def describe_process() -> Facts:
    """Return the facts of this process: priorities, tracers, filters, libraries that answer calls, environment."""
    status = dict(line.split(":\t", 1) for line in _read_text("/proc/self/status").splitlines() if ":\t" in line)
    # As the process was started: what it sets itself, libraries do for every run.
    words = (each.partition("=") for each in _read_text("/proc/self/environ").split("\0"))
    variables = {name: value for name, _, value in words if name.startswith(_VARIABLES)}
    elsewhere = [f"{name}: {library}" for name, library in interposed_calls().items()]
    elsewhere += [f"any call: {auditor}"] if (auditor := variables.get("LD_AUDIT")) else []  # rtld-audit(7), la_symbind
    facts: dict[str, str | int | None] = {
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "scheduling": _POLICIES.get(os.sched_getscheduler(0) & 0xFF),
        "io_priority": _io_priority(),
        "memory_policy": _memory_policy(),
        "tracer": _read_text(f"/proc/{status['TracerPid']}/comm").strip()
        if status.get("TracerPid", "0") != "0"
        else None,
        "call_filter": status.get("Seccomp"),
        "interposed": _short_text(", ".join(elsewhere)) or None,
        "allocator": memory_allocator(),
        **{
            name: _short_text(value) for name, value in sorted(variables.items()) if not name.startswith(_NOT_VARIABLES)
        },
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def describe_machine() -> Facts:
    """Return the facts of the machine: processors, limits of control groups, kernel settings, frequencies."""
    facts = {
        "kernel": platform.release(),
        "cpus": _describe_cpus(),
        "quota_cores": cgroup.quota_cores(),
        # Of a job the memory grows with its processors, and these with the threads of a cell.
        "memory_limit_bytes": None if _job_cpus() else cgroup.memory_limit_bytes(),
        **{name: _first_lines(Path("/").glob(pattern.lstrip("/"))) for name, pattern in _OF_MACHINE.items()},
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def proactive_reclaim() -> list[str]:
    """Return what takes pages out of memory before it is short, by the file that switches it on.

    This is DAMON (Documentation/admin-guide/mm/damon): a module, or a kdamond that runs with a scheme ``pageout``. Its
    files are root's in some kernels: what this process may not read is not seen. It is a fact of the machine and no
    condition: a host may switch it on and off every few seconds, and a run proves by itself where its bytes came from.
    """
    kdamonds = islice(_KDAMONDS.glob("*/state"), _MOST_KDAMONDS)
    switches = [
        state
        for state in sorted(kdamonds)
        if _read_text(state).strip() == "on"
        and "pageout" in (_first_lines(state.parent.glob("contexts/*/schemes/*/action")) or "").split(", ")
    ]
    if _read_text(_DAMON_RECLAIM).strip() == "Y":
        switches.append(_DAMON_RECLAIM)
    return [str(switch) for switch in switches]


def describe_storage(folder: Path) -> Facts:
    """Return the facts of the storage of a folder: its mount, the settings of its device and of those below it.

    `folder` may be a device itself. Of several devices below, each value that one of them has. Limits of control groups
    on what is read and written there are one fact.
    """
    mount, (top, below), number = mount_of(folder), _device_folders(folder), folder.stat().st_dev
    options = [each for each in f"{mount.options},{mount.superblock}".split(",") if not each.startswith(_PLACES)]
    facts = {
        "mount": f"{mount.fstype} {','.join(dict.fromkeys(options))}",
        "attributes": _folder_attributes(folder),
        "io_limits": ", ".join(sorted({f"{each.kind} {each.per_s}" for each in io_limits(devices_behind(folder))})),
        "file_system_read_ahead_kb": _first_lines(_read_aheads(number, top)),
        **{file.rpartition("/")[2]: _first_lines(device / file for device in top) for file in _OF_DEVICE},
        **{f"below.{file.rpartition('/')[2]}": _first_lines(device / file for device in below) for file in _OF_DEVICE},
        "scheduler_settings": _describe_schedulers(top),
        "below.scheduler_settings": _describe_schedulers(below),
    }
    return {name: fact for name, fact in facts.items() if fact}


def _device_folders(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the folder in sysfs of the device that holds a folder, and of those below that."""
    behind = [Path("/sys/block", device.name) for device in devices_behind(folder)]
    return behind[:1], behind[1:]


def _describe_schedulers(devices: Iterable[Path]) -> str:
    """Return the settings of the schedulers of devices, by their names, each once."""
    files = [file for device in devices for file in sorted(device.glob("queue/iosched/*"))]
    return ", ".join(dict.fromkeys(f"{file.name} {_read_text(file).strip()}" for file in files))


def _read_aheads(number: int, devices: list[Path]) -> list[Path]:
    """Return the files that say how far a file system without a device of its own reads ahead, without btrfs's."""
    if os.major(number):
        return []
    of_btrfs = [
        each.parents[1] for device in devices for each in Path("/sys/fs/btrfs").glob(f"*/devices/{device.name}")
    ]
    places = [Path("/sys/class/bdi", f"{os.major(number)}:{os.minor(number)}"), *(each / "bdi" for each in of_btrfs)]
    return [place / "read_ahead_kb" for place in places]


def _folder_attributes(folder: Path) -> str:
    """Return the letters of lsattr(1) that a folder has; empty if its file system knows none."""
    buffer = bytearray(8)
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_NONBLOCK)
        try:
            fcntl.ioctl(descriptor, _GET_FLAGS, buffer)
        finally:
            os.close(descriptor)
    flags = int.from_bytes(buffer, sys.byteorder)
    return "".join(letter for letter, flag in _ATTRIBUTES.items() if flags & flag)


def _describe_cpus() -> str:
    """Return how many processors this process may use, on how many cores, and those that its job lacks."""
    allowed, parts = os.sched_getaffinity(0), ("physical_package_id", "core_id")
    if 0 < _job_cpus() <= len(allowed):
        return "those of the job"
    cores = {tuple(_read_text(f"{_CPUS}/cpu{cpu}/topology/{part}") for part in parts) for cpu in allowed}
    return f"{len(allowed)} of {len(cores)} core{'s' * (len(cores) != 1)}"


def _job_cpus() -> int:
    """Return how many processors Slurm gave to each task of this job; 0 outside a job."""
    return int(os.environ.get("SLURM_CPUS_PER_TASK") or os.environ.get("SLURM_CPUS_ON_NODE") or 0)


def _io_priority() -> str | None:
    if _IOPRIO_GET is None or (priority := _libc.syscall(_IOPRIO_GET, 1, 0)) < 0:
        return None
    kind, level = priority >> 13, priority & 0x7
    return f"{_IO_CLASSES[kind]} {level}" if kind in (1, 2) else _IO_CLASSES[kind]


def _memory_policy() -> str | None:
    """Return how memory is taken from the nodes of a machine (numactl(8)); None for the kernel's default."""
    mode = ctypes.c_int()
    if _GET_MEMPOLICY is None or _libc.syscall(_GET_MEMPOLICY, ctypes.byref(mode), None, 0, None, 0):
        return None
    return _MEMORY_POLICIES.get(mode.value & 0xFF)  # flags stand above


def _first_lines(paths: Iterable[Path]) -> str | None:
    """Return the first lines of files, each once; of a list of choices the one in brackets; None for no file."""
    lines = filter(None, (_read_text(path).partition("\n")[0].strip() for path in paths))
    chosen = [choice[1] if (choice := re.search(r"\[(\S+)\]", line)) else line for line in lines]
    return ", ".join(dict.fromkeys(sorted(chosen))) or None


def _short_text(value: str) -> str:
    """Return a text for one line: a long or unprintable one by its checksum."""
    if len(value) <= _LONGEST and value.isprintable():
        return value
    digest = hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()[:16]
    return f"{len(value)} letters, SHA-256 {digest}…"


def _read_text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
