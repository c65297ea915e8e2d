"""One word for what bounds a cell: at the exact limits of each rule, and of campaigns that were really measured."""

import json
import math
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.judging import bound
from jobs.judging.bound import AHEAD as AHEAD_HELPS
from jobs.judging.bound import (
    HELPS,
    MORE_THREADS,
    UNDECIDED,
    bound_of_cell,
    bound_of_work,
)
from jobs.judging.peaks import Peaks
from jobs.judging.work_done import UNKNOWN, StepTimes, StorageSpeed, TimeUse, storage_speed, time_use
from jobs.model.record import ODD_FIGURES

LIMITED, MORE, FULL = (
    StorageSpeed(at_most=100.0),
    StorageSpeed(to_more=100.0, readers=16),
    StorageSpeed(50.0, 100.0, 16),
)


def below(value):
    return math.nextafter(value, 0.0)


def above(value):
    return math.nextafter(value, math.inf)


def work(**changes):
    """Ten seconds of one thread that read and did next to nothing else."""
    return replace(TimeUse(10.0, 0.5, 2.0, threads=1, decodes=True, storage_busy_s=0.5, read_mb=10.0), **changes)


def storage(busy_s, rate, given, **changes):
    """Ten seconds in which a storage that was busy for `busy_s` gave `rate` MB/s meanwhile."""
    return work(storage_busy_s=busy_s, read_mb=busy_s * rate, given=given, **changes)


MEASURED = json.loads((Path(__file__).parent / "measured.json").read_text(encoding="utf-8"))
for _each in MEASURED:
    _each["record"]["terms"] = {"checks": {"other_cpu_max": 0.5}}
"""Records of campaigns on a virtual machine with two processors, some beside neighbours: what
`jobs.judging.work_done` reads of them. ``word`` is what is known by how they were made: the emulated storages are those
of a testbed with models.
"""

TRAINED = StepTimes(10, 1.0, 0.1, 8.5, batch=32)
AHEAD = replace(TRAINED, ahead=True)
EDGES = [  # what is just decided, what is just not, and the word
    # One thread does one thing after the other: half of its time, and ten points more than anything else.
    ("decoding", work(cpu_s=5.5, storage_busy_s=4.5), work(cpu_s=5.4, storage_busy_s=4.5)),
    ("decoding", work(cpu_s=6.0, storage_busy_s=0.1), work(cpu_s=4.9, storage_busy_s=0.1)),
    ("processors", work(cpu_s=9.0, decodes=False), work(cpu_s=4.9, decodes=False)),
    ("device", storage(6.0, 90.0, LIMITED, cpu_s=3.0), storage(6.0, 89.9, LIMITED, cpu_s=3.0)),
    ("device", storage(6.0, 90.0, LIMITED, cpu_s=3.0), storage(6.0, 90.0, LIMITED, cpu_s=5.1)),
    ("latency", storage(6.0, 80.0, MORE, cpu_s=3.0), storage(6.0, 80.1, MORE, cpu_s=3.0)),
    # What several threads use is in use nearly all of the time where it is what bounds them.
    ("decoding", work(cpu_s=16.0, threads=4), work(cpu_s=15.9, threads=4)),
    ("decoding", work(cpu_s=18.0, threads=4, storage_busy_s=7.9), work(cpu_s=18.0, threads=4, storage_busy_s=8.1)),
    ("device", storage(8.0, 90.0, LIMITED, threads=4), storage(7.9, 90.0, LIMITED, threads=4)),
    # More reads at once help where the processors could do more, too.
    ("latency", storage(9.0, 50.0, MORE, threads=4, cpu_s=13.9), storage(9.0, 50.0, MORE, threads=4, cpu_s=14.1)),
    # A quota: used up, and threads stopped by it for more than a hundredth of the time.
    ("throttled", work(cpu_s=4.0, quota=0.5, throttled_s=5.0, threads=4),
     work(cpu_s=3.9, quota=0.5, throttled_s=5.0, threads=4)),
    ("throttled", work(cpu_s=4.5, quota=0.5, throttled_s=above(0.1), threads=4),
     work(cpu_s=4.5, quota=0.5, throttled_s=0.1, threads=4)),
    ("throttled", work(io_limit=0.9, threads=4, storage_busy_s=9.5),
     work(io_limit=0.89, threads=4, storage_busy_s=9.5)),
    # Others held half a processor: then the threads themselves must have been ready to run.
    ("decoding", work(cpu_s=14.0, threads=4, others=below(0.5)), work(cpu_s=14.0, threads=4, others=0.5)),
    ("decoding", work(cpu_s=10.0, threads=4, others=1.0, ready_share=0.9),
     work(cpu_s=10.0, threads=4, others=1.0, ready_share=0.89)),
    ("decoding", work(cpu_s=9.0, others=0.9), work(cpu_s=9.0, others=0.91)),  # one thread beside them
    # A run that hardly began says little.
    ("decoding", work(start_s=2.0, cpu_s=9.0), work(start_s=above(2.0), cpu_s=9.0)),
    # Steps, where nothing is made ahead: the larger part of the time.
    ("steps", work(steps=replace(TRAINED, compute_s=5.5, waiting_s=4.5)),
     work(steps=replace(TRAINED, compute_s=5.4, waiting_s=4.6))),
    ("steps", work(steps=replace(TRAINED, saving_s=7.4)), work(steps=replace(TRAINED, saving_s=7.6))),
    # Where batches are made ahead: a step that waits a tenth of its time waits for what takes longer than itself.
    ("steps", work(steps=replace(AHEAD, waiting_s=0.5)), work(steps=replace(AHEAD, waiting_s=0.7))),
    ("decoding", work(steps=replace(AHEAD, waiting_s=1.0), cpu_s=9.0),
     work(steps=replace(AHEAD, waiting_s=0.9), cpu_s=9.0)),
    ("steps", work(steps=replace(AHEAD, waiting_s=0.1), cpu_s=6.3),
     work(steps=replace(AHEAD, waiting_s=0.1), cpu_s=6.5)),
]  # fmt: skip


