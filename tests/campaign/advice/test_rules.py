"""Each rule on a record where it holds, and on others where it must be silent."""

import pytest

from campaign.advice import rules
from campaign.advice.findings import Finding, Lacking
from jobs.profiler.runtime import INPUT

READ = ("threads=1", "benchmark.preprocess=false")
TRAINING = ("benchmark=alexnet", "accelerator=emulated", "accelerator.step_s=1", "batch_size=64", "threads=8")


def steps(load_s, compute_s, number=5):
    """The figures of a training whose steps are all alike."""
    wall_s = number * (load_s + compute_s)
    return {
        "wall_s": wall_s, "load_s": number * load_s, "compute_s": number * compute_s, "images": 64 * number,
        "step_load_s": [load_s] * number, "step_compute_s": [compute_s] * number, "accelerator": "emulated",
    }  # fmt: skip


def test_few_threads_are_found_by_what_the_storage_gives_to_more_readers(known, disk):
    found = rules.few_threads(known(*READ))

    assert found.test.changes == {"threads": 8}
    predicted = found.test.prediction
    # Eight readers get 2.75 times as much; of eight that are taken in their order some wait for the first.
    assert 1.5 * 32 < predicted.low < predicted.value < predicted.high < 2.75 * 32
    assert {fact.source for fact in found.facts} == {"record", "baseline"}


def test_without_a_baseline_of_more_readers_the_command_that_brings_it_is_named(known):
    lacking = rules.few_threads(known(*READ))

    assert lacking == Lacking("few_threads", lacking.why, {**rules.BASELINE, "threads": (1, 8)})


def test_a_storage_that_gives_more_readers_no_more_is_not_short_of_threads_but_at_its_baseline(known, leave):
    for threads in (1, 8):
        leave("benchmark=baseline", "benchmark.access=random_read", f"threads={threads}", read_mb_per_s=4.1)

    e = known(*READ)

    assert rules.few_threads(e) is None
    assert rules.device(e).test is None
    assert "98%" in rules.device(e).says


def test_a_faster_storage_is_predicted_from_its_own_baseline(known, leave):
    there = ("storage.name=ssd", "storage.root=/ssd")
    leave("benchmark=baseline", "benchmark.access=random_read", "threads=1", read_mb_per_s=4.0)
    leave("benchmark=baseline", "benchmark.access=random_read", "threads=1", *there, read_mb_per_s=40.0)

    test = rules.device(known(*READ)).test

    assert (test.changes["storage.name"], test.changes["storage.root"]) == ("ssd", "/ssd")
    # 0.5 of 9.9 s are spent on a processor, beside the rest or before it, which becomes a tenth.
    assert test.prediction.high == pytest.approx(32 * 9.9 / 0.94 * 1.04, rel=0.01)
    assert test.prediction.low == pytest.approx(32 * 9.9 / (0.5 + 0.94) * 0.96, rel=0.01)


@pytest.mark.parametrize("others", [0.0, 1.9])
def test_a_storage_at_its_baseline_bounds_whatever_others_do_to_the_processors(others, known, leave):
    for threads in (1, 8):
        leave("benchmark=baseline", "benchmark.access=random_read", f"threads={threads}", read_mb_per_s=4.1)

    found = {each.rule: each for each in rules.advise(known(*READ, other_cpu=others))[0]}

    assert "98%" in found["device"].says
    assert found["device"].untested.startswith("no faster storage is known here")


@pytest.mark.parametrize(("others", "is_predicted"), [(0.0, True), (1.9, False)])
def test_a_faster_storage_is_predicted_where_others_leave_processors_for_it(others, is_predicted, known, leave):
    for name, rate in (("local", 4.0), ("ssd", 40.0)):
        there = () if name == "local" else ("storage.name=ssd", "storage.root=/ssd")
        leave("benchmark=baseline", "benchmark.access=random_read", "threads=1", *there, read_mb_per_s=rate)

    (device,) = [each for each in rules.advise(known(*READ, other_cpu=others))[0] if each.rule == "device"]

    assert (device.test is not None) is is_predicted
    assert ("others held 1.9 of 2 processors" in device.untested) is not is_predicted


