"""Where a lie is staged: a folder, images, and the campaign as a user runs it; all of it is undone at the end."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from PIL import Image

from tests.judged import records_of
from tests.lies import setup
from tests.lies.lie import INVALID, REFUSED, SET_ASIDE, VALID, Answer, Lie, NotStagedError

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 300
_PATIENCE_S, _ATTEMPTS = 5.0, 3
_REFUSALS = (2, 3)  # exit codes: wrong usage, or an environment that cannot run it
CAMPAIGN = (sys.executable, "-m", "campaign")
TINY = ("cluster=local", "runs=4", "threads=2", "batch_size=8", "storage.exclusive=none")
# The machine is shared: the load of others and the scatter of runs are not what is tested here.
LOOSE = (
    "checks.other_cpu_max=1000", "checks.other_device_max=1", "checks.spread_max=10",
    "checks.time_error_max=0.1", "checks.stolen_max=1000",
)  # fmt: skip
MARK = "TFIO_LIES_WORKSPACE"  # environment variable of every process that a workspace starts


@contextlib.contextmanager
def opened() -> Iterator[Workspace]:
    """Make a workspace in the folder for temporary files; undo everything, also after a failure."""
    folder = Path(tempfile.mkdtemp(prefix="tfio-lies-")).resolve()
    token = secrets.token_hex(8)
    try:
        with contextlib.ExitStack() as stack:
            try:
                yield Workspace(folder, stack, token)
            finally:
                _end_processes(token, _PATIENCE_S)
    finally:
        if not setup.mounts_below(folder):  # never delete through a mount that would not go away
            shutil.rmtree(folder, ignore_errors=True)


class Workspace:
    """A folder on a disk, and the stack of what must be undone."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack, token: str) -> None:
        self.folder, self.stack, self._token = folder, stack, token

    def images(self, folder: Path, number: int = 24, size: int = 0, pixels: int = 160, seed: int = 0) -> list[Path]:
        """Write JPEGs of noise and flush them; zeros behind the image fill each up to `size` bytes."""
        folder.mkdir(parents=True, exist_ok=True)
        draw = np.random.default_rng(seed)
        paths = [folder / f"{place:04d}.jpg" for place in range(number)]
        for path in paths:
            noise = draw.integers(0, 256, (pixels, pixels, 3), dtype=np.uint8)
            with path.open("wb") as file:
                Image.fromarray(noise).save(file, "JPEG")
                file.write(bytes(max(0, size - file.tell())))
                file.flush()
                os.fsync(file.fileno())
        return paths

    def disk(self, name: str = "disk", *options: str, file: Path | None = None, **kind: Any) -> setup.Disk:
        """Mount a new disk at `name`; `options` are those of mount, `kind` is as of `setup.disk`."""
        return setup.disk(self.stack, file or self.folder / f"{name}.img", self.folder / name, *options, **kind)

    def campaign(self, images: Path, *words: str, **how: Any) -> Answer:
        """Run a tiny campaign on a folder of images; `how` as of `run`."""
        return self.run("dataset=folder", f"dataset.path={images}", f"storage.root={images.parent}", *words, **how)

    def run(
        self,
        *words: str,
        on_line: Callable[[str], object] | None = None,
        inside: tuple[str, ...] = (),
        limits: tuple[str, ...] = LOOSE,
        **environment: str,
    ) -> Answer:
        """Run a tiny campaign with these words besides `TINY`, and with these limits of its checks.

        `on_line` is called with each line of its progress as soon as it is there; `inside` is a command that takes the
        campaign's as its arguments and runs it.
        """
        command = [*inside, *CAMPAIGN, *TINY, *limits, *words]
        lines = []
        with (
            (self.folder / "stdout").open("w+", encoding="utf-8") as out,
            self._process(command, environment, out) as running,
        ):
            for line in running.stderr or ():
                lines.append(line.rstrip())
                if on_line:
                    on_line(line)
            code = running.wait()
            out.seek(0)
            return self._answer(code, [*lines, *out.read().splitlines()])

    def program(
        self, *command: str, inside: tuple[str, ...] = (), **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run any program; `inside` as of `run`."""
        return subprocess.run(
            [*inside, *command], cwd=self.folder, env=self._environment(environment), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip

    def analysis(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the analysis alone."""
        return self.program(sys.executable, "-m", "analysis", *words)

    def records(self) -> list[dict[str, Any]]:
        """Read the records, without those that were set aside."""
        return records_of(self.folder / "results")

    def measured(self) -> list[dict[str, Any]]:
        """Return the measured runs of the records."""
        return [run for record in self.records() for run in record["runs"] if run["role"] == "measured"]

    @contextlib.contextmanager
    def _process(self, command: list[str], environment: dict[str, str], out: Any) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            command, cwd=self.folder, env=self._environment(environment), stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
        ) as running:  # fmt: skip
            limit = threading.Timer(TIMEOUT_S, _end_processes, [self._token])
            limit.start()
            try:
                yield running
            finally:
                limit.cancel()
                running.kill()

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT), MARK: self._token, "NO_COLOR": "1", **more}

    def _answer(self, code: int, lines: list[str]) -> Answer:
        runs = self.measured()
        checks = [(check["passed"], check["rule"], check["message"]) for run in runs for check in run.get("checks", ())]
        failed = [f"{rule}: {message}" for passed, rule, message in checks if passed is False]
        aside = list(self.folder.glob("results/records/*/elsewhere-*"))
        refused = code in _REFUSALS or not runs
        status = REFUSED if refused else SET_ASIDE if aside else VALID if code == 0 and not failed else INVALID
        reasons = [each["reason"] for each in (*runs, *self.records()) if each["reason"]]
        complaints = [*failed, *reasons, *(lines if status in {REFUSED, SET_ASIDE} else ())]
        remarks = [*complaints, *(f"{rule}: {message}" for _, rule, message in checks), *lines]
        passed = frozenset(rule for passed, rule, _ in checks if passed is True)
        return Answer(status, tuple(dict.fromkeys(complaints)), tuple(dict.fromkeys(remarks)), passed)


def run(lie: Lie) -> tuple[str, Answer]:
    """Run a lie in a workspace; where its neighbours were too late it did not happen, and is tried again."""
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(NotStagedError), opened() as workspace:
            return lie.run(workspace)
    with opened() as workspace:
        return lie.run(workspace)


def _end_processes(token: str, patience_s: float = 0.0) -> None:
    """Kill the processes that a workspace has left running; they have some time to end by themselves."""
    deadline = time.monotonic() + patience_s
    while _processes(token) and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in _processes(token):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _processes(token: str) -> list[psutil.Process]:
    """List the processes that a workspace has started; a mark in their environment names it."""
    return [each for each in psutil.process_iter(["environ"]) if (each.info["environ"] or {}).get(MARK) == token]
