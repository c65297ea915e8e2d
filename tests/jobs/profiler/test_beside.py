"""Other profilers in the same process: one that is preloaded works beside ours, one that rewrites slots is named."""

import os
import subprocess
import sys

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
