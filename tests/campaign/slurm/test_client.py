"""Slurm's programs as they are asked, and what a job learns of itself.

The partitions of a cluster, as Slurm tells of them.
"""

import json
from pathlib import Path

import pytest

from campaign.slurm import client, job
from campaign.slurm.client import Partition, SlurmConfig, find_partitions

CONFIG = """\
Configuration data as of 2026-11-21T12:34:31
AccountingStorageHost   = localhost
AccountingStorageType   = accounting_storage/slurmdbd
ClusterName             = lab
JobCompHost             = localhost
JobCompLoc              = /var/log/slurm/job completions.log
JobCompType             = jobcomp/filetxt
MaxArraySize            = 2001
MinJobAge               = 3600 sec
SLURM_CONF              = /etc/slurm/slurm.conf
SLURM_VERSION           = 22.05.8
SlurmctldParameters     = enable_configless,idle_on_node_suspend=1

Slurmctld(primary) at n1 is UP
"""
NO_TEXT = ("jobcomp/none", "jobcomp/elasticsearch", "(null)")
TRACES = ("SLURM_JOB_ID", "SBATCH_PARTITION", "SRUN_DEBUG", "SQUEUE_FORMAT", "SACCT_FORMAT", "SCANCEL_USER")
KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURMISH")


@pytest.fixture
def traces(monkeypatch):
    """An environment as inside a job."""
    for name in (*TRACES, *KEPT):
        monkeypatch.setenv(name, "x")


def test_a_client_does_not_see_the_job_that_asks_and_still_finds_its_cluster(programs, traces):
    programs("squeue", "env")

    environment = {line.partition("=")[0] for line in client.ask_slurm("squeue").splitlines()}

    assert environment.isdisjoint(TRACES)
    assert environment.issuperset(KEPT)


@pytest.mark.parametrize(
    ("sbatch", "sinfo", "is_cluster"),
    [
        (True, "echo debug", True),
        (True, "echo 'slurm_load_partitions: Unable to contact slurm controller (connect failure)' >&2; exit 1", True),
        (True, "echo 'sinfo: fatal: Could not establish a configuration source' >&2; exit 1", False),
        (True, "exec sleep 60", True),
        (True, None, True),
        (False, "echo debug", False),
    ],
    ids=["answers", "is down", "is not configured", "hangs", "has no sinfo", "cannot submit"],
)
def test_a_cluster_is_where_sbatch_knows_where_it_is_even_if_it_is_down(
    sbatch, sinfo, is_cluster, programs, monkeypatch
):
    monkeypatch.setattr(client, "_PATIENCE_S", 0.5)
    if sbatch:
        programs("sbatch", "exit 1")
    if sinfo:
        programs("sinfo", sinfo)

    assert client.has_cluster() is is_cluster


@pytest.mark.parametrize(
    ("config", "version", "log", "numbers"),
    [
        (CONFIG, ("22.05.8", "lab"), Path("/var/log/slurm/job completions.log"), (3600, 2001)),
        ("", ("unknown", "unknown"), None, (300, 1001)),  # Slurm's defaults, of a controller that is down
        ("MaxArraySize = 0", ("unknown", "unknown"), None, (300, 1)),
        *((f"JobCompLoc = /x\nJobCompType = {kind}", ("unknown",) * 2, None, (300, 1001)) for kind in NO_TEXT),
    ],
)
def test_facts_are_read_from_what_scontrol_says(config, version, log, numbers, programs):
    programs.answer("scontrol", *config.splitlines())
    if not config:
        programs("scontrol", "exit 1")

    facts = client.read_slurm_config()

    assert programs.calls == ["scontrol show config"]
    assert (facts.version, facts.cluster) == version
    assert facts.completion_log == log
    assert (facts.min_job_age_s, facts.tasks_at_most) == numbers


@pytest.mark.parametrize(
    ("kind", "sacct", "worth_asking"),
    [
        ("accounting_storage/slurmdbd", True, True),
        ("accounting_storage/slurmdbd", False, False),
        ("accounting_storage/none", True, False),
        ("(null)", True, False),
        ("unknown", True, True),
    ],
)
def test_the_accounting_is_worth_a_question_where_there_is_one_and_sacct(kind, sacct, worth_asking, programs):
    if sacct:
        programs("sacct", "exit 1")

    assert SlurmConfig(f"AccountingStorageType   = {kind}").accounting is worth_asking


@pytest.mark.parametrize(
    ("answer", "described"),
    [
        (
            "echo 'JobId=77 JobName=tfio NodeList=n1 TRES=cpu=4,mem=8G UserId=me(1000) Licenses=(null)'",
            {"JobId": "77", "JobName": "tfio", "NodeList": "n1", "TRES": "cpu=4,mem=8G", "Licenses": "(null)"},
        ),
        ("exit 1", {}),
    ],
)
def test_a_job_is_described_by_what_was_granted_and_outside_one_there_is_nothing(
    answer, described, programs, monkeypatch
):
    programs("scontrol", answer)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert (job.describe_job(), job.requeue_job(), programs.calls) == ({}, False, [])
    monkeypatch.setenv("SLURM_JOB_ID", "77")

    assert job.describe_job() == described
    assert programs.calls == ["scontrol -o show job 77"]