@pytest.mark.parametrize("figures", [{"read_mb_per_s": 2.0}, {"load_s": 0.1}])
def test_a_storage_below_its_baseline_is_not_what_bounds(figures, known, leave):
    leave("benchmark=baseline", "benchmark.access=random_read", "threads=1", read_mb_per_s=4.0)

    assert rules.device(known(*READ, **figures)) is None


def test_processors_that_decode_all_the_time_gain_nothing_by_threads(known):
    found = rules.processors(known(cpu_s=19.0))

    assert found.test.changes == {"threads": 8}
    assert found.test.prediction.value == pytest.approx(32.0, rel=0.03)
    assert found.test.prediction.high < 1.1 * 32
    assert "decoding" in found.says


def test_what_others_leave_of_the_processors_is_what_counts(known):
    assert isinstance(rules.processors(known(cpu_s=16.0, other_cpu=0.4)), Finding)
    assert rules.processors(known(cpu_s=16.0)) is None
    assert rules.processors(known(cpu_s=1.0, other_cpu=1.0)) is None


@pytest.mark.parametrize(
    ("words", "figures"),
    [((), {"cpu_s": 9.5, "other_cpu": 1.0}), ((), {"cpu_s": 1.0, "steal_s": 19.0}),
     (("threads=1",), {"cpu_s": 9.5, "other_cpu": 1.0})],
)  # fmt: skip
def test_processors_that_others_held_are_measured_again(words, figures, known):
    held = f"others held {known(*words, **figures).others:.2g} of 2 processors: measure again when they do not"

    assert rules.processors(known(*words, **figures)) == Lacking("processors", held, {"redo": True})


def test_who_serves_the_storage_is_no_neighbour(known):
    served = {"served": {"hdd": {"cpu_s": 9.0, **dict.fromkeys(("reads", "writes", "read_bytes", "written_bytes"), 0)}}}

    assert known(other_cpu=1.0, emulated=["hdd"], **served).others == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("held", "is_found"),
    [({}, True), ({"other_cpu": 1.3}, False), ({"other_cpu": 1.3, "quota_cores": 1.0}, True),
     ({"other_cpu": 1.3, "quota_cores": 2.0}, False)],
)  # fmt: skip
def test_of_decoding_that_would_wait_for_neighbours_nothing_is_predicted(held, is_found, known):
    # It took 0.35 processors, and takes 0.5 in the 6 s that are predicted.
    told = {**steps(0.7, 1.0), "cpu_s": 3.0, "tensorflow": seen(read=2.5, decode=0.8)}

    found, lacking = ([each.rule for each in answers] for answers in rules.advise(known(*TRAINING, **told, **held)))

    assert ("input_bound" in found, "input_bound" in lacking) == (is_found, not is_found)
    assert "input" in found


@pytest.mark.parametrize(("others", "is_inside"), [(0.0, False), (0.6, True), (1.9, True)])
def test_what_is_left_without_input_may_be_less_by_what_others_held(others, is_inside, known):
    # 0.932 s were left and predicted, and a run without input took 0.758 s, when others no longer held processors.
    told = {"wall_s": 9.0, "load_s": 7.9, "startup_s": 0.168, "compute_s": 0.9, "cpu_s": 2.0, "accelerator": "emulated"}

    found, _ = rules.advise(known(*TRAINING, **told, other_cpu=others))

    (predicted,) = [each.test.prediction for each in found if each.rule == "input"]
    assert predicted.value == pytest.approx(0.932)
    assert (predicted.low <= 0.758) is is_inside


