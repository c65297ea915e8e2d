"""The rules of a run, as pure functions of its raw figures."""

import pytest
from hypothesis import strategies as st
from msgspec.structs import replace

from jobs import checks, program_checks
from jobs.checks import Limits
from tests.jobs.jobs_factory import device_use

LIMITS = Limits()
PARTS = ("load_s", "compute_s", "checkpoint_s", "other_s")
GOOD = {
    "resident_fraction": 0.0,
    "device_bytes": 100_000_000,
    "bytes_read": 100_000_000,
    "images": 64,
    "images_asked": 64,
    "image_errors": 0,
    "unreadable": [],
    "device": "vda",
    "wall_s": 10.0,
    "load_s": 7.0,
    "compute_s": 2.0,
    "checkpoint_s": 0.5,
    "other_s": 0.5,
    "elapsed_s": 10.0,
    "device_use": [device_use()],
    "other_cpu": 0.0,
    "wall_parts": PARTS,
    "rate": {"key": "images_per_s", "unit": "images/s"},
}
seconds = st.floats(1e-6, 1e6)
rates = st.lists(st.floats(1e-3, 1e9), min_size=2, max_size=12)


def verdicts(run, cache="cold", limits=LIMITS):
    found, _ = checks.judge({**GOOD, **run}, cache, limits)
    return {check["rule"]: check["passed"] for check in found}


@pytest.mark.parametrize(
    ("cache", "rules"),
    [
        ("cold", ["cold", "device_bytes", "complete", "time_adds_up", "quiet"]),
        ("warm", ["warm", "from_memory", "complete", "time_adds_up", "quiet"]),
        ("as_is", ["complete", "time_adds_up", "quiet"]),
    ],
)
def test_the_state_of_the_cache_decides_which_rules_apply(cache, rules):
    found, _ = checks.judge({**GOOD, "resident_fraction": 1.0}, cache, LIMITS)

    assert [check["rule"] for check in found] == rules


MB = 10**6
PROGRAM = {"program": {}, "data_in_memory_bytes": 8 * MB, "data_bytes": 10 * MB, "device_bytes": MB}
SERVERS = {"endpoint": "e", "bytes": 10 * MB, "servers": {checks.OSD_PROCESS_NAME: {"read_bytes": 5 * MB}}}
WAITS = {"error": None, "late": 0, "late_s": 2.0, "alarms": 9, "looks": 500, "threads": {}, "functions": []}
LATE = {"accelerator": 0, "late_share": 0.025, "wall_s": 10.0, **{part: GOOD[part] for part in PARTS}}


