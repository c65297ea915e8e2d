"""The hook library under the compiler's sanitizers, which end a program that races or touches what is not its own."""

import os
import subprocess
from pathlib import Path

import pytest

from jobs.profiler import build

HERE = Path(__file__).parent


@pytest.mark.long
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_windows_open_and_end_beside_threads_that_read(sanitizer, tmp_path):
    flags = ["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", f"-fsanitize={sanitizer}", f"-I{build.HERE}"]
    library, program = tmp_path / "libhooks.so", tmp_path / "stress"
    names = (build.HERE / "names.c").read_text()
    # All names are forgotten when a window ends, and want one place in the table when the next begins.
    for usual, hard in (
        ("KEPT = 1 << 26", "KEPT = 1"),
        ("return (uint32_t)(hash >> 32) ^ (uint32_t)hash;", "return !hash;"),
    ):
        assert usual in names
        names = names.replace(usual, hard)
    for source in build.HERE.glob("*.c"):
        (tmp_path / source.name).write_text(names if source.name == "names.c" else source.read_text())
    sources = sorted(tmp_path.glob("*.c"))
    hidden = ["-fPIC", "-shared", "-fvisibility=hidden"]
    try:
        subprocess.run(["cc", *flags, *hidden, "-o", library, *sources], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no compiler with -fsanitize={sanitizer}: {error}")
    subprocess.run(["cc", *flags, "-o", program, HERE / "stress.c", library, "-lpthread"], check=True)
    environment = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1", "UBSAN_OPTIONS": "halt_on_error=1"}

    done = subprocess.run([program, tmp_path], env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 wrong" in done.stdout
