"""Each rule on a record where it holds, and on others where it must be silent."""

import math

import pytest

from campaign.advice import advice_rules as rules
from campaign.advice.evidence import Evidence
from campaign.advice.findings import Finding, Undecided
from jobs.events.tensorflow_trace import INPUT, REMEDIES
from jobs.judging.work_done import StepTimes, TimeUse

READ = ("threads=1", "benchmark.preprocess=false")
TRAINING = ("benchmark=alexnet", "accelerator=emulated", "accelerator.step_s=1", "batch_size=64", "threads=8")


def steps(load_s, compute_s, number=5):
    """The figures of a training whose steps are all alike."""
    wall_s = number * (load_s + compute_s)
    return {
        "wall_s": wall_s, "load_s": number * load_s, "compute_s": number * compute_s, "images": 64 * number,
        "steps": {"number": number, "first_load_s": load_s}, "accelerator": "emulated",
        "images_per_s": 64 * number / wall_s, "read_mb_per_s": 40 / wall_s,
    }  # fmt: skip


def test_few_threads_are_found_by_what_the_storage_gives_to_more_readers(known, disk):
    found = rules.find_few_threads(known(*READ))

    assert found.test.changes == {"threads": 8}
    predicted = found.test.prediction
    # Eight readers get 2.75 times as much; of eight that are taken in their order some wait for the first.
    assert 1.5 * 32 < predicted.low < predicted.value < predicted.high < 2.75 * 32
    assert {fact.source for fact in found.facts} == {"record", "baseline"}


def test_without_a_baseline_of_more_readers_the_command_that_brings_it_is_named(known):
    lacking = rules.find_few_threads(known(*READ))

    assert lacking == Undecided("few_threads", lacking.why, {**rules.BASELINE, "threads": (1, 8)})


def test_a_storage_that_gives_more_readers_no_more_is_not_short_of_threads_but_at_its_baseline(known, leave):
    for threads in (1, 8):
        leave("benchmark=baseline", "benchmark.access=random_read", f"threads={threads}", read_mb_per_s=4.1)

    e = known(*READ)

    assert rules.find_few_threads(e) is None
    assert rules.find_device(e).test is None
    assert "98%" in rules.find_device(e).says


def test_a_faster_storage_is_predicted_from_its_own_baseline(known, leave):
    there = ("storage.name=ssd", "storage.root=/ssd")
    leave("benchmark=baseline", "benchmark.access=random_read", "threads=1", read_mb_per_s=4.0)
    leave("benchmark=baseline", "benchmark.access=random_read", "threads=1", *there, read_mb_per_s=40.0)

    test = rules.find_device(known(*READ)).test

    assert (test.changes["storage.name"], test.changes["storage.root"]) == ("ssd", "/ssd")
    # 0.5 of 9.9 s are spent on a processor, beside the rest or before it, which becomes a tenth.
    assert test.prediction.high == pytest.approx(32 * 9.9 / 0.94 * 1.04, rel=0.01)
    assert test.prediction.low == pytest.approx(32 * 9.9 / (0.5 + 0.94) * 0.96, rel=0.01)


@pytest.mark.parametrize(("others", "is_predicted"), [(0.0, True), (1.9, False)])
def test_a_faster_storage_is_predicted_where_others_leave_processors_for_it(others, is_predicted, known, leave):
    for name, rate in (("local", 4.0), ("ssd", 40.0)):
        there = () if name == "local" else ("storage.name=ssd", "storage.root=/ssd")
        leave("benchmark=baseline", "benchmark.access=random_read", "threads=1", *there, read_mb_per_s=rate)

    (device,) = [each for each in rules.apply_rules(known(*READ, other_cpu=others))[0] if each.rule == "device"]

    assert (device.test is not None) is is_predicted
    assert ("other programs used 1.9 of 2 processors" in device.untested) is not is_predicted


