"""What a storage is to do by its parameters, against figures worked out by hand."""

from __future__ import annotations

import pytest

from campaign.config import testbed_words
from campaign.testbed import expected
from campaign.testbed.spec import Model, Speed, StorageRequest

MB = 10**6
FILE = 160 * expected.MIB  # ten requests of 16 MiB
# 1 ms a request, four at once; a block of 0.1 MB is 1 ms on the bus.
FLASH = {"path_us": 0, "read_us": 1000, "write_us": 2000, "channels": 4}
# 6,000 turns a minute: 10 ms each, 1 MB on a track; no other track is nearer or farther than 2 ms.
DISK = {"seek_track_ms": 2, "seek_average_ms": 2, "rpm": 6000, "capacity_gb": 1000, "queue": 32, "cache_mb": 16}
# 4 ms and half a turn of 10 ms for 0.1 MB at 100 MB/s: 10 ms; two targets of two disks.
SERVER = {"round_trip_us": 300, "metadata_us": 700, "seek_average_ms": 4, "rpm": 6000, "disk_mb_per_s": 100}
SERVER |= {"disks": 2, "osts": 2, "stripe_mib": 1, "read_ahead_mb": 0}
FAR = 10**12  # bytes of a file of which no block continues another


def storage(kind, parameters, read=100.0, write=50.0, **bounds):
    return StorageRequest(Speed(read, write, **bounds), model=Model(kind, parameters))


