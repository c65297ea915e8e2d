"""What of submitit is used: its executors, which write batch scripts and start processes.

submitit is imported where it is needed, for it is not on the way to --help, status or --dry-run on this machine.

One function of submitit's own is called here: what it makes the text of a batch script with is public nowhere. Its
public `submit` pickles a function, writes that text and calls sbatch at once, so that a script could neither be shown
(--dry-run) nor be submitted by `campaign.slurm`, which knows what sbatch refuses. tests/campaign/cluster/
test_sbatch_text.py reads the whole text, and fails with another function.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from campaign.errors import EnvironmentFaultError


def array_script(folder: Path, parameters: Mapping[str, object], tasks: int, command: str) -> str:
    """Return the text that ``sbatch`` gets for an array job, also of one task."""
    import submitit  # noqa: PLC0415 - see above

    try:
        executor = submitit.SlurmExecutor(folder)
    except RuntimeError as error:
        raise EnvironmentFaultError(f"cluster=slurm: {error}", "on a machine without Slurm: cluster=local") from error
    executor.update_parameters(**parameters)
    executor.parameters["map_count"] = tasks
    return str(executor._make_submission_file_text(command, ""))  # noqa: SLF001


def on_this_machine(folder: Path, cluster: str, name: str, timeout_min: int) -> Any:
    """Return what submits functions to this machine (``local``) or to this very process (``debug``)."""
    import submitit  # noqa: PLC0415 - see above

    executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
    executor.update_parameters(name=name, timeout_min=timeout_min)
    return executor
