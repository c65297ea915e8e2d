"""Two workers of one list: the one that Slurm took for lost is alive, and leaves its cell to the other."""

from itertools import groupby

import pytest

from tests.slurm.campaigns import LONG, wait
from tests.slurm.lab import alive

_PATIENCE_S = 300  # a node's silence is noticed after 25-30 s, and the other worker imports TensorFlow first


@pytest.mark.long
def test_a_worker_whose_node_fell_silent_leaves_its_cell_to_the_one_that_slurm_began_elsewhere(campaign, lab):
    with campaign.under_way(*LONG, "runs=1000", "cluster.timeout_min=60", runs=2) as front:
        first, node = campaign.worker().pid, campaign.measured()[0]["node"]
        lab.kill_node(int(node[1:]))
        wait(lambda: campaign.job_states() == ["PENDING"])
        lived = alive(first)
        lab.release(f"{campaign.job()}_0")
        wait(lambda: not alive(first), _PATIENCE_S)
        left = campaign.job_states()
        wait(lambda: campaign.measured()[-1]["node"] != node, _PATIENCE_S)
        campaign("cancel")
        front.communicate(timeout=_PATIENCE_S)
    wanted = len(campaign.measured()) + 2
    done = campaign.go(*LONG, f"runs={wanted + 1}")

    (recorded,) = campaign.records()
    assert (lived, left) == (True, ["RUNNING"]), "the first worker ended by itself, and not the other one's job with it"
    assert done.returncode == 0, done.stderr
    assert [run["run"] for run in recorded["runs"]] == list(range(len(recorded["runs"])))
    campaign.assert_whole(wanted)
    assert len(recorded["sittings"]) == 3
    where = [place for place, _ in groupby(run["node"] for run in recorded["runs"])]
    assert where[0] == node
    assert node not in where[1:], "what it measured after the other one began is not in the record"
