"""Emulated accelerators: what they read, when their steps end, how their time is divided, and what does not count."""

import errno
import os
import signal
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from jobs import checks
from jobs.benchmarks import emulated_accelerators, feed
from jobs.benchmarks.emulated_accelerators import Plan, Sample
from jobs.checks import Limits
from jobs.data.manifest import MANIFEST_NAME, scan_folder
from jobs.judging.judge import judged_run
from jobs.system import page_cache
from tests.jobs.jobs_factory import check, request_of

FILES, BYTES, STEP_S = 24, 50_000, 0.02
PARTS = feed.BENCHMARK.wall_parts


def settings(**changes):
    """Return the settings of a run by hand, with more or other keys."""
    own = {key: changes.pop(key) for key in ("accelerators", "engine", "source") if key in changes}
    usual = {**feed.BENCHMARK.defaults, "batch_size": 2, "threads": 2}
    usual["accelerator"] = {"name": "own", "step_s": STEP_S, "samples_per_file": changes.pop("samples_per_file", 1)}
    return {**usual, "benchmark": usual["benchmark"] | {"accelerators": 2} | own, **changes}


@pytest.fixture
def files(disk):
    folder = disk / "samples"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(FILES):
        (folder / f"{number:02}.bin").write_bytes(rng.bytes(BYTES + number))
    page_cache.sync_file_system(folder)
    return folder


@pytest.fixture
def emulate(template, files, tmp_path):
    def run(**changes):
        held = tmp_path / "held"
        held.mkdir(exist_ok=True)
        if not (listing := held / MANIFEST_NAME).exists():
            listing.write_text(scan_folder(files, any_kind=True).to_json())
        request = request_of(files, settings(**changes), manifest=str(held))
        return template.run(request, tmp_path / "run.log", 60)

    return run


def test_each_accelerator_takes_a_batch_per_step_and_its_time_is_divided_without_a_rest(emulate):
    run = emulate()
    rows = run["accelerators"]

    assert [row["samples"] for row in rows] == [12, 12], "24 samples by batches of 2: six steps of two accelerators"
    assert run["images"] == run["images_asked"] == FILES
    assert run["bytes_read"] == sum(BYTES + number for number in range(FILES)) == run["bytes_predicted"]
    for row in rows:
        assert sum(row[part] for part in PARTS) == pytest.approx(row["wall_s"], rel=1e-6)
        assert row["compute_s"] < 6 * STEP_S + row["late_share"] * 6 * STEP_S + 1e-3
        assert row["wall_s"] >= 6 * STEP_S
        assert 0 <= row["cpu_wait_percent"] < 100
    assert run["au_percent"] == min(row["au_percent"] for row in rows) <= 100
    assert (check(run, "cold")["passed"], check(run, "device_bytes")["passed"]) == (True, True)
    assert emulate(accelerators=3)["images"] == 24, "four steps of three"


def test_tensorflow_reads_the_same_bytes(emulate):
    by_threads, by_tensorflow = emulate(engine="raw"), emulate(engine="tf")

    assert by_tensorflow["bytes_read"] == by_threads["bytes_read"]
    assert check(by_tensorflow, "device_bytes")["passed"] is True, "by the processes of the accelerators"


def test_batches_from_memory_read_no_file(emulate):
    run = emulate(source="memory")

    assert (run["bytes_read"], run["images"], "listed_bytes" in run) == (0, FILES, False)
    assert run["device_bytes"] < BYTES


def test_warm_data_come_from_memory(emulate):
    run = emulate(cache="warm")

    assert (check(run, "warm")["passed"], check(run, "from_memory")["passed"]) == (True, True)


@pytest.mark.parametrize(("changes", "why"), [({"batch_size": 5}, "enough for 2 steps of 2 accelerators")])
def test_too_few_data_are_refused(emulate, changes, why):
    run = emulate(**changes)

    assert run["status"] == "failed"
    assert why in run["log_tail"]


def test_an_accelerator_that_cannot_read_ends_the_run(emulate, files):
    assert (run := emulate())["images"] == run["images_asked"] == FILES
    os.truncate(min(files.iterdir()), 1)
    run = emulate()

    assert run["status"] == "failed"
    assert "00.bin ends at byte 1" in run["log_tail"]


def _open_files():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_each_accelerator_takes_three_open_files_of_the_parent():
    before, batches = _open_files(), [[Sample(Path("x"), 0, 1)]] * 8
    plan = Plan(8, STEP_S, 1, 0, "raw", from_memory=True, batches=batches)

    accelerators = emulated_accelerators.Accelerators(plan)
    own = _open_files() - before
    with accelerators:
        assert _open_files() - before - own == 3 * 8  # a pipe, and the two of `multiprocessing`


def test_an_accelerator_that_may_not_open_more_files_ends_the_run_with_the_cure(files, monkeypatch):
    def read(*_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "/data/x")

    monkeypatch.setattr(emulated_accelerators, "_read_whole", read)
    plan = Plan(1, STEP_S, 1, 0, "raw", from_memory=False, batches=[[Sample(min(files.iterdir()), 0, 1)]])

    with (
        pytest.raises(emulated_accelerators.AcceleratorError, match="accelerator 0: /data/x: Too many open") as caught,
        emulated_accelerators.Accelerators(plan) as accelerators,
    ):
        accelerators.run()

    assert "ulimit -n" in caught.value.hint


def test_an_accelerator_that_is_killed_ends_the_run():
    plan = Plan(2, STEP_S, 1, 0, "raw", from_memory=True, batches=[[Sample(Path("x"), 0, 1)]] * 2)
    accelerators = emulated_accelerators.Accelerators(plan)
    accelerators.__enter__()
    os.kill(accelerators.pids()[1], signal.SIGKILL)

    with pytest.raises(emulated_accelerators.AcceleratorError, match="has ended unexpectedly"):
        accelerators.run()
    accelerators.__exit__()


