"""Numbers of system calls, on each machine that we know, are those of the kernel's own headers."""

import platform
import re
import runpy
from pathlib import Path

import pytest

from jobs.system import clock, page_cache, threads, tunables

HEADERS = {
    "x86_64": next(Path("/usr/include").glob("*/asm/unistd_64.h"), Path("/none")),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
NAMES = {
    "reading": "read pread64 readv preadv readahead getdents64 sendfile",
    "opening": "open openat openat2 stat lstat newfstatat fstatat statx access",
    "writing": "write pwrite64 writev pwritev close fsync fdatasync",
    "sleeping": "nanosleep clock_nanosleep",
    "polling": "poll ppoll select pselect6",
}
SINGLE = {
    (clock, "_CLOCK_GETTIME"): "clock_gettime",
    (page_cache, "_CACHESTAT"): "cachestat",
    (tunables, "_IOPRIO_GET"): "ioprio_get",
}


@pytest.mark.parametrize("machine", HEADERS)
def test_each_number_is_that_of_its_call(machine, monkeypatch):
    if not HEADERS[machine].exists():
        pytest.skip(f"there is no {HEADERS[machine]}: install linux-libc-dev")
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)$", HEADERS[machine].read_text(), re.MULTILINE)
    numbers = {name: int(number) for name, number in found} | {"cachestat": 451}  # of Linux 6.5
    numbers.setdefault("access", numbers["faccessat"])
    monkeypatch.setattr(platform, "machine", lambda: machine)

    calls = runpy.run_path(threads.__file__)["_CALLS"]

    for kind, names in NAMES.items():
        assert {*getattr(calls, kind)} == {numbers[name] for name in names.split() if name in numbers}, kind
    assert {number: calls.polling[number] for number in calls.polling} == {
        numbers[name]: at for name, at in {"poll": 1, "ppoll": 1, "select": 0, "pselect6": 0}.items() if name in numbers
    }
    for (module, key), name in SINGLE.items():
        assert runpy.run_path(module.__file__)[key] == numbers[name], key
