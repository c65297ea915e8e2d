"""The trace of the system: its sums against the kernel's own counters, its grid, its file, its failures."""

# ruff: noqa: SLF001 - the parts are tested one by one

import csv
import itertools
import os
import threading
import time
from operator import sub
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.observe import trace
from jobs.observe.trace import SystemTrace
from jobs.system import page_cache
from jobs.system.device import device_of
from tests.jobs.jobs_factory import fetched
from tests.lies import setup

MIB = 2**20
GROUPS = {
    "process": ["read", "writ"],
    "io pressure": ["some", "full"],
    "total cpu usage": ["usr", "sys", "idl", "wai", "stl"],
    "memory usage": ["rss", "cach", "dirty", "wback"],
}
HOURS = 10_000.0


class HandClock:
    """A clock that goes on when a test says so: samples that are due meanwhile are taken, each at its time."""

    def __init__(self):
        self.at_s, self._due_s, self._hurries, self._waits = 0.0, 0.0, False, threading.Event()

    def now(self):
        return self.at_s

    def wait(self, stop, until_s):
        if self._hurries:
            self.at_s = max(self.at_s, until_s)
        self._due_s = until_s
        self._waits.set()
        while self.at_s < until_s:
            if stop.acquire(timeout=0.001):
                self._waits.clear()
                return True
        return stop.acquire(blocking=False)

    def go(self, seconds):
        end_s = self.at_s + seconds
        while self._sampler_waits() and self._due_s <= end_s + 1e-9:
            self._waits.clear()
            self.at_s = max(self.at_s, self._due_s)
        self.at_s = max(self.at_s, end_s)

    def hurry(self):
        """Let nobody wait who begins to from now on."""
        self._hurries = True

    def _sampler_waits(self):
        while not self._waits.wait(0.01):
            if "trace" not in {thread.name for thread in threading.enumerate()}:
                return False
        return True


@pytest.fixture
def clock(monkeypatch):
    clock = HandClock()
    monkeypatch.setattr(SystemTrace, "clock", clock)
    return clock


@pytest.fixture
def run(tmp_path, clock):
    """Trace some work of so many seconds; returns what `finish` says and the table, each row "group column" to text.

    What comes `after` the iteration has the clock that nobody hurries.
    """

    def run(work=lambda: None, *, seconds=1.0, paths=(), interval_s=HOURS, tail_s=0.0, **more):
        traced = SystemTrace([*paths], interval_s, tail_s, tmp_path / "trace.csv", more.get("settle"))
        traced.start()
        work()
        clock.go(seconds)
        if not more:
            clock.hurry()
        traced.stop(failed=more.get("failed", False))
        if "after" in more:
            more["after"]()
        found = traced.finish()
        assert traced.finish() is found
        return found, table(tmp_path / "trace.csv")

    return run


def table(file):
    with file.open(encoding="utf-8", newline="") as stream:
        groups, columns, *rows = csv.reader(stream)
    groups = itertools.accumulate(groups, lambda before, name: name or before)  # a group stands over its first column
    names = [f"{group} {column}" for group, column in zip(groups, columns, strict=True)]
    return [dict(zip(names, row, strict=True)) for row in rows]


def elapsed(rows, phase=None):
    return [float(row["elapsed s"]) for row in rows if phase in (None, row["phase phase"])]


def total(rows, column):
    """Sum a rate over the intervals that end at each row; the first row has none."""
    lengths = [late - early for early, late in itertools.pairwise(elapsed(rows))]
    return sum(float(row[column]) * length for row, length in zip(rows[1:], lengths, strict=True))


def kernel(device):
    """Bytes read and written as the kernel counts them: sectors of 512, fields 3 and 7 of the device's stat."""
    fields = (Path("/sys/block") / device / "stat").read_text().split()
    return int(fields[2]) * 512, int(fields[6]) * 512


def pressure():
    return int(Path("/proc/pressure/io").read_text().split("\n")[0].rpartition("=")[2])


def read_cold(path, times):
    for _ in range(times):
        page_cache.evict_pages([path])
        page_cache.read_through([path])


@pytest.fixture
def big(disk):
    path = disk / "big"
    path.write_bytes(os.urandom(32 * MIB))
    page_cache.sync_file_system(disk)
    return path


def test_the_sums_of_a_device_and_of_the_process_are_what_the_kernel_counted(run, disk, big):
    name, within = device_of(disk).name, []

    def work():
        within.append((*kernel(name), fetched()))
        read_cold(big, 10)
        (disk / "written").write_bytes(bytes(8 * MIB))
        within.append((*kernel(name), fetched()))

    without = [(*kernel(name), fetched())]
    _, rows = run(work, paths=[disk])
    without.append((*kernel(name), fetched()))

    # Others use the device, too, also before the first sample and after the last one.
    columns = (f"dsk/{name} read", f"dsk/{name} writ", "process read")
    for column, least, most in zip(columns, *(map(sub, *reversed(each)) for each in (within, without)), strict=True):
        assert least * 0.999 <= total(rows, column) <= most * 1.001, column
    assert total(rows, "process writ") == pytest.approx(8 * MIB, rel=0.01)
    assert min(total(rows, column) for column in ("process read", columns[0])) >= 10 * 32 * MIB * 0.999