@pytest.mark.parametrize(
    ("depth", "block", "per_s"),
    [
        (1, MB // 10, 500),  # 1 ms for the channel, 1 ms on the bus
        (2, MB // 10, 1000),  # the bus is full
        (32, MB // 10, 1000),
        (2, MB // 1000, 1980.2),  # two in 1.01 ms
        (32, MB // 1000, 4000),  # the channels are full
    ],
)
def test_flash_is_as_fast_as_its_channels_and_its_bus_let_it(depth, block, per_s):
    assert expected.reads_per_s(storage("flash", FLASH), block, depth, FILE) == pytest.approx(per_s, rel=1e-4)


@pytest.mark.parametrize("share", [0.5, 0.95])
def test_of_flash_all_reads_take_as_long(share):
    assert expected.read_us(storage("flash", FLASH), MB // 10, FILE, share) == 2000


def test_a_disk_needs_a_seek_and_half_a_turn_and_its_latencies_are_those_of_any_part_of_a_turn():
    disk, block = storage("disk", DISK), 99_991  # it passes in 1 ms

    assert expected.reads_per_s(disk, block, 1, FAR) == pytest.approx(1000 / (2 + 5 + 1), rel=0.02)
    assert expected.read_us(disk, block, FAR, 0.5) == pytest.approx((2 + 5 + 1) * 1000, rel=0.03)
    assert expected.read_us(disk, block, FAR, 0.95) == pytest.approx((2 + 9.5 + 1) * 1000, rel=0.02)


@pytest.mark.parametrize(("depth", "gap_ms"), [(1, 5), (2, 5), (8, 5 / 7), (32, 5 / 31)])
def test_an_arm_that_may_choose_waits_for_a_small_part_of_a_turn(depth, gap_ms):
    """Without seeks, in small blocks, it takes what the next turn brings.

    A request waits for half a turn, and for a whole one if it lay in the gap g to the place that was chosen just
    before: 5 ms + 10 ms * (g / 10 ms). By Little's law that is depth * g, so that g is 5 ms / (depth - 1).
    """
    still = storage("disk", DISK | {"seek_track_ms": 0, "seek_average_ms": 0})

    assert 1000 / expected.reads_per_s(still, 8, depth, FAR) == pytest.approx(gap_ms, rel=0.03)


def test_an_arm_with_a_queue_of_one_cannot_choose():
    assert 1000 / expected.reads_per_s(storage("disk", DISK | {"queue": 1}), 8, 32, FAR) == pytest.approx(7, rel=0.02)


def test_a_seek_takes_as_long_as_the_root_of_its_distance_has_it():
    """Over the whole disk its average is that of the data sheet; half a turn of 10 ms is added, and 0.04 ms to read."""
    disk = storage("disk", DISK | {"seek_average_ms": 12, "capacity_gb": 10})

    assert 1000 / expected.reads_per_s(disk, 4000, 1, 10**10) == pytest.approx(12 + 5.04, rel=0.02)


def test_a_server_has_many_disks_and_two_requests_seldom_meet():
    server = storage("server", SERVER)
    alone = 0.3 + 0.7 + 4 + 5 + 1 + 1  # ms: call, open, seek, half a turn, from the disk, over the network

    assert expected.reads_per_s(server, MB // 10, 1, FAR) == pytest.approx(1000 / alone, rel=1e-4)
    # Of four disks one is the same; the other is there 10 of 12 ms, and needs (10 + 10^2 / 12 / 10) / 2 ms more.
    meets = 10 / alone / 4 * 5.41667
    assert expected.reads_per_s(server, MB // 10, 2, FAR) == pytest.approx(2000 / (alone + meets), rel=1e-4)
    assert expected.read_us(server, MB // 10, FAR, 0.5) == pytest.approx(12_000, rel=1e-4)
    assert expected.read_us(server, MB // 10, FAR, 0.95) == pytest.approx(12_000 + 4500, rel=1e-4)


def test_a_server_with_one_disk_is_no_faster_than_that():
    alone = storage("server", SERVER | {"disks": 1, "osts": 1})

    assert expected.reads_per_s(alone, MB // 10, 32, FAR) == pytest.approx(100, rel=0.02)


@pytest.mark.parametrize(("stripes", "disks"), [(0.5, 2), (1, 2), (1.5, 4), (2.5, 6), (3, 6), (9, 6)])
def test_a_file_lies_on_as_many_targets_as_it_has_stripes(stripes, disks):
    """As many disks at most are busy, each with 100 reads a second."""
    server = storage("server", SERVER | {"osts": 3}, read=1e6)

    found = expected.reads_per_s(server, MB // 10, 4096, round(stripes * expected.MIB))

    assert found == pytest.approx(100 * disks, rel=0.02)


@pytest.mark.parametrize(
    ("kind", "parameters", "access", "extra_s"),
    [
        ("disk", DISK, "read", 0.007),  # a seek and half a turn
        ("disk", DISK, "write", 0.007),
        ("flash", FLASH, "read", 10 * 0.001),
        ("flash", FLASH, "write", 10 * 0.002),
        ("server", SERVER, "read", 0.001 + 0.009 + 0.010486 + 9 * 0.0003),
        ("server", SERVER | {"read_ahead_mb": 64}, "read", 0.001 + 0.009 + 0.010486),
        ("server", SERVER | {"read_ahead_mb": 0.02}, "read", 0.001 + 0.009 + 0.010486 + 9 * (0.0003 - 0.0002)),
        ("server", SERVER, "write", 10 * 0.0003),
    ],
)
def test_what_is_moved_in_sequence_has_the_rate_and_what_each_request_costs(kind, parameters, access, extra_s):
    whole_s = FILE / MB / (100 if access == "read" else 50) + extra_s

    found = expected.sequential_mb_per_s(storage(kind, parameters), access, FILE)

    assert found == pytest.approx(FILE / MB / whole_s, rel=1e-5)


def test_slow_channels_bound_what_is_moved_in_sequence():
    """16 requests on two channels: eight after another."""
    slow = storage("flash", FLASH | {"channels": 2, "read_us": 100_000})

    assert expected.sequential_mb_per_s(slow, "read", FILE) == pytest.approx(
        FILE / MB / 10 / (0.8 + 0.010486), rel=1e-4
    )


def test_bounds_on_requests_are_bounds_and_what_nobody_bounds_is_not_expected():
    bounded = storage("flash", FLASH, read_iops=70)
    rates, free = StorageRequest(Speed(100.0, 50.0)), StorageRequest(Speed(None, None))

    assert expected.reads_per_s(bounded, 4096, 32, FILE) == 70
    assert expected.read_us(bounded, 4096, FILE, 0.5) is expected.sequential_mb_per_s(bounded, "read", FILE) is None
    assert expected.sequential_mb_per_s(bounded, "write", FILE) == pytest.approx(49.7, rel=0.01)
    assert [expected.sequential_mb_per_s(rates, access, FILE) for access in ("read", "write")] == [100, 50]
    assert expected.sequential_mb_per_s(free, "read", FILE) is expected.reads_per_s(rates, 4096, 1, FILE) is None


@pytest.mark.parametrize(
    ("name", "threads", "low", "high"),
    [("hdd", 8, 1.9, 2.7), ("lustre", 8, 7.0, 8.0), ("ssd", 2, 1.2, 2.0), ("optane", 2, 1.1, 2.0)],
)
def test_how_threads_scale_on_the_storages_as_they_are_shipped(name, threads, low, high, monkeypatch):
    """Reads of 112 KiB at random places of 2 GB; of the paper, hard disk 2.3 and Lustre 7.8 times at eight threads."""
    monkeypatch.setattr(testbed_words, "missing_for_models", lambda: None)
    model = testbed_words.requested_storages([])[name]

    few, many = (expected.reads_per_s(model, 112 << 10, depth, 2 * 10**9) for depth in (1, threads))

    assert low < many / few < high
