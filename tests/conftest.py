"""What all test rooms share."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.lies.lie import MissingError

_NOBODY = 65534


def pytest_configure(config):
    """Let Ctrl-C reach what the tests start, also where they were started with SIGINT ignored (`&` in a script).

    Tables are as wide as for a pipe, whatever width the caller's shell has told. Bytecode is kept, whatever that has
    told: tests start processes by the hundred. What is kept of a user lies in a folder of the tests. Each property is
    tried on 15 examples; CI has time for 40. No garbage is looked for among what is collected.
    """
    gc.disable()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.pop("COLUMNS", None)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    state = tempfile.TemporaryDirectory(prefix="tfio-tests-state-")
    config.add_cleanup(state.cleanup)
    os.environ["XDG_STATE_HOME"] = state.name
    examples = 40 if os.environ.get("TFIO_REQUIRE_ALL") else 15
    known = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    settings.register_profile("plain", deadline=None, max_examples=examples, suppress_health_check=known)
    settings.load_profile("plain")


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Where ``TFIO_REQUIRE_ALL`` is set (CI), a test whose component is missing fails instead of being skipped."""
    report = yield
    if report.skipped and os.environ.get("TFIO_REQUIRE_ALL") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped where everything is required: {report.longrepr}"
    return report


@pytest.fixture
def staged():
    """Mount or make what a function of `tests.lies.setup` does; it goes when the test ends."""
    with contextlib.ExitStack() as stack:

        def made(make, *words, **kind):
            try:
                return make(stack, *words, **kind)
            except MissingError as error:
                pytest.skip(str(error))

        yield made


@pytest.fixture
def fake_lfs(tmp_path, monkeypatch):
    """Put a program lfs on PATH that prints recorded layouts; returns the file that logs how it was called."""

    def install(*, folder="", file="", complaint="", sleeps=False):
        place = tmp_path / "fake-lfs"
        place.mkdir()
        for name, text in {"folder": folder, "file": file, "complaint": complaint}.items():
            (place / name).write_text(text, encoding="utf-8")
        program = place / "lfs"
        program.write_text(
            "#!/bin/sh\n"
            f"cd '{place}'\n"
            'echo "$*" >> log\n'
            f"{'exec sleep 60' if sleeps else ''}\n"
            "if [ -s complaint ]; then cat complaint >&2; exit 25; fi\n"
            'case "$1 $2" in "getstripe -d") cat folder ;; getstripe*) cat file ;; esac\n',
            encoding="utf-8",
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
        return place / "log"

    return install


@pytest.fixture
def scratch():
    """Return a folder that any user may write to, with a sticky bit, as the root of a scratch file system."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def stranger():
    """Return what calls a function as another user, in a process of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as another user")

    def act(function, *arguments):
        child = os.fork()
        if not child:
            code = 1
            try:
                os.setgroups([])
                os.setgid(_NOBODY)
                os.setuid(_NOBODY)
                os.umask(0o022)
                function(*arguments)
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the other user could not do it"

    return act


@pytest.fixture
def nested():
    """Return what makes 3,000 folders in each other; pytest itself could not remove them."""
    made = []

    def make(folder):
        made.append(folder)
        folder.mkdir()
        here = os.open(folder, os.O_PATH)
        for _ in range(3000):
            os.mkdir("d", dir_fd=here)
            here, above = os.open("d", os.O_PATH, dir_fd=here), here
            os.close(above)
        os.close(here)

    yield make
    for folder in made:
        subprocess.run(["rm", "-rf", folder], check=True)


@pytest.fixture(scope="session")
def _ceph():
    from tests.ceph import lab as laboratory  # noqa: PLC0415 - for these tests alone

    if reason := laboratory.missing_for_gateway():
        pytest.skip(reason)
    with laboratory.lab(loop=os.geteuid() == 0) as gateway:
        yield gateway


@pytest.fixture
def ceph(_ceph):
    """A Ceph gateway (`tests.ceph.lab.Lab`) with an own user and bucket; as root its disk is a loop device."""
    yield _ceph
    _ceph.mend()