def test_pressure_is_the_share_of_the_time_that_the_kernel_counted(run, big):
    if not Path("/proc/pressure/io").exists():
        pytest.skip("this kernel counts no pressure")
    within = []

    def work():
        within.append(pressure())
        read_cold(big, 10)
        within.append(pressure())

    before = pressure()
    _, rows = run(work)
    after = pressure()

    stalled_us = total(rows, "io pressure some") / 100 * 1e6
    assert 0 < (within[1] - within[0]) * 0.99 <= stalled_us <= (after - before) * 1.01


def test_a_busy_core_is_seen_and_the_shares_make_up_the_whole(run):
    began = time.perf_counter()

    def spin():
        end = time.process_time() + 0.5
        while time.process_time() < end:
            pass

    _, rows = run(spin)

    shares = {name: float(value) for name, value in rows[-1].items() if name.startswith("total cpu")}
    assert sum(shares.values()) == pytest.approx(100)
    # A virtual machine's ticks may call some of it stolen, or the kernel's.
    busy = sum(shares[f"total cpu usage {kind}"] for kind in ("usr", "sys", "stl"))
    assert busy / 100 * os.cpu_count() * (time.perf_counter() - began) >= 0.35


def test_memory_is_that_of_this_process_and_of_the_page_cache(run):
    held = []

    _, rows = run(lambda: held.append(b"x" * (64 * MIB)))

    first, last = rows[0], rows[-1]
    assert int(last["memory usage rss"]) - int(first["memory usage rss"]) >= 60 * MIB
    cached = Path("/proc/meminfo").read_text().split("\nCached:")[1].split()[0]
    assert int(last["memory usage cach"]) == pytest.approx(int(cached) * 1024, rel=0.2)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.05, [0, 0.05]),  # a run shorter than the interval has its beginning and its end
        (0.42, [0, 0.42]),  # the end swallows a sample just before it
        (0.62, [0, 0.4, 0.62]),
    ],
)
def test_the_iteration_ends_with_a_sample_of_its_own(run, seconds, expected):
    found, rows = run(interval_s=0.4, seconds=seconds)

    assert elapsed(rows) == pytest.approx(expected)
    assert {row["phase phase"] for row in rows} == {"iteration"}
    assert found["samples"] == len(rows)


def test_the_tail_is_marked_and_as_long_as_asked_and_what_was_written_is_told_with_its_cost(run):
    found, rows = run(interval_s=0.1, seconds=0.25, tail_s=0.35)

    assert elapsed(rows, "iteration") == pytest.approx([0, 0.1, 0.25])
    assert elapsed(rows, "tail") == pytest.approx([0.35, 0.45, 0.6])
    told = {"file": "trace.csv", "error": None, "interval_s": 0.1, "tail_s": 0.35, "samples": len(rows)}
    assert found.items() >= told.items()
    assert found["cpu_s"] > 0


@pytest.mark.parametrize("tail_s", [0.0, 0.2])
def test_what_goes_on_after_the_iteration_is_watched_to_its_end_and_the_tail_begins_there(run, clock, tail_s):
    _, rows = run(interval_s=0.1, seconds=0.2, tail_s=tail_s, settle=lambda: (clock.go(0.5), clock.hurry()))

    assert elapsed(rows, "iteration")[-1] == pytest.approx(0.2)
    assert elapsed(rows, "tail")[-1] == pytest.approx(0.7 + tail_s)


def test_who_samples_waits_for_the_time_that_is_due_unless_told_to_stop():
    clock, stop = trace.TraceClock(), threading.Lock()
    stop.acquire()
    due_s = clock.now() + 0.05

    assert (clock.wait(stop, due_s), clock.now() >= due_s) == (False, True)
    assert clock.wait(stop, due_s - 5) is False
    stop.release()
    assert clock.wait(stop, due_s + 3600) is True


def test_two_paths_on_one_device_show_it_once(run, disk):
    (disk / "sub").mkdir()

    found, rows = run(paths=[disk, disk / "sub", disk])

    names = [name for name in rows[0] if name.startswith("dsk/")]
    assert names == [f"dsk/{device_of(disk).name} read", f"dsk/{device_of(disk).name} writ"]
    assert found["sources"] == dict.fromkeys([f"dsk/{device_of(disk).name}", *GROUPS], "ok")


def test_a_loop_device_and_the_device_of_its_file_are_both_traced(run, disk, staged):
    under = device_of(disk).name
    name, point = staged(setup.disk, disk / "image", disk / "point")
    path = point / "file"
    path.write_bytes(os.urandom(8 * MIB))
    page_cache.sync_file_system(point)
    page_cache.evict_pages([disk / "image"])
    before, before_under = kernel(name)[0], kernel(under)[0]

    _, rows = run(lambda: read_cold(path, 1), paths=[point, disk])

    read, read_under = kernel(name)[0] - before, kernel(under)[0] - before_under
    groups = [column for column in rows[0] if column.startswith("dsk/")]
    assert groups == [f"dsk/{device} {what}" for device in (name, under) for what in ("read", "writ")]
    assert read >= 8 * MIB
    assert total(rows, f"dsk/{name} read") == pytest.approx(read, rel=0.01)
    assert 8 * MIB <= total(rows, f"dsk/{under} read") * 1.01 <= read_under * 1.02  # others read from it, too


