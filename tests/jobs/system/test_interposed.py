"""Which library answers the calls of a process, by libraries that are preloaded for real."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from jobs.system.interposed import allocator, interposed
from tests.jobs.jobs_factory import ROOT

ASK = "import json; from jobs.system.interposed import *; print(json.dumps([interposed(), allocator()]))"


@pytest.fixture
def preloaded(tmp_path):
    """A function that preloads C source into a process; returns the library, and what that process says."""
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler")

    def ask(source):
        library = tmp_path / "libother.so"
        (tmp_path / "other.c").write_text(source)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "other.c"], check=True)
        environment = os.environ | {"LD_PRELOAD": str(library), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", ASK], env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
        return str(library), json.loads(done.stdout)

    return ask


def test_of_a_process_of_its_own_all_calls_are_the_c_librarys():
    assert (interposed(), allocator()) == ({}, None)


FREES = (
    "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stddef.h>\n"
    'void free(void *room) { void (*real)(void *) = (void (*)(void *))dlsym(RTLD_NEXT, "free"); real(room); }\n'
)
READS = "long pread(int f, void *to, long size, long at) { return 0; } int fsync(int f) { return 0; }"


@pytest.mark.parametrize(
    ("source", "calls", "allocates"),
    [
        (FREES + READS, ["pread", "fsync"], True),
        ("int stat(const char *of, void *to) { return 0; }", ["stat"], False),  # each read of a file begins so
        ("int other(void) { return 1; }", [], False),
    ],
)
def test_calls_of_a_preloaded_library_are_named_with_it_and_another_allocator_apart(
    source, calls, allocates, preloaded
):
    library, found = preloaded(source)

    assert found == [dict.fromkeys(calls, library), library if allocates else None]
