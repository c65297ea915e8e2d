"""Read facts of the process, the machine and the storage that change the speed of a run but are no settings of a cell.

The facts of the process are its environment, its priorities and limits in the kernel, and the libraries that replace
calls of the C library. For example, a preloaded library can delay such a call, or answer it without the kernel. The
facts of the machine are processors, memory and settings of the kernel. The facts of a storage are its mount and the
queues of its devices. Unknown facts are left out. This module does not find a library that replaces only the calls of
one other library, or calls within Python.
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
_KERNEL_LIBRARY = "linux-vdso"  # code of the kernel that is mapped into each process, and that reads the clock
_LIBC_PARTS = ("libpthread.so.0", "librt.so.1", "libpthread-", "librt-")  # parts of the C library before version 2.34


class _Symbol(ctypes.Structure):
    """The answer of dladdr(3) about an address."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def interposed_calls() -> dict[str, str]:
    """Return the file and clock calls that a library other than the C library answers, with the library's path."""
    return _interposed_libraries((*READING, *WRITING, *TIMING))


def memory_allocator() -> str | None:
    """Return the path of the library that allocates memory, or None for the C library."""
    return next(iter(_interposed_libraries(_ALLOCATING).values()), None)


def _interposed_libraries(names: tuple[str, ...]) -> dict[str, str]:
    process = ctypes.CDLL(None)
    libc = _library_of_call("gnu_get_libc_version", process)
    if libc is None:  # not GNU's C library
        return {}
    libraries = {name: library for name in names if (library := _library_of_call(name, process)) not in (None, libc)}
    return {name: str(library) for name, library in libraries.items() if not _is_part_of(str(library), libc)}


def _is_part_of(library: str, libc: str) -> bool:
    name = Path(library).name
    return name.startswith(_KERNEL_LIBRARY) or (
        name.startswith(_LIBC_PARTS) and Path(library).parent == Path(libc).parent
    )


def _library_of_call(name: str, process: ctypes.CDLL) -> str | None:
    """Return the path of the library that answers the call `name` of this process, or None for an unknown call."""
    symbol = _Symbol()
    try:
        address = ctypes.cast(getattr(process, name), ctypes.c_void_p)
    except AttributeError:
        return None
    return symbol.file.decode(errors="replace") if process.dladdr(address, ctypes.byref(symbol)) else None


_libc = ctypes.CDLL(None)

Facts = dict[str, str | int | float]