def test_processors_that_decode_all_the_time_gain_nothing_by_threads(known):
    found = rules.find_processors(known(cpu_s=19.0))

    assert found.test.changes == {"threads": 8}
    assert found.test.prediction.value == pytest.approx(32.0, rel=0.03)
    assert found.test.prediction.high < 1.1 * 32
    assert "decoding" in found.says


def test_what_others_leave_of_the_processors_is_what_counts(known):
    assert isinstance(rules.find_processors(known(cpu_s=16.0, other_cpu=0.4)), Finding)
    assert rules.find_processors(known(cpu_s=16.0)) is None
    assert rules.find_processors(known(cpu_s=1.0, other_cpu=1.0)) is None


@pytest.mark.parametrize(
    ("words", "figures"),
    [((), {"cpu_s": 9.5, "other_cpu": 1.0}), ((), {"cpu_s": 1.0, "steal_s": 19.0}),
     (("threads=1",), {"cpu_s": 9.5, "other_cpu": 1.0})],
)  # fmt: skip
def test_processors_that_others_held_are_measured_again(words, figures, known):
    held = f"other programs used {known(*words, **figures).work.others:.2g} of 2 processors: measure again without them"

    assert rules.find_processors(known(*words, **figures)) == Undecided("processors", held, {"redo": True})


def test_who_serves_the_storage_is_no_neighbour(known):
    served = {"served": {"hdd": {"cpu_s": 9.0, **dict.fromkeys(("reads", "writes", "read_bytes", "written_bytes"), 0)}}}

    assert known(other_cpu=1.0, emulated=["hdd"], **served).work.others == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("held", "is_found"),
    [({}, True), ({"other_cpu": 1.3}, False), ({"other_cpu": 1.3, "quota_cores": 1.0}, True),
     ({"other_cpu": 1.3, "quota_cores": 2.0}, False)],
)  # fmt: skip
def test_of_decoding_that_would_wait_for_neighbours_nothing_is_predicted(held, is_found, known):
    # It took 0.35 processors, and takes 0.5 in the 6 s that are predicted.
    told = {**steps(0.7, 1.0), "cpu_s": 3.0, "tensorflow": seen(read=2.5, decode=0.8)}

    found, lacking = (
        [each.rule for each in answers] for answers in rules.apply_rules(known(*TRAINING, **told, **held))
    )

    assert ("input_bound" in found, "input_bound" in lacking) == (is_found, not is_found)
    assert "input" in found


@pytest.mark.parametrize(("others", "is_inside"), [(0.0, False), (0.6, True), (1.9, True)])
def test_what_is_left_without_input_may_be_less_by_what_others_held(others, is_inside, known):
    # 0.932 s were left and predicted, and a run without input took 0.758 s, when others no longer held processors.
    told = {"wall_s": 9.0, "load_s": 7.9, "startup_s": 0.168, "compute_s": 0.9, "cpu_s": 2.0, "accelerator": "emulated"}

    found, _ = rules.apply_rules(known(*TRAINING, **told, other_cpu=others))

    (predicted,) = [each.test.prediction for each in found if each.rule == "input"]
    assert predicted.value == pytest.approx(0.932)
    assert (predicted.low <= 0.758) is is_inside


def test_one_thread_that_decodes_all_the_time_is_too_few_where_processors_are_idle_and_needs_no_baseline(known):
    e = known("threads=1", cpu_s=9.5)
    found = rules.find_few_threads(e)

    assert e.bound.word == "decoding"
    assert (found.test.changes, found.says) == (
        {"threads": 2}, "1 thread of 2 processors: neither the storage nor the processors are busy"
    )  # fmt: skip
    # A second thread brings up to twice as much, and less where its processor is half of a core.
    predicted = found.test.prediction
    assert predicted.low == pytest.approx(2**0.5 * 32 * 0.96, rel=0.01)
    assert predicted.value == pytest.approx(2**0.75 * 32, rel=0.01)
    assert predicted.high == pytest.approx(2 * 32 * 1.04, rel=0.01)
    assert [fact.source for fact in found.facts if "reader" in fact.what] == []
    assert [each.rule for each in rules.apply_rules(e)[1]] == []  # of the storage nothing need be known