def _batches(**changes):
    sizes = {Path(f"{number}.bin"): 12 * 100 for number in range(4)}
    return feed.assign_samples(settings(**changes), sizes)


def test_a_file_of_several_samples_is_read_from_its_begin_to_its_end_and_no_sample_twice():
    batches = _batches(samples_per_file=3)
    samples = [sample for batch in batches for sample in batch]

    assert len(batches) == 6
    assert Counter(samples).most_common(1)[0][1] == 1
    assert {sample.bytes for sample in samples} == {400}
    assert [sample.offset for sample in samples] == [0, 400, 800] * 4


def test_the_order_of_files_is_drawn_from_the_seed_and_iterations_bound_the_steps():
    assert _batches(seed=1) != _batches(seed=2)
    assert _batches(seed=1) == _batches(seed=1)
    assert len(_batches(samples_per_file=3, iterations=2)) == 2 * 2, "two steps of two accelerators"


class _Clock:
    """A clock that goes on while somebody sleeps, and a little whenever it is read: no machine is so even."""

    def __init__(self):
        self._now_s = 100.0

    def perf_counter(self):
        self._now_s += 1e-5
        return self._now_s

    def sleep(self, seconds):
        self._now_s += seconds


class _Batches:
    """A source of batches that come so long after they are asked for; those that take no time are there before."""

    def __init__(self, clock, waits_s):
        self.clock, self.waits_s = clock, iter(waits_s)

    def begin(self):
        """Do nothing."""

    def next(self):
        if wait_s := next(self.waits_s):
            self.clock.sleep(wait_s)
        return self.clock.perf_counter() if wait_s else 0.0


class _Alone:
    """The meeting of one accelerator, which is free when its deadline is over."""

    def __init__(self, clock):
        self.clock = clock

    def come(self, _index, number, deadline_s):
        return deadline_s if number else self.clock.perf_counter()


@pytest.fixture
def run_alone(monkeypatch):
    """A function: the times of one accelerator whose batches come after so many seconds, on an even clock."""
    clock = _Clock()
    monkeypatch.setattr(emulated_accelerators, "time", clock)

    def run_alone(*waits_s):
        plan = Plan(1, STEP_S, 1, 0, "raw", from_memory=False, batches=[[Sample(Path("x"), 0, 1)]] * len(waits_s))
        return emulated_accelerators.run_steps(plan, 0, _Alone(clock), _Batches(clock, waits_s))

    return run_alone


def test_the_first_step_counts_for_nothing_and_waiting_in_later_ones_does(run_alone):
    row = run_alone(0.3, STEP_S, STEP_S, STEP_S, STEP_S)

    assert row["startup_s"] == pytest.approx(0.3, rel=1e-3)
    assert row["au_percent"] == pytest.approx(50, abs=0.2), "it waits for as long as it computes"
    assert row["au_dlio_percent"] == pytest.approx(50, abs=0.2)


def test_a_late_wake_up_lengthens_no_run_but_raises_what_dlio_counts(monkeypatch, run_alone):
    usual, ready, waiting = emulated_accelerators.wait_until, [0.0] * 20, [STEP_S] * 20
    (honest, honest_waiting) = run_alone(*ready), run_alone(*waiting)
    monkeypatch.setattr(emulated_accelerators, "wait_until", lambda deadline_s: usual(deadline_s + 0.004))
    (overslept, overslept_waiting) = run_alone(*ready), run_alone(*waiting)

    assert overslept["late_share"] == pytest.approx(0.2, abs=0.01)
    assert overslept["wall_s"] == pytest.approx(honest["wall_s"] + 0.004, abs=1e-3), "by the last step alone"
    assert overslept_waiting["au_percent"] < honest_waiting["au_percent"]
    assert overslept_waiting["au_dlio_percent"] > honest_waiting["au_dlio_percent"] + 3


@pytest.mark.parametrize(("late", "gap_s", "passed"), [(0.01, 0.0, True), (0.0101, 0.0, False), (0.0, 0.02, False)])
def test_steps_that_end_late_and_times_that_do_not_add_up_make_a_run_invalid(late, gap_s, passed):
    row = {"accelerator": 3, "late_share": late, "wall_s": 1.0 + gap_s, **dict.fromkeys(PARTS, 0.2)}
    found = checks.on_time({"accelerators": [row], "wall_parts": PARTS}, Limits())

    assert found["passed"] is passed
    assert ("accelerator 3" in found["message"]) is not bool(gap_s)


def test_a_run_whose_accelerators_are_late_is_invalid_for_that_reason(emulate):
    run = emulate()
    run["accelerators"][1]["late_share"] = 0.5
    raw = {key: value for key, value in run.items() if key not in ("checks", "reason", "cause")} | {"status": "ended"}

    assert judged_run(raw, "cold", Limits(other_cpu_max=1e9, other_device_max=1, delayed_max=1))["cause"] == "on_time"


def test_the_worst_accelerator_of_all_nodes_decides():
    nodes = [
        {
            "accelerators": [
                {"au_percent": au, "au_dlio_percent": au, "late_share": au / 1e4, "cpu_wait_percent": au / 10}
                for au in shares
            ]
        }
        for shares in ([95.0, 93.0], [94.0, 90.0])
    ]
    together = feed.BENCHMARK.combined_metrics(nodes)

    assert (together["au_percent"], together["au_mean_percent"], together["late_share"]) == (90.0, 93.0, 0.0095)
    assert together["cpu_wait_percent"] == 9.0, "of the worst one"
    assert len(together["accelerators"]) == 4