@pytest.mark.parametrize(("word", "decided", "not_decided"), EDGES)
def test_a_word_is_said_from_its_limit_on_and_not_before(word, decided, not_decided):
    said, unsaid = bound_of_work(decided), bound_of_work(not_decided)

    assert (said.word, unsaid.word) == (word, UNDECIDED)
    assert 1 <= len(said.because.split(", ")) <= 3
    assert (bool(said.helps), unsaid.helps) == (True, "")
    assert unsaid.because


@pytest.mark.parametrize(
    ("given", "why"),
    [(UNKNOWN, "bandwidth or latency, because the rate for more readers is unknown"), (LIMITED, "bandwidth or latency"),
     (StorageSpeed(to_more=50.0, readers=8), "bandwidth or latency")],
)  # fmt: skip
def test_a_busy_storage_of_which_nobody_knows_what_it_can_give_is_not_decided(given, why):
    assert bound_of_work(storage(9.5, 45.0, given)).because.endswith(f"; {why}")


def test_at_the_limit_of_its_bytes_a_storage_is_no_slow_one_whatever_more_readers_get():
    assert bound_of_work(storage(9.5, 49.0, FULL)).word == "device"


def test_what_one_thread_did_with_the_rest_of_its_time_is_not_guessed():
    assert "neither processors nor storage 95%" in str(bound_of_work(work(storage_busy_s=0.0)))


def test_where_no_device_tells_the_threads_that_wait_for_the_storage_do():
    served = work(storage_busy_s=None, storage_share=0.9, threads=8, read_mb=90.0, given=StorageSpeed(None, 100.0, 16))

    assert str(bound_of_work(served)) == "latency: threads wait for storage 90%, 10 of 100 MB/s of 16 readers"
    assert bound_of_work(replace(served, storage_share=None)).word == UNDECIDED


def test_a_busy_time_that_is_counted_in_ticks_decides_nothing_and_looks_at_the_threads_do():
    coarse = storage(9.5, 90.0, LIMITED, threads=8, storage_exact=False)

    assert bound_of_work(replace(coarse, storage_exact=True)).word == "device"
    assert bound_of_work(coarse).because.endswith(
        "the kernel counts the device's busy time in ticks, which are too coarse here"
    )
    assert bound_of_work(replace(coarse, storage_share=0.9)).word == "device"
    assert bound_of_work(replace(coarse, storage_share=0.5)).word == UNDECIDED
    idle = replace(coarse, storage_busy_s=1.0, cpu_s=18.0, storage_share=0.9)  # at most so much: looks are not needed
    assert "storage busy 10%" in str(bound_of_work(idle))


@pytest.mark.parametrize(("requests", "threads", "is_exact"), [(100, 8, True), (101, 8, False), (101, 1, True)])
def test_of_seldom_requests_and_of_one_after_the_other_the_busy_time_is_exact(requests, threads, is_exact):
    record = json.loads(json.dumps(next(each["record"] for each in MEASURED if each["word"] == "decoding")))
    record["cell"]["settings"]["threads"] = threads
    for run in record["runs"]:
        run |= {"elapsed_s": 1.0, "device_use": [run["device_use"][0] | {"reads": requests, "writes": 0}]}

    assert time_use(record).storage_exact is is_exact


