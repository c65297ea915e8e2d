"""The kernel's counts: the arithmetic on literals, the meaning on a real device."""

# ruff: noqa: SLF001 - the parts are tested one by one

import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.observe import counters
from jobs.observe.counters import CounterReading, DeviceCount, subtract_readings, use_of_devices
from jobs.system import page_cache
from jobs.system.device import Device, DeviceRequests, combine_devices, device_of
from jobs.system.page_cache import ColdReadBytes
from tests.jobs.jobs_factory import PAGE, other_process, pages, read_all, write_jpegs


def count(device="vda", **fields):
    return DeviceCount(Disk(device), DeviceRequests(**dict.fromkeys(DeviceRequests._fields, 0) | fields))


class Disk(Device):
    """A device of which sysfs need not know."""

    logical_block_bytes = 512
    request_bytes = 4096


BEFORE = CounterReading(
    at_s=100.0,
    process={"read_bytes": 1_000, "write_bytes": 50},
    device=count(reads=1_000, read_bytes=10_000, writes=500, written_bytes=70_000, flushes=9, busy_s=8.0),
    busy_s=40.0,
    steal_s=1.0,
    own_cpu_s=3.0,
    io_pressure_s=1.0,
)
AFTER = CounterReading(
    at_s=104.0,
    process={"read_bytes": 9_000, "write_bytes": 80},
    device=count(
        reads=1_020,
        read_bytes=21_000,
        writes=503,
        written_bytes=70_500,
        flushes=11,
        busy_s=9.0,
        waited_s=0.5,
        flush_s=0.25,
    ),
    busy_s=47.0,
    steal_s=1.5,
    own_cpu_s=8.0,
    io_pressure_s=3.5,
)


def test_the_difference_of_two_looks_is_ours_and_the_rest_is_that_of_others():
    assert subtract_readings(BEFORE, AFTER) == {
        "elapsed_s": 4.0,
        "device_bytes": 8_000,
        "written_bytes": 30,
        "device_read_bytes": 11_000,
        "lowest_read_bytes": None,
        "kernel_s": None,
        "raw_s": None,
        "cpu_s": 5.0,
        "other_cpu": 0.5,
        "steal_s": 0.5,
        "io_pressure_s": 2.5,
    }
    assert use_of_devices(BEFORE, AFTER) == [
        {
            "device": "vda",
            "block_bytes": 512,
            "reads": 20,
            "read_bytes": 11_000,
            "writes": 3,
            "written_bytes": 500,
            "flushes": 2,
            "busy_s": 0.5,  # a second in ticks, in which no request was in flight for longer
            "flush_s": 0.25,
            "own_reads": 2,  # 8,000 bytes, of 4,096 at most each
            "own_read_bytes": 8_000,
            "own_written_bytes": None,
        }
    ]


@pytest.mark.parametrize(("on_disk", "extents", "reads"), [(8_000, 10, 10), (16_000, 10, 5), (8_000, 1, 2), (0, 0, 2)])
def test_each_piece_of_a_file_that_was_fetched_is_a_request_of_ours(on_disk, extents, reads):
    assert use_of_devices(BEFORE, AFTER, ColdReadBytes(bytes=on_disk, extents=extents))[0]["own_reads"] == reads


def test_what_the_lowest_device_gave_to_the_one_above_is_not_others():
    before = replace(BEFORE, lowest=count("sda", read_bytes=5))
    after = replace(AFTER, lowest=count("sda", reads=30, read_bytes=12_005, writes=1, flushes=1))

    _, below = use_of_devices(before, after)

    assert [below[key] for key in ("device", "reads", "own_reads", "read_bytes", "own_read_bytes")] == [
        "sda", 30, 20, 12_000, 11_000
    ]  # fmt: skip
    assert below["own_written_bytes"] is None


def test_what_others_read_for_a_run_is_its_own():
    """A process that was there reads 2,000, and one that is new 500."""
    before = replace(BEFORE, readers={7: (100, 0, 1.0)})
    after = replace(AFTER, readers={7: (2_100, 0, 1.5), 8: (500, 0, 0.25)})

    found = subtract_readings(before, after)

    assert (found["device_bytes"], found["readers_cpu_s"]) == (10_500, 0.75)
    assert use_of_devices(before, after)[0]["own_read_bytes"] == 10_500
    assert found["other_cpu"] == (7.0 - 5.0 - 0.75) / 4


def test_what_a_run_saves_and_what_works_for_it_are_not_others():
    """The run writes 2,000 to its dataset's device and 3,000 to another; a helper moves 3,000 more to and fro."""
    before = replace(BEFORE, further=(count("vdb"),), helpers={7: (100, 100, 1.0)})
    after = replace(
        AFTER,
        process={"read_bytes": 9_000, "write_bytes": 5_050},
        device=count(read_bytes=21_000, written_bytes=72_500),
        further=(count("vdb", read_bytes=3_000, written_bytes=6_400),),
        helpers={7: (3_100, 3_100, 1.5)},
    )

    found = subtract_readings(before, after)

    (use,) = use_of_devices(before, after)
    assert (use["device"], use["read_bytes"], use["written_bytes"]) == ("vda+vdb", 11_000 + 3_000, 2_500 + 6_400)
    assert (use["own_read_bytes"], use["own_written_bytes"]) == (8_000 + 3_000, 5_000 + 3_000)
    assert found["other_cpu"] == pytest.approx((7.0 - 5.0 - 0.5) / 4)
    assert found["device_read_bytes"] == 11_000