def test_a_storage_at_its_limit_is_found_without_baselines_and_threads_are_not_asked_for(known, monkeypatch):
    busy = {"busy_s": 9.6, "reads": 90, "writes": 0, "read_bytes": 10, "written_bytes": 0, "own_read_bytes": 10,
            "own_written_bytes": None, "device": "loop0", "block_bytes": 512, "flushes": 0, "flush_s": 0.0,
            "own_reads": 90}  # fmt: skip
    monkeypatch.setattr("jobs.judging.work_done.emulated_limit", lambda _: {"mb_per_s": 4.1})

    e = known(*READ, device_use=[busy])
    found, lacking = rules.apply_rules(e)

    assert e.bound.word == "device"
    assert [each.rule for each in found] == ["device"]
    assert (found[0].test, [each.rule for each in lacking]) == (None, ["small_reads"])
    assert {fact.what: fact.value for fact in found[0].facts}["at most"] == 4.1


def test_from_memory_beside_others_nothing_is_said_of_threads(known):
    assert rules.find_few_threads(known("cache=warm", "threads=1")).test.changes == {"threads": 2}
    held = known("cache=warm", "threads=1", other_cpu=1.9)
    assert "few_threads" in [each.rule for each in rules.apply_rules(held)[1] if "other programs used 1.9" in each.why]


def test_of_a_training_the_processors_count_while_batches_are_made(known):
    found = rules.find_processors(known(*TRAINING, **steps(0.7, 1.0), cpu_s=7.5))

    assert found.says.startswith("decoding uses 94% of the processors that are free for it (2 of 2)")  # 5 times 0.8 s
    assert rules.find_processors(known(*TRAINING, **steps(0.7, 1.0), cpu_s=4.0)) is None


def test_small_files_move_their_bytes_a_fraction_of_the_time(known, disk):
    found = rules.find_small_reads(known(*READ))

    # A file of 125 kB takes 31.25 ms, 0.78 ms of them for its bytes; four times as many bytes take 33.6 ms.
    assert found.test.prediction.value == pytest.approx(0.5 / 0.0336, rel=0.01)
    assert found.test.changes == {
        "dataset.median_bytes": 448_000, "dataset.width": 964, "dataset.height": 830
    }  # fmt: skip


def test_files_that_are_decoded_are_not_predicted_at_another_size(known, disk):
    assert rules.find_small_reads(known("threads=1")).test is None


CALLS = {"opens": 320, "reads": 640, "stats": 0, "bytes_read": 40_000_000}


@pytest.mark.parametrize(("meta_s", "share"), [(6.0, "67%"), (0.1, None)])
def test_metadata_is_what_bounds_where_its_calls_take_long(meta_s, share, known):
    found = rules.find_metadata(known(*READ, profile={**CALLS, "read_s": 3.0, "meta_s": meta_s}))

    assert (found and found.says[:3]) == share
    assert not found or found.test.prediction.low == pytest.approx(4.0 * 4 * 10 / (6 + 16) * 0.96)
    assert not found or found.test.prediction.high == pytest.approx(4.0 * 4 * 1.04)


def test_without_a_profile_metadata_is_not_decided(known):
    assert rules.find_metadata(known(*READ)).changes == {"profile.posix": "counters"}


def test_prefetch_hides_the_lesser_of_waiting_and_computing(known):
    found = rules.find_no_prefetch(known(*TRAINING, **steps(0.7, 1.0)))

    # Of a batch of 64 eight are read during the step before: the whole takes 0.8 s, and passes during a step of 1 s.
    assert found.test.changes == {"prefetch": 1}
    assert found.test.prediction.value == pytest.approx(0.7 + 5 * 1.0)
    slower = rules.find_no_prefetch(known(*TRAINING, **steps(7.0, 1.0)))
    assert slower.test.prediction.value == pytest.approx(7.0 + 4 * (8.0 - 1.0) + 5 * 1.0)


