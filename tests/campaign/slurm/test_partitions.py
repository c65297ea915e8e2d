"""The partitions of a cluster, as Slurm tells of them."""

import pytest

from campaign.slurm.partitions import Partition, named

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
    told = named(names)

    assert [(each.name, each.node_cpus, each.cpus_at_most, each.nodes_away) for each in told] == found
    asked = [",".join(each.name for each in told)] if found else ["empty"] * (names == "empty")
    assert [call.split()[4] for call in cluster.calls if call.startswith("sinfo")] == asked


@pytest.mark.parametrize("silent", ["scontrol", "sinfo"])
def test_what_slurm_does_not_tell_is_no_partition(silent, cluster):
    cluster(silent, "exit 1")

    assert named("debug") == []


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