def test_slow_calls_are_found_beside_neighbours_too(known):
    calls = {**CALLS, "read_s": 3.0, "meta_s": 6.0}

    assert [each.rule for each in rules.advise(known(*READ, other_cpu=1.9, profile=calls))[0]] == ["metadata"]


def test_from_memory_beside_others_nothing_is_said_of_threads(known):
    assert rules.few_threads(known("cache=warm", "threads=1")).test.changes == {"threads": 2}
    held = known("cache=warm", "threads=1", other_cpu=1.9)
    assert "few_threads" in [each.rule for each in rules.advise(held)[1] if "others held 1.9" in each.why]


def test_of_a_training_the_processors_count_while_batches_are_made(known):
    found = rules.processors(known(*TRAINING, **steps(0.7, 1.0), cpu_s=7.5))

    assert found.says.startswith("decoding uses 94% of the processors left to it (2 of 2)")  # in 5 times 0.8 s
    assert rules.processors(known(*TRAINING, **steps(0.7, 1.0), cpu_s=4.0)) is None


def test_small_files_move_their_bytes_a_fraction_of_the_time(known, disk):
    found = rules.small_reads(known(*READ))

    # A file of 125 kB takes 31.25 ms, 0.78 ms of them for its bytes; four times as many bytes take 33.6 ms.
    assert found.test.prediction.value == pytest.approx(0.5 / 0.0336, rel=0.01)
    assert found.test.changes == {
        "dataset.median_bytes": 448_000, "dataset.width": 964, "dataset.height": 830
    }  # fmt: skip


def test_files_that_are_decoded_are_not_predicted_at_another_size(known, disk):
    assert rules.small_reads(known("threads=1")).test is None


CALLS = {"opens": 320, "reads": 640, "stats": 0, "bytes_read": 40_000_000}


@pytest.mark.parametrize(("meta_s", "share"), [(6.0, "67%"), (0.1, None)])
def test_metadata_is_what_bounds_where_its_calls_take_long(meta_s, share, known):
    found = rules.metadata(known(*READ, profile={**CALLS, "read_s": 3.0, "meta_s": meta_s}))

    assert (found and found.says[:3]) == share
    assert not found or found.test.prediction.low == pytest.approx(4.0 * 4 * 10 / (6 + 16) * 0.96)
    assert not found or found.test.prediction.high == pytest.approx(4.0 * 4 * 1.04)


def test_without_a_profile_metadata_is_not_decided(known):
    assert rules.metadata(known(*READ)).changes == {"profile.posix": "counters"}


def test_prefetch_hides_the_lesser_of_waiting_and_computing(known):
    found = rules.no_prefetch(known(*TRAINING, **steps(0.7, 1.0)))

    # Of a batch of 64 eight are read during the step before: the whole takes 0.8 s, and passes during a step of 1 s.
    assert found.test.changes == {"prefetch": 1}
    assert found.test.prediction.value == pytest.approx(0.7 + 5 * 1.0)
    slower = rules.no_prefetch(known(*TRAINING, **steps(7.0, 1.0)))
    assert slower.test.prediction.value == pytest.approx(7.0 + 4 * (8.0 - 1.0) + 5 * 1.0)


@pytest.mark.parametrize(("load_s", "rule"), [(0.7, "input"), (0.01, "compute")])
def test_a_training_without_input_takes_what_it_computes(load_s, rule, known):
    told = steps(load_s, 1.0)

    found = rules.input_(known(*TRAINING, **{**told, "wall_s": told["wall_s"] + 0.3, "startup_s": 0.3}))

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
    found = rules.input_bound(known(*TRAINING, **steps(0.7, 1.0), tensorflow=seen(read=2.5, decode=0.8, input=0.2)))

    assert found.test.changes == {"cache": "warm"}
    predicted = found.test.prediction  # of 8.5 s, 2.5 s read
    assert predicted.low == pytest.approx(6.0 * 0.96)
    assert predicted.value == pytest.approx(6.0)
    assert (found.share, found.says.count("at most")) == (pytest.approx(3.5 / 8.5), 4)
    assert {fact.what: fact.value for fact in found.facts}["exposed read"] == 2.5