def test_a_model_knows_how_long_it_was_busy():
    record = next(each["record"] for each in MEASURED if "file server" in each["about"])
    busy = sorted(run["served"]["lustre"]["busy_s"] for run in record["runs"])

    found = time_use(record)

    assert (found.storage_exact, found.storage_busy_s) == (True, busy[len(busy) // 2])


def test_a_program_of_which_only_the_processors_are_known_is_bound_by_them_where_all_are_busy():
    assert str(bound_of_work(TimeUse(30.0, 57.0, 2.0))) == "processors: 1.9 of 2 processors busy"
    assert bound_of_work(TimeUse(30.0, 30.0, 2.0)).word == UNDECIDED
    assert bound_of_work(TimeUse(0.0)).word == UNDECIDED


def test_of_a_program_the_processors_that_all_it_started_kept_busy_count():
    record = json.loads(json.dumps(next(each["record"] for each in MEASURED if each["word"] == "decoding")))
    record["cell"] |= {"kind": "program", "settings": {"threads": 1, "benchmark": {"name": "command"}}}
    record["runs"] = [{**run, "elapsed_s": 2.0, "program": {"cpu_s": 3.8}, "other_cpu": 0.0} for run in record["runs"]]

    assert str(bound_of_cell(record)) == "processors: 1.9 of 2 processors busy, storage busy 6%"


def test_a_training_on_processors_is_bound_by_its_steps_or_not_decided_but_where_they_are_all_busy():
    own = replace(TRAINED, on_processors=True)
    waits = replace(own, compute_s=2.0, waiting_s=8.0, first_s=0.8)

    assert bound_of_work(work(steps=own, cpu_s=19.0, threads=4)).word == "steps"
    assert bound_of_work(work(steps=waits, cpu_s=16.0, threads=4)).because.endswith("the input's part is unknown")
    assert bound_of_work(work(steps=waits, cpu_s=19.0, threads=4)).word == "processors"


def test_a_training_that_waits_is_bound_by_what_its_input_waits_for():
    waits = replace(TRAINED, compute_s=2.0, waiting_s=8.0, first_s=0.8)

    found = bound_of_work(storage(7.5, 90.0, LIMITED, steps=waits))

    assert str(found) == "device: waiting for input 80%, 90 of 100 MB/s, storage busy 91%"
    assert found.share == pytest.approx(0.8)


def test_what_helps_follows_from_the_word_and_from_what_is_idle():
    one, eight = work(cpu_s=9.5), work(cpu_s=19.0, threads=8)
    late, ahead = (work(steps=replace(each, waiting_s=1.0, first_s=1.0)) for each in (TRAINED, AHEAD))

    assert bound_of_work(one)[3:] == (MORE_THREADS, {"threads": 2})
    assert bound_of_work(eight)[3:] == (HELPS["decoding"], {})
    assert (bound_of_work(late).helps, bound_of_work(late).try_) == (AHEAD_HELPS, {"prefetch": 1})
    assert bound_of_work(ahead)[3:] == (HELPS["steps"], {})
    assert bound_of_work(storage(6.0, 80.0, MORE, cpu_s=3.0)).try_ == {"threads": 16}
    assert bound_of_work(work())[3:] == ("", {})


def test_of_a_storage_that_nobody_measured_the_baselines_that_decide_it_are_named():
    record = json.loads(json.dumps(next(each["record"] for each in MEASURED if each["word"] == "decoding")))
    record["cell"] |= {"data": "images", "page_cache": "cold"}
    record["cell"]["settings"]["threads"] = 1
    for run in record["runs"]:
        use = run["device_use"][0]
        busy = {"busy_s": 0.95 * run["elapsed_s"], "own_read_bytes": use["read_bytes"]}
        run |= {"cpu_s": 0.1, "device_use": [use | busy]}

    found = bound_of_cell(record, Peaks(()))

    assert "because the rate for more readers is unknown" in found.because
    assert found.try_ == {"benchmark.name": "baseline", "benchmark.access": "random_read", "threads": (1, 8)}
    record["cell"]["page_cache"] = "warm"
    assert bound_of_cell(record, Peaks(())).try_ == {}


def test_others_count_from_the_limit_of_the_record_on():
    crowded = work(cpu_s=14.0, threads=4, others=1.0)

    assert bound_of_work(crowded).word == UNDECIDED
    assert bound_of_work(replace(crowded, others_max=2.0)).word == "decoding"


def test_the_shares_of_steps_are_those_of_the_table():
    record = json.loads(json.dumps(next(each["record"] for each in MEASURED if each["word"] == "steps")))
    for run, (load_s, wall_s) in zip(record["runs"], [(1.0, 10.0), (4.0, 20.0), (9.0, 18.0)] * 9, strict=False):
        run |= {"load_s": load_s, "wall_s": wall_s, "elapsed_s": 25.0}

    measured = [run for run in record["runs"] if run["role"] == "measured"]
    share = statistics.median(run["load_s"] / run["wall_s"] for run in measured)
    assert time_use(record).steps.shares[0] == pytest.approx(share)
    found = bound_of_work(work(steps=replace(TRAINED, shares=(0.2, 0.8, 0.0))))
    assert str(found) == "steps: steps 80%, waiting for input 20%"


def test_for_checkpoints_there_is_no_word():
    assert bound_of_work(work(steps=replace(TRAINED, compute_s=2.0, saving_s=7.0))).because.endswith(
        "checkpoints take most of the time"
    )


@pytest.fixture(scope="module")
def peaks():
    return Peaks(each["record"] for each in MEASURED if each["word"] is None)


@pytest.mark.parametrize("measured", MEASURED, ids=lambda each: each["about"])
def test_of_what_was_measured_no_word_is_wrong(measured, peaks):
    found = bound_of_cell(measured["record"], peaks)

    assert (found and found.word) == measured["word"]


@pytest.mark.parametrize(
    ("threads", "readers", "at_most", "to_more"),
    [
        (1, {1: 20.0, 8: 63.0, 16: 81.0}, None, (81.0, 16)),  # a disk, whose arm has more to choose from
        (8, {8: 60.0, 16: 65.9}, 65.9, (65.9, 16)),
        (8, {8: 60.0, 16: 66.0}, None, (66.0, 16)),
        (8, {8: 60.0, 12: 60.0}, None, (60.0, 12)),  # not twice the readers
        (1, {1: 24.0, 2: 24.0}, None, (24.0, 2)),  # too few of them
        (1, {1: 100.0, 8: 105.0}, 105.0, (105.0, 8)),
        (8, {1: 20.0, 8: 60.0}, None, (None, None)),
        (16, {1: 100.0, 8: 105.0}, None, (None, None)),  # of fewer readers than the run had
        (4, {}, None, (None, None)),
    ],
)
def test_a_storage_has_no_more_where_twice_the_readers_get_no_more(threads, readers, at_most, to_more):
    record = json.loads(json.dumps(next(each["record"] for each in MEASURED if each["word"] == "decoding")))
    record["cell"]["settings"]["threads"] = threads
    known = Peaks(())
    known.rates_by_reader_count = lambda _: readers

    assert storage_speed(record, known) == StorageSpeed(at_most, *to_more)
    record["cell"]["settings"]["staging"] = "small"
    assert storage_speed(record, known) == UNKNOWN


def test_from_memory_nothing_is_held_against_what_a_storage_gives(peaks):
    record = next(each["record"] for each in MEASURED if each["about"].startswith("one thread reads from a disk"))
    warm = {**record, "cell": {**record["cell"], "page_cache": "warm"}}

    assert (time_use(record, peaks).given.readers, time_use(warm, peaks).given) == (32, UNKNOWN)


def test_several_ranks_are_not_decided(peaks):
    record = json.loads(json.dumps(next(each["record"] for each in MEASURED if each["word"] == "decoding")))
    record["runs"][0]["ranks"] = []

    assert bound_of_cell(record, peaks).because.startswith("several nodes")


def test_without_a_run_that_has_figures_there_is_no_word(peaks):
    record = {**MEASURED[0]["record"], "runs": []}

    assert (time_use(record), bound_of_cell(record, peaks)) == (None, None)


def test_a_record_without_what_runs_must_have_is_an_odd_one(peaks):
    record = json.loads(json.dumps(next(each["record"] for each in MEASURED if each["word"] == "decoding")))
    for run in record["runs"]:
        del run["elapsed_s"]

    with pytest.raises(ODD_FIGURES):
        bound_of_cell(record, peaks)


def test_each_rule_of_the_table_says_a_share_or_nothing():
    found = [rule(work(quota=0.5, throttled_s=5.0)) for rule in bound.RULES]

    assert all(each is None or 0 <= each.share <= 1 for each in found)
    assert [rule(work()) is None for rule in bound.RULES] == [True, False, False, False]