@pytest.mark.parametrize(("load_s", "rule"), [(0.7, "input"), (0.01, "compute")])
def test_a_training_without_input_takes_what_it_computes(load_s, rule, known):
    told = steps(load_s, 1.0)

    found = rules.find_input(known(*TRAINING, **{**told, "wall_s": told["wall_s"] + 0.3, "startup_s": 0.3}))

    assert found.rule == rule
    assert "emulated" in found.says
    assert found.test.prediction.value == pytest.approx(5.0)


def seen(**waits):
    """What TensorFlow's trace says of five steps of 1.7 s whose categories took these seconds, none beside another."""
    spent = {name: waits.get(name.partition(" ")[0], 0.0) for name in INPUT}
    waited = sum(spent.values())
    saves = {"prefetch": min(waited, 5.0), **spent}
    return {"file": "t.npz", "steps": 5, "steps_s": 8.5, "waited_s": waited, "exposed_s": spent, "remedies_s": saves}


def test_what_is_read_in_the_steps_is_what_a_warm_cache_saves(known):
    found = rules.find_input_bound(
        known(*TRAINING, **steps(0.7, 1.0), tensorflow=seen(read=2.5, decode=0.8, input=0.2))
    )

    assert found.test.changes == {"cache": "warm"}
    predicted = found.test.prediction  # of 8.5 s, 2.5 s read
    assert predicted.low == pytest.approx(6.0 * 0.96)
    assert predicted.value == pytest.approx(6.0)
    assert (found.share, found.says.count("at most")) == (pytest.approx(3.5 / 8.5), 4)
    places = [found.says.index(REMEDIES[name]) for name in ("prefetch", "read", "decode", "input wait")]
    assert places == sorted(places)  # what saves most comes first
    assert {fact.what: fact.value for fact in found.facts}["exposed read"] == 2.5


def test_what_is_decoded_behind_the_reads_is_still_to_be_done_without_them(known):
    told = seen(read=3.5)
    told["exposed_s"]["decode"] = 1.5

    predicted = rules.find_input_bound(known(*TRAINING, **steps(0.7, 1.0), tensorflow=told)).test.prediction

    assert predicted.low == pytest.approx(5.0 * 0.96)
    assert predicted.value == pytest.approx((5.0 + 6.5) / 2)
    assert predicted.high == pytest.approx(6.5 * 1.04)


@pytest.mark.parametrize(("words", "told"), [((), seen(decode=3.5)), (("cache=warm",), seen(read=3.5))])
def test_steps_that_wait_for_no_storage_are_tested_by_other_rules(words, told, known):
    found = rules.find_input_bound(known(*TRAINING, *words, **steps(0.7, 1.0), tensorflow=told))

    assert (found.test, bool(found.untested)) == (None, True)


def test_of_steps_that_were_not_seen_a_trace_is_asked_for(known):
    found = rules.find_input_bound(known(*TRAINING, **steps(0.7, 1.0), tensorflow={"file": None}))

    assert found.changes == {"profile.tensorflow": "all"}


def evidence_of(**changes):
    """Evidence of ten seconds of small reads from a disk.

    `changes`: settings, figures of the runs, the number of ``steps``, a ``quota``, or its fields.
    """
    run = {"elapsed_s": 10.0, "wall_s": 10.0, "load_s": 10.0, "cpu_s": 0.5, "images": 320.0, "bytes_read": 4e7,
           "compute_s": 2.0, "read_mb_per_s": 4.0, "images_per_s": 32.0, "throttled_s": 0.0,
           "other_cpu": 0.0}  # fmt: skip
    settings = {"threads": 1, "batch_size": 64, "prefetch": 0, "cache": "cold", "benchmark.preprocess": False}
    fields = {"cell": "c", "kind": "pipeline", "figure": "images_per_s", "unit": "images/s", "rates": {},
              "readers": {1: 4.0}, "sequential": 160.0}  # fmt: skip
    number, quota = changes.pop("steps", 0), changes.pop("quota", None)
    for each in (run, settings):
        each |= {key: changes.pop(key) for key in each.keys() & changes.keys()}
    taken = (
        StepTimes(number, run["load_s"], 0.0, run["compute_s"], batch=64) if changes.get("kind") == "training" else None
    )
    work = TimeUse(
        10.0, run["cpu_s"], 2.0, others=run["other_cpu"], quota=quota, threads=settings["threads"], steps=taken
    )
    return Evidence(settings=settings, run=run, work=work, **fields | changes)