TOO_SHORT = "cluster.timeout_min=… with more minutes, or a smaller cluster.cells_per_job"
AGAIN = "repeat the command to run the missing runs"
REACHED = "the time limit of 12 min was reached"
REFUSED = ", and Slurm did not take the job back into its queue"


@pytest.mark.parametrize(
    ("end", "left"),
    [
        ((3, 2, "exit 0", None), None),
        ((3, 3, "exit 0", None), (f"{REACHED} 4 times", TOO_SHORT)),
        ((0, 0, "exit 0", None), (f"{REACHED} 1 time", TOO_SHORT)),
        ((0, 0, "exit 0", "rank 1 is lost"), ("rank 1 is lost; the job was started 1 time", AGAIN)),
        ((3, 2, "exit 1", None), (f"{REACHED} 3 times{REFUSED}", f"{AGAIN}; {TOO_SHORT}")),
        ((3, 2, "exit 1", "rank 1 is lost"), (f"rank 1 is lost; the job was started 3 times{REFUSED}", AGAIN)),
        ((3, 0, "echo JobId=77 Restarts=1", None), None),  # Slurm took it for lost and has begun it again elsewhere
    ],
)
def test_a_job_goes_back_as_often_as_it_may_and_writes_down_why_it_does_not(end, left, programs, monkeypatch, tmp_path):
    most, restarts, scontrol, why = end
    programs("scontrol", scontrol)
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_RESTART_COUNT", str(restarts))
    cluster, fault = {"max_requeues": most, "timeout_min": 12}, tmp_path / "fault"

    job.requeue_or_explain(cluster, fault, why)

    tried = restarts < most and "Restarts" not in scontrol
    assert ("scontrol requeue 77" in programs.calls) is tried
    assert (json.loads(fault.read_text()) if fault.exists() else None) == (
        left and {"message": left[0], "hint": left[1]}
    )
    fault.unlink(missing_ok=True)
    assert job.was_restarted_too_often(cluster, fault) is False
    monkeypatch.setenv("SLURM_RESTART_COUNT", str(most + 1))
    assert job.was_restarted_too_often(cluster, fault) is fault.exists() is True


DEBUG = "PartitionName=debug Default=YES MaxCPUsPerNode=6 MaxTime=UNLIMITED State=UP Nodes=x Default=NO"
LONG = "PartitionName=long Default=NO MaxCPUsPerNode=UNLIMITED MaxTime=2-03:04:05 State=UP"
AWAY = ("down", "drained", "draining", "failing", "maint", "reserved", "unknown", "inval", "idle*", "mixed*")


@pytest.fixture
def cluster(programs):
    """A cluster with two partitions, and Slurm's programs."""
    programs.answer("scontrol", DEBUG, LONG, "PartitionName=empty Default=NO")
    nodes = [("debug", 4, "idle"), ("debug", 8, "mixed"), ("debug", 2, "allocated"), ("long", 16, "planned")]
    nodes += [("long", 3, state) for state in AWAY]
    programs.answer("sinfo", *(f"PARTITION={name} CPUS={cpus} STATE={state}" for name, cpus, state in nodes))
    return programs


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (None, [("debug", 8, 6, 0)]), ("debug", [("debug", 8, 6, 0)]), ("long", [("long", 16, 16, len(AWAY))]),
        ("long,debug", [("debug", 8, 6, 0), ("long", 16, 16, len(AWAY))]), ("nowhere", []), ("empty", []),
    ],
)  # fmt: skip
def test_partitions_are_told_by_name_with_their_largest_node_and_those_that_are_away(names, found, cluster):
    told = find_partitions(names)

    assert [(each.name, each.node_cpus, each.cpus_at_most, each.nodes_away) for each in told] == found
    asked = [",".join(each.name for each in told)] if found else ["empty"] * (names == "empty")
    assert [call.split()[4] for call in cluster.calls if call.startswith("sinfo")] == asked


@pytest.mark.parametrize("silent", ["scontrol", "sinfo"])
def test_what_slurm_does_not_tell_is_no_partition(silent, cluster):
    cluster(silent, "exit 1")

    assert find_partitions("debug") == []


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        *((text, None) for text in ("UNLIMITED", "NONE", "", "-3", "1.5")), ("0", 0), ("1000", 1000),
        ("00:30:00", 30), ("01:30:00", 90), ("23:59:59", 1439), ("1-00:00:00", 1440), ("2-03:04:05", 3064),
    ],
)  # fmt: skip
def test_a_limit_is_a_number_or_a_time_in_minutes(text, limit):
    assert Partition({"MaxTime": text}, 4, 0).limit("MaxTime") == limit
    assert Partition({"MaxTime": text}, 4, 0).limit("MaxNodes") is None


@pytest.mark.parametrize(("most", "cpus"), [("3", 3), ("4", 4), ("5", 4), ("0", 4), ("UNLIMITED", 4)])
def test_a_job_gets_no_more_processors_of_a_node_than_it_has_and_the_partition_gives(most, cpus):
    assert Partition({"MaxCPUsPerNode": most}, 4, 0).cpus_at_most == cpus
