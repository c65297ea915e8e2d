"""What kept a run from working: shares that are certain, and the checks at their exact limits."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from jobs import checks, disturbances
from jobs.checks import Limits
from jobs.disturbances import longest_other_use
from jobs.objects import OSD_PROCESS_NAME
from tests.jobs.jobs_factory import device_use

LIMITS = Limits()
GROUP = {"device": "sda", "kind": "read_bps", "per_s": 10_000_000, "group": "/sys/fs/cgroup/job"}


WAITS = {"alarms": 100, "late": 0, "late_s": 0.0, "looks": 100, "functions": {}, "error": None}


def run(steal_s=0.0, **found):
    waits = {key: found.pop(key, value) for key, value in WAITS.items()}
    return {"elapsed_s": 10.0, "steal_s": steal_s, "waits": {**waits, "threads": found}}


def chance_of_as_many(count, of, share):
    return sum(math.comb(of, k) * share**k * (1 - share) ** (of - k) for k in range(count, of + 1))


@given(st.integers(1, 300), st.floats(0, 1))
def test_a_share_is_certain_where_chance_shows_as_many_in_one_run_of_twenty_five_at_most(of, part):
    count = round(part * of)

    share = disturbances.certain_share(count, of)

    assert 0 <= share <= count / of
    assert chance_of_as_many(count, of, share) <= 0.04 or share == 0


@pytest.mark.parametrize(("of", "least"), [(3, 2), (10, 3), (20, 5), (100, 12), (1000, 69)])
@pytest.mark.parametrize("kind", ["asleep", "held", "idle_device"])
def test_a_run_fails_from_so_many_delays_on_of_so_many_threads_with_work(of, least, kind):
    def judged(met):
        storage = (of - met) // 2
        return checks.undelayed(run(storage=storage, running=of - met - storage, **{kind: met}), LIMITS)["passed"]

    assert [judged(least - 1), judged(least)] == [True, False]


@pytest.mark.parametrize(("limit", "passed"), [(0.05, False), (0.2, True), (1.0, True)])
def test_how_long_threads_with_work_may_be_kept_from_it_is_a_limit(limit, passed):
    found = checks.undelayed(run(running=80, held=20), replace(LIMITS, delayed_max=limit))

    assert found["passed"] is passed


def test_threads_that_wait_for_work_are_in_no_share():
    assert checks.undelayed(run(work=100_000, held=12, running=88), LIMITS)["passed"] is False


@pytest.mark.parametrize(
    ("late", "late_s", "steal_s", "passed"),
    [
        (11, 0.1, 0.0, True),  # stops of few milliseconds show by how many alarms they met
        (12, 0.1, 0.0, False),
        (12, 0.1, 0.1, True),
        (13, 0.1, 0.1, False),
        (2, 0.5, 0.0, True),  # long ones by how late these were
        (2, 0.51, 0.0, False),
        (2, 0.51, 0.1, True),
    ],
)
def test_a_run_that_stood_still_fails_but_for_what_the_hypervisor_took(late, late_s, steal_s, passed):
    assert checks.undelayed(run(late=late, late_s=late_s, steal_s=steal_s, running=100), LIMITS)["passed"] is passed


@pytest.mark.parametrize(
    ("of_waits", "passed"),
    [
        ({"looks": 1, "held": 1}, None),  # one look can show nothing, even if it meets a delay
        ({"looks": 2, "held": 2}, False),
        ({"looks": 2, "running": 2}, True),
        ({"error": "Permission denied"}, None),
        ({"error": "Permission denied", "late": 50}, False),
    ],
)
def test_where_the_looks_are_too_few_or_show_nothing_the_machine_cannot_tell(of_waits, passed):
    assert checks.undelayed(run(**of_waits), LIMITS)["passed"] is passed


def test_what_was_met_is_told():
    functions = {"fanotify_handle_event": 70, "hrtimer_nanosleep": 10}
    found = run(running=20, held=70, asleep=10, functions=functions, late=3, late_s=0.125)

    assert disturbances.delays_in_words(found) == (
        "at 100 looks, of 100 threads with work 10 slept and 70 were held by another program"
        " (in fanotify_handle_event, hrtimer_nanosleep); the process stood still at 3 of 100 alarms, for 0.12 s or more"
    )


@pytest.mark.parametrize(
    ("reached", "most", "passed"), [(5_000_000, 0.5, True), (5_000_001, 0.5, None), (9_000_000, 0.9, True)]
)
def test_a_limit_on_reads_that_a_run_came_near_to_is_said_and_is_no_fault(reached, most, passed):
    limited = {"elapsed_s": 1.0, "io_limits": [{**GROUP, "reached_per_s": reached}, {**GROUP, "reached_per_s": 1}]}

    assert checks.unthrottled(limited, replace(LIMITS, io_limit_max=most))["passed"] is passed


def test_the_nearest_limit_is_told():
    iops = {**GROUP, "kind": "write_iops", "per_s": 100, "reached_per_s": 99}
    found = {"io_limits": [{**GROUP, "reached_per_s": 1e6}, iops]}

    assert disturbances.nearest_limit(found) == (
        0.99,
        "/sys/fs/cgroup/job lets 100 requests/s be written on sda, and the run had 99",
    )
    assert disturbances.nearest_limit({"io_limits": found["io_limits"][:1]}) == (
        0.1,
        "/sys/fs/cgroup/job lets 10 MB/s be read on sda, and the run had 1",
    )


@pytest.mark.parametrize(
    ("figures", "passed"),
    [
        ({"io_limits_hidden": True}, None),
        ({"io_limits_hidden": True, "io_limits": [{**GROUP, "reached_per_s": 9e6}]}, None),
        ({"io_limits_hidden": True, "quota_cores": 0.2, "throttled_periods": 7, "throttled_s": 1.0}, False),
        ({"io_limits_hidden": False, "quota_cores": 0.2, "throttled_periods": 0, "throttled_s": 0.0}, True),
    ],
)
def test_limits_that_cannot_be_seen_leave_it_open_unless_what_is_seen_decides(figures, passed):
    assert checks.unthrottled({"elapsed_s": 10.0, **figures}, LIMITS)["passed"] is passed


MB = 10**6


def share(elapsed_s=1.0, **use):
    return longest_other_use({"device_use": [device_use(**use)], "elapsed_s": elapsed_s}).share


@pytest.mark.parametrize(
    ("servers", "told"),
    [({}, None), ({OSD_PROCESS_NAME: {"read_bytes": None}}, None), ({OSD_PROCESS_NAME: {"read_bytes": 7}}, 0.5)],
)
def test_what_servers_of_objects_read_is_told_from_others_where_it_can_be_seen(servers, told):
    use = device_use(reads=1100, read_bytes=200 * MB)
    found = longest_other_use({"device_use": [use], "elapsed_s": 1.0, "objects": {"servers": servers}})

    assert (found and found.share) == told


@pytest.mark.parametrize(
    ("use", "told"),
    [
        # 0.4 MB/s of 4 KiB reads, beside 1,000 reads of 100 MB: by bytes 0.4 %.
        ({"other_reads": 100}, (100, 0, 0, 100 / 1100)),
        ({"other_reads": 100, "busy_s": 0.5}, (100, 0, 0, 50 / 1100)),
        # More requests than bytes of others have blocks were the run's own: its files came in smaller pieces.
        ({"reads": 1800, "read_bytes": 100 * MB + 10 * 512}, (10, 0, 0, 10 / 1800)),
        # One large stream: few requests, and half of the bytes.
        ({"reads": 1100, "read_bytes": 200 * MB}, (100, 0, 0, 0.5)),
        # A neighbour that flushes a block over and over: its writes, and the time of its flushes.
        ({"writes": 120, "written_bytes": MB, "flushes": 90, "flush_s": 0.2}, (0, 120, 90, 0.2 + 120 / 1120)),
        # Of a run that writes all the time, requests are told by the bytes alone, and flushes not at all.
        (
            {"own_written_bytes": 30 * MB, "writes": 100, "written_bytes": 40 * MB, "flushes": 9, "flush_s": 0.5},
            (0, 25, 0, 10 / 140),
        ),
        ({"busy_s": 0.9, "flushes": 90, "flush_s": 0.3, "other_reads": 1000}, (1000, 0, 90, 0.75)),
        ({"flushes": 90, "flush_s": 3.0}, (0, 0, 90, 1.0)),
    ],
)
def test_what_others_had_of_a_device_at_most(use, told):
    found = longest_other_use({"device_use": [device_use(**use)], "elapsed_s": 1.0})

    assert (found.reads, found.writes, found.flushes, found.share) == (*told[:3], pytest.approx(told[3]))


@pytest.mark.parametrize(
    ("most", "more"),
    [
        ({"reads": 1004, "read_bytes": 100 * MB + 4 * 4096}, {"reads": 1005, "read_bytes": 100 * MB + 5 * 4096}),
        ({"writes": 24}, {"writes": 25}),
        ({"flushes": 3, "flush_s": 0.05}, {"flushes": 4, "flush_s": 0.05}),
        ({"writes": 1, "written_bytes": 1 << 20}, {"writes": 1, "written_bytes": (1 << 20) + 1}),
    ],
)
def test_the_commit_of_a_journal_is_no_second_user_however_short_the_run(most, more):
    assert share(0.01, **most) == 0
    assert share(0.01, **more) > 0


@pytest.mark.parametrize(
    ("ends", "flushing_s"),
    [
        ([(0.5, 0.5, 0.5), (1.0, 1.5, 2.0)], 3.0 - 2.5),
        ([(0.5, 0.5, None)], 0.0),  # it was never drained: that went on for all of the run
        ([(1.5, 0.5, 0.5), (1.6, 0.5, 0.5)], 0.0),
        ([], 3.0),
    ],
)
def test_flushes_beyond_the_time_in_which_snapshots_became_durable_are_others(ends, flushing_s):
    keys = ("blocked_s", "durable_fast_s", "durable_slow_s")
    run = {"elapsed_s": 10.0, "checkpoints": [dict(zip(keys, each, strict=True)) for each in ends]}
    run["device_use"] = [device_use(own_written_bytes=0, busy_s=0.0, flushes=90, flush_s=3.0)]

    found = longest_other_use(run)

    assert (found.share, found.flushes) == (pytest.approx(flushing_s / 10), 90 if flushing_s else 0)


def test_the_device_that_others_used_longest_is_named():
    run = {"device_use": [device_use(100), device_use(900, device="sda")], "elapsed_s": 1.0}

    assert longest_other_use(run).message == "took 47.4% of the time of sda with 900 reads, 0 writes and 0 flushes"
    assert longest_other_use({"device_use": [], "elapsed_s": 1.0}) is None


amounts = st.integers(0, 2**50)


@given(amounts, amounts, amounts, amounts, st.floats(1e-6, 1e6))
def test_a_share_is_a_share_and_no_write_is_hidden(ours, all_reads, read_bytes, writes, elapsed_s):
    use = {"own_reads": ours, "own_read_bytes": ours, "reads": all_reads, "read_bytes": read_bytes, "writes": writes}
    found = longest_other_use({"device_use": [device_use(**use)], "elapsed_s": elapsed_s})

    assert 0 <= found.share <= 1
    assert 0 <= found.reads <= all_reads
    assert found.writes == writes
