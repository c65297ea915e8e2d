"""What others did to a device: bounds by requests, bytes, blocks and flushes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.neighbours import others
from jobs.objects import STORES
from tests.jobs.jobs_factory import device_use

MB = 10**6


def share(elapsed_s=1.0, **use):
    return others({"device_use": [device_use(**use)], "elapsed_s": elapsed_s}).share


@pytest.mark.parametrize(
    ("servers", "told"),
    [({}, None), ({STORES: {"read_bytes": None}}, None), ({STORES: {"read_bytes": 7}}, 0.5)],
)
def test_what_servers_of_objects_read_is_told_from_others_where_it_can_be_seen(servers, told):
    use = device_use(reads=1100, read_bytes=200 * MB)
    found = others({"device_use": [use], "elapsed_s": 1.0, "objects": {"servers": servers}})

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
    found = others({"device_use": [device_use(**use)], "elapsed_s": 1.0})

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

    found = others(run)

    assert (found.share, found.flushes) == (pytest.approx(flushing_s / 10), 90 if flushing_s else 0)


def test_the_device_that_others_used_longest_is_named():
    run = {"device_use": [device_use(100), device_use(900, device="sda")], "elapsed_s": 1.0}

    assert others(run).message == "took 47.4% of the time of sda with 900 reads, 0 writes and 0 flushes"
    assert others({"device_use": [], "elapsed_s": 1.0}) is None


amounts = st.integers(0, 2**50)


@given(amounts, amounts, amounts, amounts, st.floats(1e-6, 1e6))
def test_a_share_is_a_share_and_no_write_is_hidden(ours, all_reads, read_bytes, writes, elapsed_s):
    use = {"own_reads": ours, "own_read_bytes": ours, "reads": all_reads, "read_bytes": read_bytes, "writes": writes}
    found = others({"device_use": [device_use(**use)], "elapsed_s": elapsed_s})

    assert 0 <= found.share <= 1
    assert 0 <= found.reads <= all_reads
    assert found.writes == writes
