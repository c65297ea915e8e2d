"""Other profilers in the same process: one that is preloaded works beside ours, one that rewrites slots is named."""

import os
import platform
import subprocess
import sys

import pytest

PRELOADED = """#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
int seen;
ssize_t read(int fd, void *to, size_t n) {
    static ssize_t (*next)(int, void *, size_t);
    if (!next) next = (ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
    seen++;
    return next(fd, to, n);
}
"""
BESIDE = """
import ctypes, os, sys
from pathlib import Path
from jobs.events import posix_window
from jobs.profiler import Profile, report
seen, descriptor = ctypes.c_int.in_dll(ctypes.CDLL(None), "seen"), os.open(sys.argv[1], os.O_RDONLY)
with Profile(only=[sys.argv[1]]) as profile:
    before = seen.value
    for _ in range(7):
        os.read(descriptor, 1)
    theirs = seen.value - before
assert (len(profile.events), theirs) == (7, 7), (len(profile.events), theirs)
profile.save(sys.argv[1] + ".npz")
print("; ".join(report.report_lines(posix_window.read_window(Path(sys.argv[1] + ".npz")))))
"""
REWRITES = """#include <unistd.h>
int reads(int fd) { char c; return read(fd, &c, 1); }
void rewrite(void *with) {
    void **slots;
    __asm__("lea _GLOBAL_OFFSET_TABLE_(%%rip), %0" : "=r"(slots));
    slots[3] = with; /* the first three are ld.so's own */
}
"""
REFUSED = """
import ctypes, sys
from jobs.profiler import Profile, ProfilerError
rewrites, wraps = (ctypes.CDLL(path) for path in sys.argv[1:])
rewrites.rewrite(ctypes.cast(wraps.wrapper, ctypes.c_void_p))
try:
    Profile().start()
except ProfilerError as error:
    assert "libwraps.so has its own functions in this process" in str(error), error
else:
    sys.exit(1)
"""


def built(folder, name, text, *flags):
    source, library = folder / f"{name}.c", folder / f"lib{name}.so"
    source.write_text(text)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, *flags], check=True)
    return str(library)


def python(script, *words, ends=0, **environment):
    """Run a script that ends with this code; returns what it printed."""
    command = [sys.executable, "-c", script, *words]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == ends, done.stderr
    return done.stdout


def test_one_that_is_preloaded_sees_the_same_calls(tmp_path):
    (tmp_path / "data").write_bytes(bytes(100))
    library = built(tmp_path, "darshan", PRELOADED)

    assert "; beside   darshan:" in python(BESIDE, str(tmp_path / "data"), LD_PRELOAD=library)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the order of slots is x86-64's")
def test_one_that_rewrites_slots_is_refused_by_name(tmp_path):
    rewrites = built(tmp_path, "rewrites", REWRITES, "-Wl,-z,lazy,-z,norelro")
    wraps = built(tmp_path, "wraps", "long wrapper(void) { return 1; }\n")

    python(REFUSED, rewrites, wraps)


OWN = "int access(const char *path, int mode) { return 42; }\n"
CALLS_OWN = "int access(const char *, int);\nint asks(void) { return access(0, 0); }\n"
ORDINARY = """
import ctypes, os, sys
from jobs.profiler import Profile
library = ctypes.CDLL(sys.argv[1], mode=os.RTLD_DEEPBIND | os.RTLD_NOW)
with Profile(only=["/nowhere"]):
    assert library.asks() == 42
"""


def test_a_librarys_own_function_of_a_hooked_name_stays_its_own_and_is_no_profiler(tmp_path):
    built(tmp_path, "own", OWN)
    library = built(tmp_path, "calls", CALLS_OWN, f"-L{tmp_path}", "-lown", f"-Wl,-rpath,{tmp_path},--no-as-needed")

    python(ORDINARY, library)
