"""Other programs: started without our standard input, their output kept as text."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def run(
    command: Sequence[str], environment: Mapping[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, whatever its exit code; its messages are in English unless `environment` is given.

    What is no UTF-8 in its output (a path of somebody's) is replaced.
    """
    return subprocess.run(
        command,
        env=os.environ | {"LC_ALL": "C"} if environment is None else environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        **options,
    )
