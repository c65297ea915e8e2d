"""Libraries that come and go while the process is watched, and what they call."""

import ctypes
import errno
import os
import platform
from pathlib import Path

import pytest

from jobs.profiler import Profile
from tests.jobs.profiler.test_beside import built
from tests.jobs.profiler.test_exact import calls

LOADED = "int caller(void) { return 7; }\n"
LOADER = """#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>
int found(void) { return dlopen("libloaded.so", RTLD_NOW) != 0; }
int reads(const char *path) { char c; int fd = open(path, O_RDONLY), n = read(fd, &c, 1); close(fd); return n; }
"""


def test_what_is_loaded_in_a_window_is_hooked_and_finds_its_libraries(data, tmp_path):
    folder = tmp_path / "below"
    folder.mkdir()
    built(folder, "loaded", LOADED)
    library = built(tmp_path, "loader", LOADER, f"-Wl,-rpath,{folder},--enable-new-dtags")

    with Profile(only=[data]) as watched:
        loader = ctypes.CDLL(library)
        assert loader.reads(os.fsencode(data)) == 1
        assert loader.found(), "the caller's RUNPATH was not searched"

    assert calls(watched) == {"open": 1, "read": 1, "close": 1}


FORGETS = """#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
int close_range(unsigned, unsigned, int);
static int fd;
int begins(const char *old) { char c; return read(fd = open(old, O_RDONLY), &c, 1); }
int by_range(const char *new) { return close_range(fd, fd, 0) + syscall(257, AT_FDCWD, new, O_RDONLY) - fd; }
int by_stream(const char *new) { return freopen(new, "r", fdopen(fd, "r")) == NULL; }
int ends(void) { char c; return read(fd, &c, 1); }
int nowhere(void) { struct stat to; return open((char *)1, O_RDONLY) + stat((char *)1, &to); }
"""


@pytest.fixture(scope="module")
def forgets(tmp_path_factory):
    """A library that gives a descriptor another file without close."""
    return ctypes.CDLL(built(tmp_path_factory.mktemp("library"), "forgets", FORGETS))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the number of openat is x86-64's")
@pytest.mark.parametrize("way", ["by_range", "by_stream"])
def test_a_descriptor_forgets_its_file_however_that_is_closed(way, data, forgets):
    other = data.with_name("other")
    other.write_bytes(b"12345")

    with Profile(only=[data.parent]) as watched:
        assert forgets.begins(os.fsencode(data)) == 1
        assert getattr(forgets, way)(os.fsencode(other)) == 0
        assert forgets.ends() == 1

    assert {
        Path(path).name: each["POSIX_BYTES_READ"] for path, each in watched.files.items() if "POSIX_READS" in each
    } == {"file": 1, "other": 1}


def test_a_path_that_cannot_be_read_is_no_dropped_call(forgets):
    with Profile() as watched:
        forgets.nowhere()

    assert watched.events["error"].tolist() == [errno.EFAULT] * 2
    assert (watched.dropped, list(watched.files)) == (0, ["<no path>"])
