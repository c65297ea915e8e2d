"""Other programs: started without our standard input, their output kept as text."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_OURS = Path(__file__).parents[2]
_LAST_S = 1.0  # in which a killed process ends, unless it waits for a device


def python(*words: str) -> list[str]:
    """Return a command of this Python, for which no file of the current folder stands for a module.

    In the root of a checkout that is not installed our own modules are such files.
    """
    return [sys.executable, *([] if Path().samefile(_OURS) else ["-P"]), *words]


def run(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    timeout: float | None = None,
    text: str | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, whatever its exit code; its messages are in English unless `environment` is given.

    It reads `text`, or nothing.
    What is no UTF-8 in its output (a path of somebody's) is replaced. Raises subprocess.TimeoutExpired after `timeout`
    seconds, also where the program waits for a device and cannot be killed: `subprocess.run` would wait with it.
    """
    process = subprocess.Popen(
        command,
        env=os.environ | {"LC_ALL": "C"} if environment is None else environment,
        stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        **options,
    )
    try:
        said = process.communicate(text, timeout=timeout)
    except BaseException:
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_LAST_S)
        raise
    return subprocess.CompletedProcess(command, process.returncode, *said)