def trained(read_s=5.0, waited_s=5.0):
    """A training of 10 s of steps; TensorFlow's trace says what they waited for, and what of it was reading."""
    saves = dict.fromkeys(REMEDIES, 0.0) | {"read": read_s}
    exposed = {f"exposed_s.{name}": 0.0 for name in INPUT} | {f"remedies_s.{name}": saves[name] for name in saves}
    return {"kind": "training", "tensorflow": {"steps_s": 10.0, "waited_s": waited_s, **exposed}}


LESS = {each: math.nextafter(each, 0.0) for each in (0.5, 2.0, 3.0, 3.4, 4.4, 8.0, 16.0, 17.0)}
WARM = {"cache": "warm", "cpu_s": 0.1}
CALLS_S = {"opens": 3.0, "stats": 2.0, "read_s": 7.0}
EDGES = [  # what is just silent, and what is just found
    (rules.find_throttled, {"quota": 1.0, "throttled_s": 0.1}, {"quota": 1.0, "throttled_s": math.nextafter(0.1, 1)}),
    (rules.find_processors, {"cpu_s": LESS[17.0]}, {"cpu_s": 17.0}),
    (rules.find_processors, {"cpu_s": 19.0, "load_s": LESS[0.5]}, {"cpu_s": 19.0, "load_s": 0.5}),
    (rules.find_few_threads, {**WARM, "load_s": LESS[0.5]}, {**WARM, "load_s": 0.5}),
    (rules.find_device, {"load_s": LESS[0.5]}, {"load_s": 0.5}),
    (rules.find_device, {"read_mb_per_s": LESS[3.4]}, {"read_mb_per_s": 3.4}),
    (rules.find_device, {"readers": {1: 4.0, 8: 4.4}}, {"readers": {1: 4.0, 8: LESS[4.4]}}),
    (rules.find_small_reads, {"load_s": LESS[0.5], "cpu_s": 0.1}, {"load_s": 0.5, "cpu_s": 0.1}),
    (rules.find_small_reads, {"cpu_s": 16.0, "threads": 8}, {"cpu_s": LESS[16.0], "threads": 8}),
    (rules.find_small_reads, {"sequential": LESS[8.0]}, {"sequential": 8.0}),
    (rules.find_metadata, {"profile": {**CALLS_S, "meta_s": 2.99}}, {"profile": {**CALLS_S, "meta_s": 3.0}}),
    (
        rules.find_metadata,
        {"profile": {**CALLS_S, "meta_s": 3.0}, "cpu_s": 17.0},
        {"profile": {**CALLS_S, "meta_s": 3.0}},
    ),
    (rules.find_no_prefetch, {"kind": "training", "steps": 1}, {"kind": "training", "steps": 2}),
    (rules.find_no_prefetch, {"kind": "training", "steps": 5, "load_s": LESS[0.5]},
     {"kind": "training", "steps": 5, "load_s": 0.5}),
    (rules.find_input_bound, trained(waited_s=LESS[0.5]), trained(waited_s=0.5)),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "silent", "holds"), EDGES)
def test_a_rule_is_silent_below_its_limit_and_holds_from_it_on(rule, silent, holds):
    assert rule(evidence_of(**silent)) is None
    assert rule.__name__ == f"find_{rule(evidence_of(**holds)).rule}"


