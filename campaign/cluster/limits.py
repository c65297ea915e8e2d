"""What the cluster would refuse or never start, partitions before anything is made or submitted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from campaign import console
from campaign.cluster.submission import Array
from campaign.console import counted
from campaign.errors import SchedulerError, refuse
from campaign.slurm.client import Refusal, sbatch
from campaign.slurm.partitions import Partition, named


def examine(arrays: Sequence[Array]) -> None:
    """Refuse jobs that no node can run, and name limits of the partition with which they would wait for ever.

    Raises
    ------
    UsageError
        A cell has more threads than its job would have CPUs, or a job asks for more CPUs than any node has.
    SchedulerError
        ``sbatch --test-only`` does not take a script.
    """
    partitions = named(arrays[0].request.conduct["cluster"]["partition"])
    refuse(why for array in arrays for why in _lacks_cpus(array, partitions))
    for line in dict.fromkeys(line for array in arrays for line in _waits_for_ever(array, partitions)):
        console.say(f"warning: {line}")
    for array in arrays:
        _test(array, sum(partition.nodes_away for partition in partitions))


def _lacks_cpus(array: Array, partitions: Sequence[Partition]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the CPUs that the jobs of an array would ask for, and the cure."""
    cluster = array.request.conduct["cluster"]
    if array.threads > array.cpus and not cluster["oversubscribe"]:
        yield (
            f"threads={array.threads} with cluster.cpus_per_task={array.cpus}: a job has fewer CPUs than threads",
            f"cluster.cpus_per_task={array.threads}, or cluster.oversubscribe=true to measure it so",
        )
    most = max((partition.cpus_at_most for partition in partitions), default=array.cpus)
    if array.cpus > most:
        what = "cluster.cpus_per_task" if cluster["cpus_per_task"] else "threads"
        so = f"cluster.cpus_per_task={most} cluster.oversubscribe=true to measure more threads than CPUs"
        yield (
            f"{what}={array.cpus}: a job gets {most} CPUs of a node at most in {_names(partitions)}",
            f"{what}={most} or less, another cluster.partition, or {so}",
        )


def _waits_for_ever(array: Array, partitions: Sequence[Partition]) -> Iterator[str]:
    """Yield what is above the limit of each of the partitions: Slurm takes such a job and never starts it."""
    requests = (
        ("cluster.timeout_min", array.request.conduct["cluster"]["timeout_min"], "MaxTime", "min"),
        ("memory", array.mem_mb, "MaxMemPerNode", "MiB"),
        ("nodes", array.nodes, "MaxNodes", "nodes"),
    )
    for what, number, key, unit in requests:
        limits = [math.inf if (limit := each.limit(key)) is None else limit for each in partitions]
        if number is not None and number > (most := max(limits, default=math.inf)):
            yield (
                f"{what}={number}: {_names(partitions)} allows {most} {unit} ({key}); Slurm takes such a job and "
                f"never starts it: ask for {most} or less, or for another cluster.partition"
            )
    if partitions and all(each.values.get("State") == "DOWN" for each in partitions):
        yield f"{_names(partitions)} is down: jobs wait until it is up again, or take another cluster.partition"


def _names(partitions: Sequence[Partition]) -> str:
    return f"partition {', '.join(partition.name for partition in partitions)}"


def _test(array: Array, nodes_away: int) -> None:
    """Let ``sbatch --test-only`` read the very script; what may be taken all the same is said and not refused."""
    answer = sbatch("--test-only", script=array.script())
    if answer.refusal in (None, Refusal.NO_ANSWER, Refusal.TOO_MANY_NOW):
        return
    why = f"sbatch --test-only refuses {counted(len(array.tasks), 'job')}: {answer.words}"
    if nodes_away and answer.refusal == Refusal.NODES_AWAY:
        console.say(f"warning: {why}; {counted(nodes_away, 'node')} of the partition cannot be used now")
        return
    raise SchedulerError(
        why, "`python -m campaign doctor` tries account, partition and limits; --dry-run shows the script"
    )
