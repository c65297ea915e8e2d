"""Each rule on a record where it holds, and on others where it must be silent."""

import math

import pytest

from campaign.advice import advice_rules as rules
from campaign.advice.evidence import Evidence
from campaign.advice.findings import Finding
from jobs.events.tensorflow_trace import INPUT, REMEDIES
from jobs.judging.work_done import StepTimes, TimeUse

READ = ("threads=1", "benchmark.preprocess=false")


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


def test_what_explains_most_of_the_time_comes_first(known, disk):
    found, lacking = rules.apply_rules(known(*READ))

    assert [each.rule for each in found] == ["few_threads", "small_reads"]
    assert [each.share for each in found] == sorted((each.share for each in found), reverse=True)
    assert [each.rule for each in lacking] == ["metadata"]
    assert all(isinstance(each, Finding) for each in found)