# Prefixes of the names of environment variables that can change the speed. OpenMP, Intel's libraries and TensorFlow
# read their variables at the start of the process.
_VARIABLES = (
    "LD_", "GLIBC_TUNABLES", "MALLOC_", "MIMALLOC_", "TCMALLOC_", "PYTHONMALLOC", "PYTHONTRACEMALLOC", "PYTHONDEVMODE",
    "HDF5_", "TF_", "XLA_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "ONEDNN_", "DNNL_", "CUDA_LAUNCH_BLOCKING",
    "NVIDIA_TF32_OVERRIDE",
)  # fmt: skip
# Prefixes of variables that are not recorded: variables that this tool sets, and Terraform's variables, which are
# secrets.
_EXCLUDED_VARIABLES = ("TF_CPP_MIN_LOG_LEVEL", "TF_CONFIG", "TF_VAR_", "TF_TOKEN_", "TF_CLI_")
_LONGEST = 200  # characters; a longer value is replaced by its checksum
_POLICIES = {0: "other", 1: "fifo", 2: "round robin", 3: "batch", 5: "idle", 6: "deadline"}  # sched(7)
_IO_CLASSES = ("none", "realtime", "best effort", "idle")  # ioprio_get(2)
_IOPRIO_GET = {"x86_64": 252, "aarch64": 31}.get(platform.machine())  # asm/unistd.h
_GET_MEMPOLICY = {"x86_64": 239, "aarch64": 236}.get(platform.machine())
_MEMORY_POLICIES = {1: "preferred", 2: "bind", 3: "interleave", 4: "local", 5: "preferred many", 6: "weighted"}
_GET_FLAGS = 0x80086601  # FS_IOC_GETFLAGS, linux/fs.h
# Letters of lsattr(1) that change how files are read or written.
_ATTRIBUTES = {"c": 0x4, "S": 0x8, "A": 0x80, "j": 0x4000, "D": 0x10000, "C": 0x800000, "x": 0x2000000}
_CPUS = "/sys/devices/system/cpu"
_MACHINE_FILES = {
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
_DEVICE_FILES = (
    *(
        f"queue/{name}"
        for name in (
            "scheduler", "read_ahead_kb", "nr_requests", "max_sectors_kb", "nomerges", "rq_affinity", "wbt_lat_usec",
            "write_cache", "io_poll",
        )
    ),
    "device/queue_depth", "loop/dio", "md/degraded", "md/sync_action",
)  # fmt: skip
# Mount options that name a network address or a folder. Such options are left out, because they differ between mounts.
_LOCATION_OPTIONS = ("addr=", "clientaddr=", "mountaddr=", "mountport=", "lowerdir=", "upperdir=", "workdir=")


def describe_process() -> Facts:
    """Return facts about this process: priorities, tracers, filters, interposed libraries, environment variables."""
    status = dict(line.split(":\t", 1) for line in _read_text("/proc/self/status").splitlines() if ":\t" in line)
    # This file has the environment at the start of the process. Libraries change the environment later, but in the same
    # way in every run.
    pairs = (line.partition("=") for line in _read_text("/proc/self/environ").split("\0"))
    variables = {name: value for name, _, value in pairs if name.startswith(_VARIABLES)}
    interposed = [f"{name}: {library}" for name, library in interposed_calls().items()]
    # An audit library can replace any call: rtld-audit(7), la_symbind.
    interposed += [f"any call: {auditor}"] if (auditor := variables.get("LD_AUDIT")) else []
    facts: dict[str, str | int | None] = {
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "scheduling": _POLICIES.get(os.sched_getscheduler(0) & 0xFF),
        "io_priority": _io_priority(),
        "memory_policy": _memory_policy(),
        "tracer": _read_text(f"/proc/{status['TracerPid']}/comm").strip()
        if status.get("TracerPid", "0") != "0"
        else None,
        "call_filter": status.get("Seccomp"),
        "interposed": _short_text(", ".join(interposed)) or None,
        "allocator": memory_allocator(),
        **{
            name: _short_text(value)
            for name, value in sorted(variables.items())
            if not name.startswith(_EXCLUDED_VARIABLES)
        },
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def describe_machine() -> Facts:
    """Return facts about the machine: processors, limits of control groups, settings of the kernel, frequencies."""
    facts = {
        "kernel": platform.release(),
        "cpus": _describe_cpus(),
        "quota_cores": cgroup.quota_cores(),
        # In a Slurm job, the memory limit depends on the number of processors, and so on the threads of the cell. So
        # the limit is no fact of the machine.
        "memory_limit_bytes": None if _job_cpus() else cgroup.memory_limit_bytes(),
        **{name: _first_lines(Path("/").glob(pattern.lstrip("/"))) for name, pattern in _MACHINE_FILES.items()},
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def proactive_reclaim() -> list[str]:
    """Return the files that show that the kernel reclaims pages proactively, before memory is short.

    DAMON reclaims pages (Documentation/admin-guide/mm/damon): either the module ``damon_reclaim``, or a kdamond that
    runs with a scheme ``pageout``. In some kernels only root may read these files; then the result is empty.

    Proactive reclaim is not part of `describe_machine`, because a host may switch it on and off every few seconds. The
    checks of a run prove where the bytes of the run came from.
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
    """Return facts about the storage of a folder: its mount, and the settings of its device and of lower devices.

    `folder` may also be a device. If there are several lower devices, a fact contains the values of all of them. One
    fact contains all limits of control groups on reads and writes.
    """
    mount, (top, lower), number = mount_of(folder), _device_folders(folder), folder.stat().st_dev
    options = [
        option
        for option in f"{mount.options},{mount.superblock}".split(",")
        if not option.startswith(_LOCATION_OPTIONS)
    ]
    facts = {
        "mount": f"{mount.fstype} {','.join(dict.fromkeys(options))}",
        "attributes": _folder_attributes(folder),
        "io_limits": ", ".join(sorted({f"{limit.kind} {limit.per_s}" for limit in io_limits(devices_behind(folder))})),
        "file_system_read_ahead_kb": _first_lines(_read_aheads(number, top)),
        **{file.rpartition("/")[2]: _first_lines(device / file for device in top) for file in _DEVICE_FILES},
        **{
            f"below.{file.rpartition('/')[2]}": _first_lines(device / file for device in lower)
            for file in _DEVICE_FILES
        },
        "scheduler_settings": _describe_schedulers(top),
        "below.scheduler_settings": _describe_schedulers(lower),
    }
    return {name: fact for name, fact in facts.items() if fact}


def _device_folders(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the sysfs folders of the device that contains a folder, and of the devices below this device."""
    folders = [Path("/sys/block", device.name) for device in devices_behind(folder)]
    return folders[:1], folders[1:]


def _describe_schedulers(devices: Iterable[Path]) -> str:
    """Return the names and values of the devices' I/O scheduler settings; equal settings of two devices count once."""
    files = [file for device in devices for file in sorted(device.glob("queue/iosched/*"))]
    return ", ".join(dict.fromkeys(f"{file.name} {_read_text(file).strip()}" for file in files))


def _read_aheads(number: int, devices: list[Path]) -> list[Path]:
    """Return the files with the read-ahead of a file system that has no device number of its own, such as btrfs."""
    if os.major(number):
        return []
    btrfs_folders = [
        path.parents[1] for device in devices for path in Path("/sys/fs/btrfs").glob(f"*/devices/{device.name}")
    ]
    folders = [
        Path("/sys/class/bdi", f"{os.major(number)}:{os.minor(number)}"),
        *(folder / "bdi" for folder in btrfs_folders),
    ]
    return [folder / "read_ahead_kb" for folder in folders]


def _folder_attributes(folder: Path) -> str:
    """Return the attributes of a folder as letters of lsattr(1), or "" if its file system has no attributes."""
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
    """Return a text with the number of processors that this process may use, and the number of their cores.

    In a Slurm job that has all its processors, the text has no numbers, because the numbers depend on the cell.
    """
    allowed, parts = os.sched_getaffinity(0), ("physical_package_id", "core_id")
    if 0 < _job_cpus() <= len(allowed):
        return "those of the job"
    cores = {tuple(_read_text(f"{_CPUS}/cpu{cpu}/topology/{part}") for part in parts) for cpu in allowed}
    return f"{len(allowed)} of {len(cores)} core{'s' * (len(cores) != 1)}"


def _job_cpus() -> int:
    """Return the number of processors that Slurm gave to each task of this Slurm job, or 0 outside a Slurm job."""
    return int(os.environ.get("SLURM_CPUS_PER_TASK") or os.environ.get("SLURM_CPUS_ON_NODE") or 0)


def _io_priority() -> str | None:
    if _IOPRIO_GET is None or (priority := _libc.syscall(_IOPRIO_GET, 1, 0)) < 0:
        return None
    kind, level = priority >> 13, priority & 0x7
    return f"{_IO_CLASSES[kind]} {level}" if kind in (1, 2) else _IO_CLASSES[kind]


def _memory_policy() -> str | None:
    """Return how memory is allocated from the NUMA nodes (numactl(8)), or None for the kernel's default."""
    mode = ctypes.c_int()
    if _GET_MEMPOLICY is None or _libc.syscall(_GET_MEMPOLICY, ctypes.byref(mode), None, 0, None, 0):
        return None
    return _MEMORY_POLICIES.get(mode.value & 0xFF)  # higher bits are flags


def _first_lines(paths: Iterable[Path]) -> str | None:
    """Return the distinct first lines of files, or None without a file.

    If a line is a list of choices, only the choice in brackets is returned.
    """
    lines = filter(None, (_read_text(path).partition("\n")[0].strip() for path in paths))
    chosen = [choice[1] if (choice := re.search(r"\[(\S+)\]", line)) else line for line in lines]
    return ", ".join(dict.fromkeys(sorted(chosen))) or None


def _short_text(value: str) -> str:
    """Return a text that fits on one line; a long or unprintable text is replaced by its length and checksum."""
    if len(value) <= _LONGEST and value.isprintable():
        return value
    digest = hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()[:16]
    return f"{len(value)} letters, SHA-256 {digest}…"


def _read_text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
