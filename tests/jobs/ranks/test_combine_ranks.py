"""One run's figures of those of its ranks: sums over the time of the slowest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import checks
from jobs.benchmarks.micro import BENCHMARK
from jobs.ranks.hub import RankObservation, combine_ranks
from jobs.ranks.rank import without_other_ranks
from tests.campaign.fake_template import figures
from tests.jobs.jobs_factory import device_use


def rank_run(**changed):
    run = figures(**changed)
    return {key: value for key, value in run.items() if key not in ("checks", "status", "reason")}


def seen(*ends, skew=0.001):
    return [RankObservation(skew * rank, (-skew, skew), end) for rank, end in enumerate(ends)]


WALLS = st.lists(st.tuples(st.integers(1, 1000), st.floats(0.1, 100)), min_size=2, max_size=6)


@given(WALLS)
def test_rates_are_the_sum_of_what_ranks_did_over_the_time_of_the_slowest(ranks):
    runs = [
        rank_run(
            images=images,
            bytes_read=1000 * images,
            bytes_written=300 * images,
            wall_s=wall,
            images_per_s=images / wall,
            read_mb_per_s=images / wall / 1000,
            write_mb_per_s=images * 3e-4 / wall,
        )
        for images, wall in ranks
    ]

    found = combine_ranks(runs, seen(*(wall for _, wall in ranks)), BENCHMARK.combined_metrics)

    images, slowest = sum(each for each, _ in ranks), max(wall for _, wall in ranks)
    assert found["images"] == images
    assert found["images_per_s"] == pytest.approx(images / slowest)
    assert found["read_mb_per_s"] * 1e6 * found["wall_s"] == pytest.approx(1000 * images)
    assert found["write_mb_per_s"] * 1e6 * found["wall_s"] == pytest.approx(300 * images)
    assert ranks[found["straggler"]][1] == slowest
    assert [each["figures"]["images"] for each in found["ranks"]] == [each for each, _ in ranks]


def test_a_count_that_one_rank_does_not_know_is_unknown_and_of_lists_there_are_all():
    runs = [rank_run(device_bytes=5, changed=["a"]), rank_run(device_bytes=None, changed=["b", "c"])]

    found = combine_ranks(runs, seen(1.0, 1.0), BENCHMARK.combined_metrics)

    assert (found["device_bytes"], found["changed"], found["start_skew_s"]) == (None, ["a", "b", "c"], 0.001)


class Told:
    """A rank that hears what was written down for it."""

    def __init__(self, rank, *told):
        self.rank, self.told = rank, told

    def gather(self, value):
        return [value if place == self.rank else {**value, **each} for place, each in enumerate(self.told)]


def test_what_other_ranks_do_on_this_machine_is_nobody_elses_doing():
    below = device_use(device="sda")
    run = {"device": "vda", "device_bytes": 100, "other_cpu": 2.0, "cpu_s": 1.0, "elapsed_s": 2.0}
    run["device_use"] = [device_use(own_reads=10, own_read_bytes=100), below]
    neighbour = {"device_use": [device_use(own_reads=30, own_read_bytes=300)], "cpu_s": 3.0}
    ours = [device_use(own_reads=40, own_read_bytes=400), below]

    assert without_other_ranks(run, Told(0, {}, neighbour)) == {**run, "other_cpu": 0.5, "device_use": ours}
    assert without_other_ranks(run, Told(0, {}, {**neighbour, "boot": "another machine"})) == run
    assert without_other_ranks(run, Told(0, {}, {**neighbour, "device": "loop7"})) == {**run, "other_cpu": 0.5}
    assert without_other_ranks(run, Told(0, {}, {**neighbour, "device_use": None}))["device_use"] is None
    assert without_other_ranks(run, Told(0, {}, {**neighbour, "readers_cpu_s": 0.5}))["other_cpu"] == 0.25
    saved = {"saved": [("dsk/vda", 150), ("dsk/loop7", 20)]}
    assert without_other_ranks(run, Told(0, {}, {**neighbour, **saved}))["device_use"][0]["own_written_bytes"] == 150
    own = {**run, "targets": [{"source": "dsk/vda", "bytes": 9}]}
    assert without_other_ranks(own, Told(0, {}, {**neighbour, "saved": []}))["device_use"] == ours


def conditions(**process):
    return {"process": process, "machine": {"cpus": "2 of 2 cores"}, "storages": {}}


def test_conditions_in_which_ranks_differ_have_the_value_of_each():
    held = {**conditions(nice=0), "storages": {"hdd (checkpoints)": {"scheduler": "none"}}}
    runs = [rank_run(conditions=held), rank_run(conditions=conditions(nice=5, OMP_NUM_THREADS="1"))]

    found = combine_ranks(runs, seen(1.0, 1.0), BENCHMARK.combined_metrics)["conditions"]

    assert found["process"] == {"nice": "0 | 5", "OMP_NUM_THREADS": "1 | unset"}
    assert (found["machine"], found["storages"]) == (held["machine"], held["storages"])


def test_a_whole_run_is_held_against_the_conditions_of_the_first_once_for_all_its_ranks():
    runs = [rank_run(conditions=conditions(nice=nice)) for nice in (0, 5)]
    found = combine_ranks(runs, seen(1.0, 1.0), BENCHMARK.combined_metrics)

    assert checks.judge(found, "cold", checks.Limits(), first=found["conditions"])[1] is None
    made, reason = checks.judge(found, "cold", checks.Limits(), first=conditions(nice=0))
    assert [check["rule"] for check in made].count("same_conditions") == 1
    assert "nice was 0, and is 0 | 5" in reason
