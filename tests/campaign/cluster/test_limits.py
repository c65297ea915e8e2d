"""What the cluster would refuse or never start is found by what Slurm says of its partitions, and by sbatch's test."""

import pytest

from campaign.cells import cell_plan
from campaign.cluster import limits, submission
from campaign.config.points import cells_of
from campaign.errors import SchedulerError, UsageError
from campaign.worker.work_list import Request
from tests.campaign.work_lists import grid

LIMITS = "MaxNodes=2 MaxTime=01:30:00 MaxCPUsPerNode=UNLIMITED State=UP MaxMemPerNode=1000"
DEBUG = f"PartitionName=debug Default=YES {LIMITS}"
LONG = "PartitionName=long Default=NO MaxNodes=UNLIMITED MaxTime=2-00:00:00 MaxCPUsPerNode=4 State=UP"


@pytest.fixture
def nodes(programs):
    """A function that says what nodes the cluster has, and what sbatch answers to a test of a script."""
    programs("srun")

    def have(*lines, partitions=(DEBUG, LONG), sbatch="exit 0"):
        programs.answer("scontrol", *partitions)
        programs.answer("sinfo", *lines)
        programs("sbatch", sbatch)

    have("PARTITION=debug CPUS=2 STATE=idle", "PARTITION=debug CPUS=8 STATE=idle", "PARTITION=long CPUS=16 STATE=mixed")
    return have


@pytest.fixture
def examine(folder, nodes):
    """Examine the jobs of these words."""

    def examined(*words):
        cells, conduct = cells_of(grid("cluster=slurm", *words))
        entries = cell_plan.make(cells, conduct, folder).to_do
        limits.examine(list(submission.arrays(entries, Request(folder, conduct, "0a1b2c3d", "2026", words), 1001)))

    return examined


@pytest.mark.parametrize(
    ("words", "message", "cure"),
    [
        ("threads=1,4 cluster.cpus_per_task=2", "threads=4 with cluster.cpus_per_task=2", "cluster.cpus_per_task=4"),
        ("threads=9", "threads=9: a job gets 8 CPUs of a node at most in partition debug", "threads=8 or less"),
        ("threads=5 cluster.partition=long", "threads=5: a job gets 4 CPUs", "threads=4 or less"),
        ("cluster.cpus_per_task=9", "cluster.cpus_per_task=9: a job gets 8 CPUs", "cluster.cpus_per_task=8 or less"),
    ],
)
def test_more_threads_than_a_job_has_cpus_are_refused_with_the_cure(words, message, cure, examine):
    with pytest.raises(UsageError, match=message) as caught:
        examine(*words.split())

    assert caught.value.hint.startswith(cure)


@pytest.mark.parametrize(
    ("words", "warning"),
    [
        ("threads=8", ""),
        ("threads=9 cluster.cpus_per_task=8 cluster.oversubscribe=true", ""),
        ("threads=8 cluster.partition='long,debug'", ""),  # of any of the partitions
        ("cluster.timeout_min=91 cluster.partition='debug,long'", ""),
        ("cluster.timeout_min=90 cluster.mem_gb=1.048 nodes=2", ""),
        ("cluster.timeout_min=91", "cluster.timeout_min=91: partition debug allows 90 min (MaxTime)"),
        ("cluster.mem_gb=1.1", "memory=1050: partition debug allows 1000 MiB (MaxMemPerNode)"),
        ("nodes=3", "nodes=3: partition debug allows 2 nodes (MaxNodes)"),
        ("cluster.timeout_min=2881 cluster.partition=long", "partition long allows 2880 min"),
    ],
)
def test_a_limit_with_which_a_job_would_wait_for_ever_is_said(words, warning, examine, programs, capsys):
    examine(*words.split())

    said = capsys.readouterr().err
    assert warning in said
    assert (programs.asked[-1], bool(said)) == ("sbatch", bool(warning))


def test_a_partition_that_is_down_is_said(examine, nodes, capsys):
    nodes("PARTITION=debug CPUS=8 STATE=idle", partitions=(DEBUG.replace("State=UP", "State=DOWN"),))

    examine()

    assert "partition debug is down" in capsys.readouterr().err


UNAVAILABLE = "echo allocation failure: Requested node configuration is not available >&2; exit 1"
TOO_MANY = "echo sbatch: error: AssocMaxSubmitJobLimit >&2; exit 1"


@pytest.mark.parametrize(
    ("sbatch", "warning"),
    [
        (UNAVAILABLE, "not available; 2 nodes of the partition cannot be used now"),  # Slurm would take the job
        (TOO_MANY, ""), ("exit 0", ""),  # how many jobs there are now is left to the submission
    ],
)  # fmt: skip
def test_what_may_be_taken_all_the_same_is_not_refused(sbatch, warning, examine, nodes, capsys):
    nodes("PARTITION=debug CPUS=8 STATE=idle", *["PARTITION=debug CPUS=8 STATE=drained"] * 2, sbatch=sbatch)

    examine("threads=1,2")

    said = capsys.readouterr().err
    assert warning in said
    assert bool(warning) is bool(said)


def test_what_sbatch_s_own_test_refuses_is_refused_before_anything_is_made(examine, nodes):
    nodes("PARTITION=debug CPUS=8 STATE=idle", sbatch=UNAVAILABLE)

    with pytest.raises(SchedulerError, match="refuses 2 jobs: allocation failure: Requested node configuration"):
        examine("threads=1,2")


def test_a_cluster_that_says_nothing_of_its_partitions_refuses_nothing(examine, nodes, programs):
    programs("scontrol", "exit 1")

    examine("threads=9", "cluster.timeout_min=1000")