def test_what_a_limit_decides_within_a_rule():
    there = ({1: 4.0}, {"ssd": ({"name": "ssd"}, 4.4)}, {"ssd": ({"name": "ssd"}, LESS[4.4])})
    faster, slower = (rules.find_device(evidence_of(readers=there[0], other_storages=each)) for each in there[1:])
    idle, waits = (rules.find_input(evidence_of(kind="training", load_s=each)) for each in (LESS[0.5], 0.5))
    read, little = (
        rules.find_input_bound(evidence_of(**trained(read_s=each))) for each in (math.nextafter(0.25, 1), 0.25)
    )

    assert (faster.test is None, slower.test is None) == (False, True)
    assert (idle.rule, idle.share, waits.rule, waits.share) == ("compute", 0.2, "input", 0.05)
    assert (read.test is None, little.test is None) == (False, True)
    for threads, wanted in ((7, 8), (8, 16)):
        assert rules.find_few_threads(evidence_of(threads=threads)).changes["threads"] == (threads, wanted)


@pytest.mark.parametrize(
    ("others", "cpu_s", "gain", "is_held"),
    [(0.5, 12.0, 1.0, True), (LESS[0.5], 12.5, 1.0, False), (0.75, 9.5, 1.0, True), (0.75, 9.4, 1.0, False),
     (0.75, 4.75, 2.0, True), (0.75, 4.7, 2.0, False)],
)  # fmt: skip
def test_others_keep_a_rule_from_being_decided_from_half_a_processor_on_that_is_needed(others, cpu_s, gain, is_held):
    e = evidence_of(other_cpu=others, cpu_s=cpu_s)

    assert (rules.disturbance_by_others(e, "processors", gain) is not None) is is_held
    assert rules.disturbance_by_others(e, "metadata", gain) is None


def test_what_predicts_nothing_needs_no_more_processors_than_it_had():
    crowded = evidence_of(**trained(), cache="warm", other_cpu=0.6, cpu_s=5.0)

    assert "input_bound" in [each.rule for each in rules.apply_rules(crowded)[0]]


STORE = ("storage=s3", "storage.endpoint=http://host", "storage.bucket=bucket")


@pytest.mark.parametrize(
    ("rule", "words", "figures"),
    [
        (rules.find_few_threads, (*TRAINING, "accelerator=cpu"), {**steps(1.0, 1.0), "accelerator": "cpu"}),
        (rules.find_metadata, (*READ, *STORE), {}),  # objects are not opened
        (rules.find_no_prefetch, (*TRAINING, "prefetch=1"), steps(0.7, 1.0)),
        (rules.find_no_prefetch, (), {}),
        (rules.find_no_prefetch, (*TRAINING, "benchmark.control=no_compute"), steps(0.7, 0.0)),
        (rules.find_input, READ, {}),
        (rules.find_input_bound, TRAINING, steps(0.01, 1.0)),
        (rules.find_input_bound, READ, {}),
        (rules.find_throttled, READ, {}),
    ],
)
def test_where_it_does_not_hold_a_rule_is_silent(rule, words, figures, known, disk):
    assert rule(known(*words, **figures)) is None


def test_a_quota_is_named_before_all_else_and_its_runs_need_not_count(known, disk):
    held = {"quota_cores": 0.4, "throttled_s": 6.0, "cpu_s": 3.9, "counts": "invalid"}

    e = known("threads=1", **held)
    found, _ = rules.apply_rules(e)

    assert not e.valid
    assert (found[0].rule, found[0].test.changes) == ("throttled", {})
    assert found[0].untested
    assert found[0].test.prediction.high == pytest.approx(32 * 2 / 0.4 * 1.04)


def test_what_explains_most_of_the_time_comes_first(known, disk):
    found, lacking = rules.apply_rules(known(*READ))

    assert [each.rule for each in found] == ["few_threads", "small_reads"]
    assert [each.share for each in found] == sorted((each.share for each in found), reverse=True)
    assert [each.rule for each in lacking] == ["metadata"]
    assert all(isinstance(each, Finding) for each in found)