def test_what_is_decoded_behind_the_reads_is_still_to_be_done_without_them(known):
    told = seen(read=3.5)
    told["exposed_s"]["decode"] = 1.5

    predicted = rules.input_bound(known(*TRAINING, **steps(0.7, 1.0), tensorflow=told)).test.prediction

    assert predicted.low == pytest.approx(5.0 * 0.96)
    assert predicted.value == pytest.approx((5.0 + 6.5) / 2)
    assert predicted.high == pytest.approx(6.5 * 1.04)


@pytest.mark.parametrize(("words", "told"), [((), seen(decode=3.5)), (("cache=warm",), seen(read=3.5))])
def test_steps_that_wait_for_no_storage_are_tested_by_other_rules(words, told, known):
    found = rules.input_bound(known(*TRAINING, *words, **steps(0.7, 1.0), tensorflow=told))

    assert (found.test, bool(found.untested)) == (None, True)


def test_of_steps_that_were_not_seen_a_trace_is_asked_for(known):
    found = rules.input_bound(known(*TRAINING, **steps(0.7, 1.0), tensorflow={"file": None}))

    assert found.changes == {"profile.tensorflow": "all"}


STORE = ("storage=s3", "storage.endpoint=http://host", "storage.bucket=bucket")


@pytest.mark.parametrize(
    ("rule", "words", "figures"),
    [
        (rules.few_threads, READ, {"cpu_s": 19.0}),  # both processors are busy
        (rules.few_threads, READ, {"load_s": 0.2}),  # it does not wait
        (rules.few_threads, (*TRAINING, "accelerator=cpu"), {**steps(1.0, 1.0), "accelerator": "cpu"}),
        (rules.small_reads, READ, {"read_mb_per_s": 140.0}),
        (rules.metadata, (*READ, *STORE), {}),  # objects are not opened
        (rules.no_prefetch, (*TRAINING, "prefetch=1"), steps(0.7, 1.0)),
        (rules.no_prefetch, TRAINING, steps(0.01, 1.0)),
        (rules.no_prefetch, (), {}),
        (rules.no_prefetch, (*TRAINING, "benchmark.control=no_compute"), steps(0.7, 0.0)),
        (rules.input_, READ, {}),
        (rules.input_bound, TRAINING, {**steps(0.01, 1.0), "tensorflow": seen(read=0.05)}),
        (rules.input_bound, TRAINING, steps(0.01, 1.0)),
        (rules.input_bound, READ, {}),
        (rules.throttled, READ, {}),
        (rules.throttled, READ, {"quota_cores": 0.4, "throttled_s": 0.05}),
    ],
)
def test_where_it_does_not_hold_a_rule_is_silent(rule, words, figures, known, disk):
    assert rule(known(*words, **figures)) is None


def test_a_quota_is_named_before_all_else_and_its_runs_need_not_count(known, disk):
    held = {"quota_cores": 0.4, "throttled_s": 6.0, "cpu_s": 3.9, "counts": "invalid"}

    e = known("threads=1", **held)
    found, _ = rules.advise(e)

    assert not e.valid
    assert (found[0].rule, found[0].test.changes) == ("throttled", {})
    assert found[0].untested
    assert found[0].test.prediction.high == pytest.approx(32 * 2 / 0.4 * 1.04)


def test_what_explains_most_of_the_time_comes_first(known, disk):
    found, lacking = rules.advise(known(*READ))

    assert [each.rule for each in found] == ["few_threads", "small_reads"]
    assert [each.share for each in found] == sorted((each.share for each in found), reverse=True)
    assert [each.rule for each in lacking] == ["metadata"]
    assert all(isinstance(each, Finding) for each in found)
