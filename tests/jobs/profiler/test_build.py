"""The library: where it is built, and when it is built anew."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.profiler import build
from jobs.profiler.hook_library import WindowCapacity


def test_without_a_compiler_the_first_use_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(build, "library_path", lambda: tmp_path / "none.so")
    monkeypatch.setattr(build, "HERE", Path(build.__file__).parent)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)

    with pytest.raises(build.BuildError, match="install gcc or clang"):
        build.build_library()


def _by_anyone(target):
    target.chmod(0o666)


def _by_a_link(target):
    target.rename(target.with_name("elsewhere"))
    target.symlink_to("elsewhere")


def _by_another(target):
    if os.geteuid():
        pytest.skip("only root gives files away")
    os.chown(target, 12345, 12345)


@pytest.mark.parametrize("written", [_by_anyone, _by_a_link, _by_another])
def test_a_library_that_others_may_have_written_is_built_anew(written, monkeypatch, tmp_path):
    compiler = tmp_path / "cc"  # one that takes no time
    compiler.write_text(f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\ncp "{build.library_path()}" "$2"\n')
    compiler.chmod(0o755)
    target, other = tmp_path / "hooks-new.so", tmp_path / build.library_path().name
    for path in (target, other):
        path.write_bytes(b"not ours")
        path.chmod(0o644)
    written(target)
    monkeypatch.setattr(build, "library_path", lambda: target)
    monkeypatch.setenv("CC", str(compiler))

    before = os.umask(0o077)
    built = build.build_library()
    os.umask(before)

    assert built.read_bytes().startswith(b"\x7fELF")
    assert stat.S_IMODE(built.lstat().st_mode) == 0o755
    assert other.exists(), "another machine may run from it"


COMPILERS = [each for each in ("gcc", "clang", "aarch64-linux-gnu-gcc") if shutil.which(each)]
SPAWNS = """
import subprocess, sys
from pathlib import Path
from jobs.profiler import Profile, build
build.library_path = lambda: Path(sys.argv[1])
with Profile() as profile:
    subprocess.run(["true"], check=True)
assert len(profile.events)
"""


@pytest.mark.parametrize("compiler", COMPILERS)
def test_each_compiler_that_is_here_takes_it_without_a_warning_and_calls_vfork_by_a_jump(
    compiler, monkeypatch, tmp_path
):
    monkeypatch.setattr(build, "library_path", lambda: tmp_path / "hooks.so")
    monkeypatch.setenv("CC", f"{compiler} -Wall -Wextra -Werror")

    assert build.build_library().read_bytes().startswith(b"\x7fELF")

    if not compiler.startswith("aarch64"):
        subprocess.run([sys.executable, "-c", SPAWNS, tmp_path / "hooks.so"], check=True)


def test_a_windows_room_is_what_the_library_expects():
    assert (WindowCapacity("trace", 1, 1).names_at, WindowCapacity("counters", 1, 1).names_at) == (
        4096 + 56,
        4096 + 448,
    )