def test_a_helper_that_came_later_has_done_nothing_before_and_one_that_went_is_not_counted():
    saving = {"further": ()}
    (came,) = use_of_devices(replace(BEFORE, **saving), replace(AFTER, **saving, helpers={8: (1_000, 7, 0.25)}))
    (went,) = use_of_devices(replace(BEFORE, **saving, helpers={8: (9_000, 0, 2.0)}), replace(AFTER, **saving))

    assert (came["own_read_bytes"], came["own_written_bytes"]) == (8_000 + 1_000, 30 + 7)
    assert (went["own_read_bytes"], went["own_written_bytes"]) == (8_000, 30)


def test_what_a_helper_does_is_read_while_it_lives(disk):
    script = (
        "import sys; open('/proc/self/comm', 'w').write('a) b')\n"  # a name with a parenthesis
        "open(sys.argv[1], 'wb').write(bytes(1 << 20)); print(flush=True); input()"
    )

    with other_process(script, str(disk / "file")) as process:
        nobody = 2**22 + 1  # beyond the largest number of a process
        looked = counters.read_counters(device_of(disk), helpers=[process.pid, nobody])

    assert looked.helpers.keys() == {process.pid}
    assert looked.helpers[process.pid][1] >= 1 << 20


@pytest.mark.parametrize(
    ("before", "after", "known"),
    [
        ({}, {"process": None}, (None, 11_000)),
        ({"device": None}, {}, (8_000, None)),
        ({"further": (None,)}, {"further": (None,)}, (8_000, 11_000)),
    ],
    ids=["no accounting", "no device", "a device of the target does not tell"],
)
def test_what_is_not_told_makes_unknown_what_rests_on_it(before, after, known):
    readings = replace(BEFORE, **before), replace(AFTER, **after)

    assert tuple(subtract_readings(*readings)[key] for key in ("device_bytes", "device_read_bytes")) == known
    assert use_of_devices(*readings) is None


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(1e-3, 1e6))
def test_cores_of_others_are_never_negative(ours, everybody, elapsed):
    before = replace(BEFORE, at_s=0.0, busy_s=0.0, own_cpu_s=0.0)
    after = replace(AFTER, at_s=elapsed, busy_s=everybody, own_cpu_s=ours)

    assert subtract_readings(before, after)["other_cpu"] == pytest.approx(max(everybody - ours, 0) / elapsed)


def test_a_cold_read_fetches_every_page_of_the_files_and_no_more_and_a_warm_one_none(disk):
    paths = write_jpegs(disk / "data", 24)
    page_cache.evict_pages(paths)
    before = counters.read_counters(device_of(disk))

    read_all(paths)
    cold = counters.read_counters(device_of(disk))
    read_all(paths)

    found = subtract_readings(before, cold)
    assert found["device_bytes"] == pages(paths) * PAGE
    assert found["device_read_bytes"] >= pages(paths) * PAGE
    assert subtract_readings(cold, counters.read_counters(device_of(disk)))["device_bytes"] == 0


def test_what_another_process_reads_is_not_ours(disk):
    paths = write_jpegs(disk / "data", 24)
    page_cache.evict_pages(paths)
    before = counters.read_counters(device_of(disk))

    script = "import sys; print(sum(len(open(name, 'rb').read()) for name in sys.argv[1:]), flush=True); input()"
    with other_process(script, *map(str, paths)):
        after = counters.read_counters(device_of(disk))

    # Once it is waited for, the kernel adds a child's bytes to its parent's: look before.
    assert subtract_readings(before, after)["device_bytes"] == 0
    (use,) = use_of_devices(before, after)
    assert use["read_bytes"] - use["own_read_bytes"] >= pages(paths) * PAGE


def test_work_of_this_process_is_its_own():
    before = counters.read_counters(None)

    began = time.process_time()
    while time.process_time() - began < 0.3:
        pass

    found = subtract_readings(before, counters.read_counters(None))
    assert found["cpu_s"] >= 0.3
    assert found["device_read_bytes"] is None


def test_waiting_for_the_disk_and_stolen_time_are_not_work(tmp_path, monkeypatch):
    """Fields of proc(5): user nice system idle iowait irq softirq steal guest guest_nice."""
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 200 300 4000 5000 6 7 80 90 10\ncpu0 1 2 3\n")
    monkeypatch.setattr(counters, "Path", lambda name: stat if name == "/proc/stat" else tmp_path / "missing")
    tick_s = counters._TICK_S

    reading = counters.read_counters(None)

    assert reading.busy_s == pytest.approx((100 + 200 + 300 + 6 + 7) * tick_s)
    assert reading.steal_s == pytest.approx(80 * tick_s)
    assert reading.process is None


def test_a_disk_of_two_uses_counts_once():
    first, second = (Device(name) for name in sorted(path.name for path in Path("/sys/block").iterdir())[:2])
    both = combine_devices([first, second])

    assert combine_devices([both, first]) == both
    assert counters.read_counters(both, further=[first, both]).further == ()
    assert len(counters.read_counters(first, further=[both, second]).further) == 1
