"""Other programs: started without our standard input, their output kept as text."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

_LAST_S = 1.0  # in which a killed process ends, unless it waits for a device


def run(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    timeout: float | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, whatever its exit code; its messages are in English unless `environment` is given.

    What is no UTF-8 in its output (a path of somebody's) is replaced. Raises subprocess.TimeoutExpired after `timeout`
    seconds, also where the program waits for a device and cannot be killed: `subprocess.run` would wait with it.
    """
    process = subprocess.Popen(
        command,
        env=os.environ | {"LC_ALL": "C"} if environment is None else environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        **options,
    )
    try:
        said = process.communicate(timeout=timeout)
    except BaseException:
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_LAST_S)
        raise
    return subprocess.CompletedProcess(command, process.returncode, *said)
