"""A program and all that it starts: waited for, accounted for, ended as a whole."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobs.system import programs
from jobs.system.programs import ProgramKeeper
from tests.jobs.jobs_factory import ROOT, eventually

PYTHON = sys.executable
DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(float(sys.argv[1])); open(sys.argv[2], "w").write(f"{os.getpid()} {os.getppid()}")
    os._exit(0)
"""
DEAF = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], "a").write(f"{os.getpid()}\\n"); time.sleep(600)
"""


@contextlib.contextmanager
def kept(*argv, environment=os.environ, folder="."):
    """Start a program; yields its keeper and a function that reads what it has printed by now."""
    read, write = os.pipe()
    keeper = ProgramKeeper(argv, folder, environment, write)
    os.close(write)
    try:
        keeper.begin()
        yield keeper, lambda: os.read(read, 1 << 16).decode() if select.select([read], [], [], 10)[0] else ""
    finally:
        keeper.close()
        os.close(read)


def runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_how_a_program_ends_is_known_though_it_ends_before_its_start_is_over():
    script = (
        "import os, signal, subprocess, time\nfrom jobs.system import programs\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, signal.SIGTERM))\n"
        "class Slow(subprocess.Popen):\n"
        "    def __init__(self, *words, **named):\n        super().__init__(*words, **named)\n        time.sleep(0.3)\n"
        "subprocess.Popen = Slow\n"
        "asked = {'argv': ['false'], 'folder': '/', 'environment': {}, 'errors_only': False}\n"
        "print(programs._Processes(asked, os.dup(1)).run().exit)\n"
    )

    done = subprocess.run([PYTHON, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout == "1\n"


def test_what_it_prints_and_how_it_ends_is_told():
    with kept(PYTHON, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)") as (keeper, text):
        ended = keeper.wait()
        assert {*text().split()} == {"out", "err"}

    assert (ended.exit, ended.signal, ended.stopped, ended.error) == (3, None, False, "")


def test_a_signal_is_told_as_such():
    with kept(PYTHON, "-c", "import os; os.kill(os.getpid(), 9)") as (keeper, _):
        ended = keeper.wait()

    assert (ended.exit, ended.signal) == (None, signal.SIGKILL)


def test_a_program_that_is_not_there_is_told(tmp_path):
    with kept("no-such-program", folder=str(tmp_path)) as (keeper, _):
        assert "no-such-program" in keeper.wait().error


def test_it_runs_in_a_session_of_its_own_in_its_folder_and_can_be_interrupted(tmp_path):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell's `&` leaves it
    script = "import os, signal; print(os.getsid(0) == os.getpid(), os.getcwd(), signal.getsignal(signal.SIGINT))"
    try:
        with kept(PYTHON, "-c", script, folder=str(tmp_path)) as (keeper, text):
            keeper.wait()
            assert text().split()[:3] == ["True", str(tmp_path), "<built-in"]  # Python's own handler
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_daemon_that_has_left_its_session_is_waited_for(tmp_path):
    with kept(PYTHON, "-c", DAEMON, "0.5", str(tmp_path / "done")) as (keeper, _):
        ended = keeper.wait()

    assert (tmp_path / "done").exists()
    assert ended.exit == 0
    assert ended.descendants_s > 0.3


def test_processor_time_and_bytes_are_those_of_the_whole_tree(tmp_path):
    (tmp_path / "data").write_bytes(os.urandom(8 << 20))
    os.sync()
    fd = os.open(tmp_path / "data", os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    script = (
        "import os, sys, time\n"
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        open(sys.argv[1], 'rb').read(); x = bytearray(64 << 20)\n"
        "        while time.process_time() < 0.4: pass\n    os._exit(0)\n"
    )
    with kept(PYTHON, "-c", script, str(tmp_path / "data")) as (keeper, _):
        ended = keeper.wait()

    assert ended.read_bytes >= 8 << 20
    assert ended.cpu_s >= 0.4
    assert ended.largest_bytes >= 64 << 20


def test_the_whole_tree_is_ended_and_what_does_not_listen_is_killed(tmp_path):
    told = tmp_path / "pids"
    with kept(PYTHON, "-c", DEAF, str(told)) as (keeper, _):
        assert eventually(lambda: told.exists() and len(told.read_text().split()) == 2)
        keeper.stop()
        ended = keeper.wait()

    assert ended.stopped
    assert ended.alive == []
    assert not any(map(runs, told.read_text().split()))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_tree_ends_when_the_process_that_asked_for_it_dies(number, tmp_path):
    script = (
        "import os, sys, time\nfrom jobs.system.programs import ProgramKeeper\n"
        "keeper = ProgramKeeper(['sleep', '600'], '.', os.environ, 1)\nkeeper.begin()\ntime.sleep(600)\n"
    )
    asker = subprocess.Popen([PYTHON, "-c", script], cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert eventually(lambda: "sleep" in _names_below(asker.pid))
        keepers = _below(asker.pid)
        asker.send_signal(number)
        asker.wait()
        assert eventually(lambda: not any(map(runs, keepers)), programs.ENDING_S)
    finally:
        asker.kill()
        asker.communicate()


def _below(pid):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found += [int(stat.parent.name), *_below(int(stat.parent.name))]
    return found


def _names_below(pid):
    names = []
    for each in _below(pid):
        with contextlib.suppress(OSError):
            names.append(Path(f"/proc/{each}/comm").read_text().strip())
    return names


def test_a_keeper_that_is_closed_before_its_program_begins_starts_nothing(tmp_path):
    read, write = os.pipe()
    began = time.monotonic()
    keeper = ProgramKeeper(["touch", str(tmp_path / "begun")], ".", os.environ, write)
    os.close(write)
    keeper.close()
    os.close(read)

    assert not (tmp_path / "begun").exists()
    assert time.monotonic() - began < programs.ENDING_S