def test_the_file_is_in_the_style_of_dstat(run, tmp_path):
    run()

    group, columns, row, *_ = (tmp_path / "trace.csv").read_text(encoding="utf-8").split("\n")
    assert group == (
        '"epoch","elapsed","process",,"io pressure",,"total cpu usage",,,,,"memory usage",,,,"phase"'  # as dstat has it
    )
    assert columns.startswith('"epoch","s","read","writ","some","full","usr","sys","idl","wai","stl","rss","cach",')
    assert columns.endswith('"dirty","wback","phase"')
    epoch, elapsed, *rest = row.split(",")
    assert float(epoch) == pytest.approx(time.time(), abs=60)
    assert elapsed == "0"
    assert rest[:9] == [""] * 9  # what is counted over an interval has no value at time zero
    assert all(int(level) >= 0 for level in rest[9:13])
    assert rest[13] == '"iteration"'


def test_a_source_that_fails_half_way_stays_empty_from_there_and_the_run_goes_on(run, monkeypatch):
    numbers = iter([0, 1000, 2000, None, 4000, 5000, 6000, 7000])  # it would come back

    def fails():
        number = next(numbers)
        if number is None:
            raise OSError(5, "Input/output error", "/proc/self/io")
        return number, 0

    monkeypatch.setattr(trace, "_process_bytes", fails)

    found, rows = run(interval_s=0.1, seconds=0.7)

    assert found["sources"]["process"] == "not readable: Input/output error: /proc/self/io"
    assert found["sources"]["memory usage"] == "ok"
    cells = [row["process read"] for row in rows]
    assert "" not in cells[1:3]
    assert set(cells[3:]) == {""}
    assert total(rows[:3], "process read") == pytest.approx(2000, rel=0.01)


def test_paths_of_which_nothing_can_be_told_are_named(run, tmp_path):
    found, _ = run(paths=[tmp_path / "gone", Path("/proc")])

    assert found["sources"][str(tmp_path / "gone")].startswith("not readable: No such file or directory")
    assert found["sources"]["/proc"] == "no device, and no statistics of its client: proc"


def test_the_file_is_written_whole_also_when_the_iteration_fails_and_then_has_no_tail(run, tmp_path):
    found, rows = run(interval_s=0.1, seconds=0.1, tail_s=60, failed=True)

    assert found["samples"] == len(rows) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["trace.csv"]


def test_a_file_that_cannot_be_written_is_told_and_fails_nothing(tmp_path, clock):
    traced = SystemTrace([], 0.1, 0, tmp_path / "missing" / "trace.csv")
    traced.start()
    clock.go(0.1)
    traced.stop()

    found = traced.finish()

    assert (found["file"], found["samples"]) == (None, 2)
    assert found["error"].startswith("No such file or directory")


TOLD = {
    "/proc/stat": "cpu  100 200 300 4000 5000 6 7 80 90 10\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 5\n",
    "/proc/self/io": "rchar: 9\nread_bytes: 4096\nwrite_bytes: 512\n",
    "/proc/pressure/io": "some avg10=0.00 total=77\nfull avg10=0.00 total=33\n",
    "/proc/self/statm": "900 25 3 1 0 7 0\n",
    "/proc/meminfo": "MemTotal: 99 kB\nCached: 11 kB\nSwapCached: 8 kB\nDirty: 5 kB\nWriteback: 3 kB\n",
}


def test_each_source_takes_its_counts_from_the_lines_of_the_kernel(monkeypatch):
    monkeypatch.setattr(trace, "read_kernel", TOLD.get)

    found = {source.name: source.read() for source in trace.find_counters([])[0]}

    assert found == {
        "process": (4096, 512), "io pressure": (77, 33), "total cpu usage": (300, 313, 4000, 5000, 80),
        "memory usage": (25 * os.sysconf("SC_PAGE_SIZE"), 11 << 10, 5 << 10, 3 << 10),
    }  # fmt: skip


def test_rates_and_shares_are_per_second_and_a_counter_that_was_set_back_is_unknown_or_none():
    assert trace._rates_per_s([100, -1, 0], 0.5) == [200, None, 0]
    assert trace._model_rates([-500, 1_000_000, -3], 0.5) == [None, None, None]
    assert trace._percent_of_time([250_000, 0], 0.5) == [50, 0]
    assert trace._percent_of_sum([30, 10, 60, -5, 0], 1.0) == [30, 10, 60, 0, 0]


@given(st.floats(-1e15, 1e15))
def test_a_number_is_written_so_that_it_reads_the_same(number):
    assert float(trace._format_cell(number)) == pytest.approx(number, abs=1e-6)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_word_is_written_so_that_it_reads_the_same(word):
    assert next(csv.reader([trace._format_cell(word)], strict=True), None) == [word] or "\n" in word or "\r" in word