@pytest.mark.parametrize(
    ("rule", "run", "end"),
    [
        (checks.began_together, {"ranks": [{}, {}], "start_skew_s": 0.2}, "(2%, at most 1%)"),
        (checks.cold, {"resident_fraction": 0.5}, "(50%, at most 1%)"),
        (checks.cold_at_server, {"objects": SERVERS, "bytes_read": 10 * MB, "device": "vda"}, "(50%, at most 10%)"),
        (checks.warm, {"resident_fraction": 0.5}, "(50%, at least 99%)"),
        (checks.device_bytes, {"device_bytes": 80 * MB}, "(80%, at least 99%)"),
        (checks.from_memory, {"device_bytes": 80 * MB}, "(80%, at most 1%)"),
        (checks.unthrottled, {"throttled_s": 1.0, "quota_cores": 2, "throttled_periods": 3}, "(10%, at most 1%)"),
        (checks.undelayed, {"waits": WAITS}, "(20%, at most 5%)"),
        (checks.unstolen, {"steal_s": 9.0}, "0.90 cores (at most 0.5)"),
        (checks.reached_device, {"reached_bytes": MB, "bytes_written": 4 * MB}, "(25%, at least 99%)"),
        (checks.time_adds_up, {"other_s": 0.0}, "(5%, at most 1%)"),
        (checks.on_time, {"accelerators": [LATE]}, "(2.5%, at most 1%)"),
        (program_checks.from_device, PROGRAM, "(12.5%, at least 99%)"),
        (program_checks.from_memory, PROGRAM, "(10%, at most 1%)"),
        (program_checks.reads_data, PROGRAM | dict.fromkeys(("data_in_memory_bytes", "device_bytes"), 0),
         "(0%, at least 1%)"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_the_sentence_of_a_failed_check_ends_with_what_was_measured_and_its_limit(rule, run, end):
    check = rule({**GOOD, **run}, LIMITS)

    assert check["passed"] is False
    assert check["message"].endswith(end)


def test_small_limits_of_other_programs_are_not_shown_as_0():
    limits = replace(LIMITS, other_cpu_max=0.001, other_device_max=0.001)

    message = checks.quiet({**GOOD, "other_cpu": 0.021}, limits)["message"]

    assert message == "others kept 0.021 cores busy (at most 0.001) and took 0.0% of the time of vda (at most 0.1%)"


@pytest.mark.parametrize(
    ("rule", "cache", "key", "values"),
    [
        ("cold", "cold", "resident_fraction", {0.0: True, 0.01: True, 0.0101: False, 1.0: False}),
        ("warm", "warm", "resident_fraction", {1.0: True, 0.99: True, 0.9899: False, None: None}),
        (
            "device_bytes",
            "cold",
            "device_bytes",
            {99 * MB: True, 99 * MB - 1: False, 0: False, 140 * MB: True, None: None},
        ),
        ("from_memory", "warm", "device_bytes", {0: True, MB: True, MB + 1: False, None: None}),
        ("quiet", "cold", "other_cpu", {0.5: True, 0.51: False}),
        ("complete", "cold", "images", {64: True, 63: False, 65: False, 0: False}),
    ],
)
def test_each_rule_has_its_limit(rule, cache, key, values):
    assert {value: verdicts({key: value}, cache)[rule] for value in values} == values


@pytest.mark.parametrize(
    ("run", "rule", "passed"),
    [
        ({"bytes_read": 0, "device_bytes": 0}, "device_bytes", False),  # what read nothing proves nothing
        ({"device": None, "device_bytes": 0}, "device_bytes", None),  # the kernel counts nothing of FUSE
        ({"device": None, "device_bytes": 1}, "device_bytes", False),  # but it counts NFS
        ({"device_use": None}, "quiet", None),
        ({"device_use": None, "other_cpu": 0.51}, "quiet", False),
        ({"device_use": [device_use(flushes=50, flush_s=0.5)]}, "quiet", True),  # of 10 s
        ({"device_use": [device_use(flushes=50, flush_s=0.501)]}, "quiet", False),
        ({"device_use": [device_use(), device_use(device="sda", flushes=50, flush_s=0.501)]}, "quiet", False),
        ({"image_errors": 1, "unreadable": [{"file": "/data/bad.jpg"}]}, "complete", False),
    ],
)
def test_what_else_a_rule_considers(run, rule, passed):
    assert verdicts(run)[rule] is passed


BAD = {"images": 59, "image_errors": 5, "unreadable": [{"file": f"/{number}.jpg"} for number in range(5)]}
CHANGED = {"listed_bytes": 100 * MB, "changed_files": 9, "changed": ["a", "b", "c"]}


@pytest.mark.parametrize(
    ("rule", "run", "message"),
    [
        ("quiet", {}, "others took 0.0% of the time of vda (at most 5%) and kept 0.00 cores busy (at most 0.5)"),
        ("quiet", {"other_cpu": 2.0}, "others kept 2.00 cores busy (at most 0.5) and took 0.0% of the time of vda"),
        (
            "quiet",
            {"device_use": [device_use(500, busy_s=9.0, flushes=20, flush_s=1.0)], "other_cpu": 2.0},
            "others took 40.0% of the time of vda with 500 reads, 0 writes and 20 flushes (at most 5%) and kept 2.00",
        ),
        ("quiet", {"device_use": None}, "others used the device to an unknown extent and kept 0.00 cores busy"),
        ("from_memory", {"device_bytes": 2 * MB}, "2.0 MB came from the device for 100.0 MB read (2%, at most 1%)"),
        ("complete", BAD, "59 of 64 images delivered, 5 unreadable: /0.jpg, /1.jpg, /2.jpg and 2 more"),
        ("same_data", CHANGED, "9 files changed since the manifest listed them: a, b, c and 6 more"),
        ("cold", {"linked_files": 3}, "0.00% of the pages were in memory before the start; 3 names are hard links to"),
        ("cold", {"below": ["sda is memory"]}, "0.00% of the pages were in memory before the start; sda is memory"),
    ],
)
def test_the_worst_is_named_first_the_first_are_named_and_the_rest_is_counted(rule, run, message):
    assert getattr(checks, rule)({**GOOD, **run}, LIMITS)["message"].startswith(message)


# Values that binary fractions hold exactly, so that the boundary itself is tested.
@pytest.mark.parametrize(
    ("other_s", "passed"), [(0.5, True), (0.375, True), (0.37, False), (0.625, True), (0.63, False)]
)
def test_time_adds_up_within_the_tolerance_and_in_both_directions(other_s, passed):
    limits = replace(LIMITS, time_error_max=1 / 80)

    assert verdicts({"other_s": other_s}, limits=limits)["time_adds_up"] is passed


@pytest.mark.parametrize(("gap_s", "passed"), [(0.0049, True), (0.0051, False)])
def test_a_time_slice_between_two_parts_is_no_missing_part_of_a_short_run(gap_s, passed):
    run = {**dict.fromkeys(PARTS, 0.0), "load_s": 0.1, "wall_s": 0.1 + gap_s}

    assert verdicts(run)["time_adds_up"] is passed


COSTS = {"request_cpu_s": 2e-5, "read_gb_cpu_s": 0.25, "written_gb_cpu_s": 1.5}


@pytest.mark.parametrize(
    ("costs", "most"),
    [
        ({}, LIMITS.other_cpu_max + 1.1 / 10),  # a storage that says nothing is allowed nothing of the kernel
        *(({key: COSTS[key]}, more) for key, more in zip(COSTS, (0.62, 0.685, 0.91), strict=True)),
        (COSTS, 0.995),
    ],
)
def test_what_serves_emulated_storages_is_no_others_by_what_their_site_measured(costs, most):
    hdd = {"reads": 3000, "writes": 2000, "read_bytes": 3 * 10**9, "written_bytes": 2 * 10**9, "cpu_s": 0.4}  # in 10 s
    run = {"served": {"hdd": hdd | costs, "ssd": {**hdd, "cpu_s": 0.7}}}

    assert [verdicts({**run, "other_cpu": most + more})["quiet"] for more in (-0.001, 0.001)] == [True, False]


@pytest.mark.parametrize("spoiled", [0, 3])
def test_a_run_whose_model_was_given_faults_for_a_request_does_not_count(spoiled):
    did = {"reads": 10, "writes": 0, "read_bytes": 0, "written_bytes": 0, "cpu_s": 0.0}
    run = GOOD | {"served": {"ssd": did | {"spoiled": 0}, "hdd": did | {"spoiled": spoiled}}}

    found, why = checks.judge(run, "cold", LIMITS)

    assert {check["rule"]: check["passed"] for check in found}["unspoiled"] is not bool(spoiled)
    assert why == ("unspoiled: faults were injected into 3 requests of the model of hdd" if spoiled else None)


@pytest.mark.parametrize(
    ("run", "cache", "broken"),
    [
        ({}, "cold", []),
        ({"resident_fraction": 1.0}, "cold", ["cold"]),
        ({"device_bytes": 0}, "cold", ["device_bytes"]),
        ({"images": 1}, "cold", ["complete"]),
        *(({part: GOOD[part] + 1}, "cold", ["time_adds_up"]) for part in PARTS),
        ({"other_cpu": 2.0}, "cold", ["quiet"]),
        ({"images": 1, "other_cpu": 2.0}, "cold", ["complete", "quiet"]),
        ({"device_use": None}, "cold", []),
        # Where one of the two proofs is unknown the other decides; without any, the claim does not count.
        ({"resident_fraction": None}, "cold", []),
        ({"resident_fraction": None, "device_bytes": 0}, "cold", ["device_bytes"]),
        ({"device_bytes": None}, "cold", []),
        ({"device_bytes": None, "resident_fraction": 0.5}, "cold", ["cold"]),
        ({"device_bytes": None, "resident_fraction": None}, "cold", ["cold", "device_bytes"]),
        ({"device_bytes": None, "resident_fraction": None}, "warm", ["warm", "from_memory"]),
    ],
)
def test_a_run_counts_unless_rules_are_broken_and_these_are_its_reason(run, cache, broken):
    _, found = checks.judge({**GOOD, **run}, cache, LIMITS)

    assert [part.split(":")[0] for part in (found or "").split("; ") if part] == broken


@pytest.mark.parametrize(
    ("values", "observed", "passed"),
    [
        ([100.0, 100.0, 100.0], 0.0, True),
        ([98.0, 100.0, 102.0], 0.04, True),
        ([97.0, 100.0, 102.0], 0.05, False),
        ([100.0, 1.0, 100.0], 0.99, False),
        ([96.0, 104.0], 0.08, False),
    ],
)
def test_spread_is_the_range_over_the_median(values, observed, passed):
    check = checks.spread(values, LIMITS)

    assert check["observed"] == pytest.approx(observed)
    assert check["passed"] is passed


@pytest.mark.parametrize(("values", "told"), [([], "no valid measured run"), ([100.0], "only 1 valid measured run")])
def test_the_spread_of_fewer_than_two_runs_is_unverifiable(values, told):
    check = checks.spread(values, LIMITS)

    assert (check["passed"], check["observed"]) == (None, None)
    assert check["message"] == told


WRITTEN = {
    **{key: value for key, value in GOOD.items() if not key.startswith("image")},
    "bytes_read": 0,
    "bytes_written": 100_000_000,
    "bytes_asked": 100_000_000,
    "requests": 100,
    "written_bytes": 100_000_000,
    "reached_bytes": 100_000_000,
}


@pytest.mark.parametrize(
    ("reached", "own", "passed"),
    [
        (99_000_000, 0, True),
        (98_999_999, 100_000_000, False),
        (None, 100_000_000, True),
        (None, 0, False),
        (None, None, None),
    ],
)
def test_what_was_written_must_have_come_to_the_device_by_its_counter_or_else_by_our_own(reached, own, passed):
    run = {**WRITTEN, "reached_bytes": reached, "written_bytes": own}
    found, reason = checks.judge(run, "as_is", LIMITS)

    assert checks.complete({**WRITTEN, "bytes_written": 99_999_999}, LIMITS)["passed"] is False
    told = {check["rule"]: check["passed"] for check in found}
    assert told == {"complete": True, "time_adds_up": True, "quiet": True, "reached_device": passed}
    assert (reason is None) == (passed is not False)


@pytest.mark.parametrize(
    ("run", "rate", "unit"),
    [
        ({"rate": {"key": "ops_per_s", "unit": "ops/s"}, "ops_per_s": 4.0, "images_per_s": 3.0}, 4.0, "ops/s"),
        ({}, None, ""),
    ],
)
def test_the_rate_of_a_run_is_the_one_that_it_names(run, rate, unit):
    assert (checks.judged_rate(run), checks.rate_unit(run)) == (rate, unit)


PEAK = {"by": "baseline-read-hdd-0123456789", "mb_per_s": 100.0, "ceiling_mb_per_s": 200.0, "reads": None}
EXACT = {**GOOD, "images": 10**9, "images_asked": 10**9}  # so many that chance adds nothing


@pytest.mark.parametrize(
    ("rate", "ceiling", "passed"),
    [
        (99.0, 200.0, True),
        (105.0, 200.0, True),
        (105.1, 200.0, None),
        (209.9, 200.0, None),
        (210.1, 200.0, False),
        (105.0, None, True),
        (105.1, None, None),
        (1e6, None, None),
    ],
)
def test_a_cold_run_fails_above_what_an_honest_one_can_reach_and_above_the_peak_nothing_is_known(rate, ceiling, passed):
    peak = PEAK | {"ceiling_mb_per_s": ceiling}

    found, reason = checks.judge({**EXACT, "read_mb_per_s": rate}, "cold", LIMITS, peak)

    assert (found[-1]["rule"], found[-1]["passed"]) == ("below_peak", passed)
    assert (reason is None) == (passed is not False)
    assert PEAK["by"] in found[-1]["message"]
    assert ("random_read" in found[-1]["message"]) is (passed is None and ceiling is None)


@pytest.mark.parametrize(
    ("rate", "images", "passed"),
    [
        (21.0, 320, True),
        (3 * 21.3, 30, None),  # the fewer reads a run has, the less is certain
        (
            23.2,
            320,
            None,
        ),  # as 10 of 10 honest runs on the testbed's hdd: half a turn of 140 reads is 4.2 ms, give or take
        (3 * 21.3, 320, False),  # from memory
    ],
)
def test_a_peak_of_few_random_reads_is_as_uncertain_as_they_are_and_bytes_from_memory_are_not_excused(
    rate, images, passed
):
    peak = {"by": "baseline-random_read", "mb_per_s": 21.3, "ceiling_mb_per_s": 2 * 21.3, "reads": 140}

    run = {**GOOD, "images": images, "images_asked": images, "read_mb_per_s": rate}

    assert checks.below_peak(run, peak, LIMITS)["passed"] is passed


@pytest.mark.parametrize(("cache", "peak"), [("warm", PEAK), ("as_is", PEAK), ("cold", None)])
def test_a_run_from_memory_or_without_a_baseline_is_judged_by_no_peak(cache, peak):
    run = {**GOOD, "resident_fraction": float(cache == "warm"), "read_mb_per_s": 1e6}
    found, _ = checks.judge(run, cache, LIMITS, peak)

    assert "below_peak" not in [check["rule"] for check in found]


@pytest.mark.parametrize(
    ("run", "passed", "told"),
    [
        ({"to_fetch_bytes": 101_000_000}, True, "100.0 MB for 101.0 MB"),
        ({"to_fetch_bytes": 101_100_000}, False, "100.0 MB for 101.1 MB"),  # 0.989 of the blocks, all of the bytes
        ({"to_fetch_bytes": 20_000_000}, True, "100.0 MB for 20.0 MB"),  # holes need not be fetched
        ({"to_fetch_bytes": None}, None, "compressed"),
        ({"device": "sda", "device_read_bytes": 99_000_000}, True, "sda gave 99.0 MB"),
        ({"device": "sda", "device_read_bytes": 0}, False, "the process fetched 100.0 MB, sda gave 0.0 MB"),
        ({"device": None, "device_read_bytes": None}, True, "100.0 MB"),
        (
            {"device": "loop0", "device_read_bytes": 10**8, "lowest_device": "sda", "lowest_read_bytes": 5_000},
            False,
            "sda below it gave 0.0 MB",
        ),
    ],
)
def test_the_least_of_all_counters_is_held_against_what_the_files_have_on_their_device(run, passed, told):
    found, _ = checks.judge({**GOOD, **run}, "cold", LIMITS)

    check = next(each for each in found if each["rule"] == "device_bytes")
    assert check["passed"] is passed
    assert told in check["message"]


@pytest.mark.parametrize(
    ("run", "passed"),
    [
        ({}, True),
        ({"changed_files": 1, "changed": ["class_001/7.jpg"]}, False),
        ({"bytes_read": 99_999_999}, False),
        ({"bytes_read": 99_999_999, "images": 63}, True),  # `complete` says what is wrong with it
        ({"bytes_read": 99_999_999, "image_errors": 1, "unreadable": [{"file": "a"}]}, True),
    ],
)
def test_the_data_are_those_that_were_listed(run, passed):
    listed = {"listed_bytes": 100_000_000, "changed_files": 0, "changed": []}

    assert verdicts({**listed, **run})["same_data"] is passed


def test_a_run_that_is_to_read_nothing_has_no_data_to_compare():
    run = {"bytes_read": 0, "listed_bytes": 10, "changed_files": 0, "changed": []}

    assert "same_data" not in verdicts(run, "as_is")
    assert verdicts(run, "cold")["same_data"] is False


@pytest.mark.parametrize(("seconds", "limit", "passed"), [(0.1, 0.01, True), (0.101, 0.01, False), (0.101, 0.02, True)])
def test_a_run_that_a_quota_held_back_does_not_count_unless_that_is_allowed(seconds, limit, passed):
    run = {"quota_cores": 0.2, "throttled_periods": 7, "throttled_s": seconds}

    assert verdicts(run, limits=replace(LIMITS, throttled_max=limit))["unthrottled"] is passed


@pytest.mark.parametrize("clock", ["kernel_s", "raw_s"])
@pytest.mark.parametrize(
    ("seconds", "passed"), [(None, True), (10.0, True), (10.09, True), (20.0, False), (5.0, False)]
)
def test_a_clock_that_goes_otherwise_than_the_kernels_or_the_hardwares_does_not_count(clock, seconds, passed):
    assert verdicts({clock: seconds})["time_adds_up"] is passed


@pytest.mark.parametrize(
    ("stolen_s", "elapsed_s", "limit", "passed"),
    [
        (1.0, 10.0, 0.1, True),
        (1.01, 10.0, 0.1, False),
        (1.01, 10.0, 0.11, True),
        (0.05, 0.1, 0.1, True),  # ticks of 10 ms: a few of them show nothing
        (0.06, 0.1, 0.1, False),
    ],
)
def test_a_run_whose_processors_the_hypervisor_took_does_not_count(stolen_s, elapsed_s, limit, passed):
    run = {"steal_s": stolen_s, "elapsed_s": elapsed_s}

    assert verdicts(run, limits=replace(LIMITS, stolen_max=limit))["unstolen"] is passed


FIRST = {
    "process": {"nice": 0, "LD_PRELOAD": "/x.so"},
    "machine": {"cpus": "2 of 2 cores"},
    "storages": {"hdd": {"read_ahead_kb": "128"}, "ssd": {"read_ahead_kb": "128"}},
}


@pytest.mark.parametrize(
    ("scope", "facts", "words"),
    [
        ("process", FIRST["process"], ""),
        ("process", {"nice": 5, "LD_PRELOAD": "/x.so"}, "nice was 0, and is 5 in this run"),
        ("process", {"nice": 0}, "LD_PRELOAD was /x.so, and is unset in this run"),
        ("process", FIRST["process"] | {"OMP_NUM_THREADS": "1"}, "OMP_NUM_THREADS was unset, and is 1 in this run"),
        ("machine", {"cpus": "1 of 1 core"}, "cpus was 2 of 2 cores, and is 1 of 1 core in this run"),
        (
            "storages",
            FIRST["storages"] | {"ssd": {"read_ahead_kb": "4"}},
            "read_ahead_kb of ssd was 128, and is 4 in this run",
        ),
    ],
)
def test_a_run_under_other_conditions_than_the_first_that_counts_does_not_count_and_says_which(scope, facts, words):
    run = {**GOOD, "conditions": FIRST | {scope: facts}}

    found, reason = checks.judge(run, "cold", LIMITS, first=FIRST)

    assert reason == (f"same_conditions: {words}" if words else None)
    assert found[-1]["observed"] == bool(words)


def test_the_first_run_has_whatever_conditions_there_are_but_they_must_stay():
    slower = FIRST | {"machine": {"cpus": "1 of 1 core"}}

    assert checks.judge({**GOOD, "conditions": FIRST}, "cold", LIMITS)[1] is None
    _, reason = checks.judge({**GOOD, "conditions": FIRST, "conditions_after": slower}, "cold", LIMITS)
    assert reason == "same_conditions: cpus was 2 of 2 cores, and is 1 of 1 core at the end of the run"
