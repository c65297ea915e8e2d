"""The rules of what only some runs have: ranks, profiles, snapshots."""

import pytest

from jobs import checks
from jobs.benchmarks.micro import BENCHMARK
from jobs.ranks.hub import combine_ranks
from tests.jobs.jobs_factory import passed
from tests.jobs.ranks.test_combine_ranks import rank_run, seen


def judged(runs, peak=None, skew=0.001, **changed):
    """Return whether each rule holds of the whole run, the messages, and the reason."""
    found = combine_ranks(runs, seen(*[1.0] * len(runs), skew=skew), BENCHMARK.combined_metrics) | changed
    made, reason = checks.judge(found, "cold", checks.Limits(), peak)
    return passed({"checks": made}), {check["rule"]: check["message"] for check in made}, reason


@pytest.mark.parametrize("worst", [0, 1, 2])
def test_a_run_counts_only_if_every_rank_does_and_the_bad_one_is_named(worst):
    runs = [rank_run(resident_fraction=0.5 if rank == worst else 0.0) for rank in range(3)]

    holds, _, reason = judged(runs)

    assert reason.startswith(f"rank {worst}: cold: 50.00%")
    assert [rule for rule, well in holds.items() if well is False] == ["cold"]
    assert judged(runs[:worst] + runs[worst + 1 :])[2] is None


def test_ranks_that_began_too_far_apart_make_no_valid_run():
    runs = [rank_run(wall_s=1.0, load_s=1.0, compute_s=0.0, checkpoint_s=0.0, other_s=0.0) for _ in range(2)]

    assert [judged(runs, skew=skew)[0]["began_together"] for skew in (0.009, 0.011)] == [True, False]
    told = judged(runs, skew=0.009)[1]["began_together"]
    assert told.endswith("all 2 ranks began within 9.00 ms, in a run of 1.0000 s")


def on(device, **changed):
    own = {"device": device, "lowest_device": None, "device_bytes": 100, "to_fetch_bytes": 100, "bytes_read": 100}
    return rank_run(**{**own, "device_read_bytes": 300, **changed})


@pytest.mark.parametrize(
    ("runs", "holds"),
    [
        ([on("vda"), on("vda"), on("vda")], True),
        ([on("vda", device_read_bytes=250)] * 3, False),  # each of them could say that the device gave it its 100
        ([on("vda", device_read_bytes=100), on("vdb", device_read_bytes=100)], True),
        ([on(loop, lowest_device="vda", lowest_read_bytes=150) for loop in ("loop0", "loop1")], False),
        ([on(loop, lowest_device="vda", lowest_read_bytes=200) for loop in ("loop0", "loop1")], True),
    ],
)
def test_a_device_gave_what_all_ranks_on_it_read_and_not_only_each(runs, holds):
    found, _, reason = judged(runs)

    assert found["device_bytes"] is holds
    assert (reason is None) == holds
    assert holds or "together: device_bytes: " in reason


PEAK = {"by": "a baseline", "mb_per_s": 100.0, "ceiling_mb_per_s": 150.0, "reads": None}


def test_ranks_that_are_faster_together_than_one_rank_was_by_itself_are_not_judged_by_it():
    own = {"wall_s": 1.0, "load_s": 1.0, "compute_s": 0.0, "checkpoint_s": 0.0, "other_s": 0.0}
    runs = [on("vda", device_read_bytes=300, read_mb_per_s=90.0, **own) for _ in range(2)]

    found, told, _ = judged(runs, PEAK, read_mb_per_s=180.0)

    assert found["below_peak"] is None
    assert "180.0 MB/s" in told["below_peak"]


@pytest.mark.parametrize(
    ("changed", "passed", "message"),
    [
        ({}, True, "5.1 MB seen of 5.2 MB that the kernel counted"),
        ({"blind_spot": "3 calls were dropped", "dropped": 3}, False, "3 calls were dropped: profile.posix=counters"),
        ({"blind_spot": "3 dropped", "dropped": 3, "mode": "counters"}, False, "3 dropped"),
        ({"bytes_read": 4_900_000}, False, "the profile has 4.9 MB of the 5.0 MB that the run read (at least 99%)"),
        ({"kernel_read_bytes": None, "blind_spot": "the count is missing"}, None, "the count is missing"),
    ],
)
def test_a_profile_that_lacks_bytes_of_the_run_is_no_proof_and_without_a_count_nobody_can_tell(
    changed, passed, message
):
    found = {"bytes_read": 5_000_000, "seen_read_bytes": 5_100_000, "kernel_read_bytes": 5_200_000}
    found |= {"blind_spot": None, "dropped": 0, "mode": "trace"}

    judged = checks.profile_complete({"bytes_read": 5_000_000, "profile": found | changed}, checks.Limits())

    assert (judged["passed"], judged["message"], judged["observed"]) == (passed, message, 5_100_000)


def target(source, written, **changed):
    return {"source": source, "storage": source.upper(), "bytes": 2_000_000, "written_bytes": written, **changed}


def test_of_several_targets_the_least_share_of_what_was_written_is_observed():
    run = {"checkpoints_asked": 3, "checkpoints": [{"verified": True}] * 2, "checkpoint_troubles": ["a trouble"]}
    run["targets"] = [target("a", 5_000_000), target("b", 3_000_000), target("c", None), target("d", 4_000_000)]

    found = checks.checkpoints_durable(run, checks.Limits())

    assert found["observed"] == {"verified": 2, "written_share": 1.5}
    assert found["message"] == (
        "2 of 3 snapshots read back on D, 5.0 MB written to a for 2.0 MB, 3.0 MB written to b for 2.0 MB,"
        " 4.0 MB written to d for 2.0 MB, bytes written for C unknown, a trouble"
    )


@pytest.mark.parametrize(("written", "passed"), [(2_000_000, True), (1_999_999, False), (None, None)])
def test_snapshots_are_durable_where_the_least_of_their_targets_has_all_their_bytes(written, passed):
    run = {"checkpoints_asked": 1, "checkpoints": [{"verified": True}], "checkpoint_troubles": []}
    run["targets"] = [target("a", 5_000_000), target("b", written)]

    assert checks.checkpoints_durable(run, checks.Limits())["passed"] is passed


@pytest.mark.parametrize(
    ("rule", "run", "message"),
    [
        (
            "complete",
            {"bytes_written": 3_000_000_000, "bytes_asked": 5_000_000_000, "requests": 7},
            "3000.0 of 5000.0 MB moved in 7 requests",
        ),
        (
            "reached_device",
            {"reached_bytes": 3_000_000_000, "bytes_written": 5_000_000_000},
            "3000.0 MB came to the device for 5000.0 MB written (60%, at least 99%)",
        ),
        (
            "from_memory",
            {"device_bytes": 3_000_000_000, "bytes_read": 5_000_000_000},
            "3000.0 MB came from the device for 5000.0 MB read (60%, at most 1%)",
        ),
        (
            "cold_at_server",
            {
                "bytes_read": 4_000_000_000,
                "objects": {
                    "bytes": 5_000_000_000,
                    "endpoint": "e",
                    "servers": {checks.OSD_PROCESS_NAME: {"read_bytes": 2_000_000_000}},
                },
                "device": "vda",
                "device_read_bytes": 3_000_000_000,
            },
            f"vda gave 3000.0 MB, {checks.OSD_PROCESS_NAME} gave 2000.0 MB for 5000.0 MB of objects (60%, at most 10%)",
        ),
    ],
)
def test_amounts_are_told_in_megabytes(rule, run, message):
    assert getattr(checks, rule)(run, checks.Limits())["message"] == message
