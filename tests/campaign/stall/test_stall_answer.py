"""What cold and warm runs say, in words."""

import json

import pytest

from campaign.stall import stall_answer

TIMES = [(41.2, 30.1), (40.8, 30.6), (41.9, 29.8), (41.0, 30.4), (41.5, 30.0)]


def _records(times=TIMES, marked=None, cores=1.9, others=0.0, **more):
    """Return a cold and a warm record with these seconds; a mark so many seconds after the start."""

    def run(pair, wall_s, cache):
        bytes_read = 62_000_000 if cache == "cold" else 0
        own = {"device_bytes": bytes_read, "data_in_memory_bytes": 62_000_000, "data_bytes": 62_000_000}
        program = {"cpu_s": cores * wall_s, "cpus": 2}
        own["other_cpu"] = others
        timed = {"marked_s": None if marked is None else wall_s - marked, "wall_s": wall_s}
        return {
            "role": "measured",
            "status": "valid",
            "pair": pair,
            "run": pair,
            "program": program,
            **own,
            **timed,
            **more,
        }

    cold = [run(pair, each[0], "cold") for pair, each in enumerate(times)]
    warm = [run(pair, each[1], "warm") for pair, each in enumerate(times)]
    return {"runs": cold, "status": "done"}, {"runs": warm, "status": "done"}


def _lines(*args, **named):
    return stall_answer.lines(stall_answer.outcome("python train.py", *_records(*args, **named)))


def test_the_table_and_the_sentence_are_those_of_the_manual():
    table = [
        "python train.py  runtime    min–max  from the disk  processors",  # noqa: RUF001
        "cold, 5 runs      41.2 s  40.8–41.9          62 MB    1.9 of 2",  # noqa: RUF001
        "warm, 5 runs      30.1 s  29.8–30.6           0 MB    1.9 of 2",  # noqa: RUF001
    ]

    found = _lines()

    assert found[:3] == table
    assert found[3] == (
        "waiting for storage costs 11.1 s, 27% of the runtime (25% to 29%); the rest is bound by processors"
        " (1.9 of 2 busy)"
    )
    assert found[4].startswith("62 of 62 MB of the data were read from the disk once; what is read again comes from")


def test_a_mark_gives_both_the_whole_and_the_timed_part():
    found = _lines(marked=20.0)

    assert "cold, 5 runs, timed part   21.2 s" in found[3]
    assert found[6].startswith("in the timed part: waiting for storage costs 11.1 s, 52% of it")


@pytest.mark.parametrize(
    ("times", "says"),
    [
        ([(10, 9), (9, 10), (10, 10), (11, 10), (10, 11)], "no difference that 5 runs can show: +0 s, 0%"),
        ([(9.0, 10.0)] * 5, "the cold runs were 1 s faster"),
        ([(10.0, 9.0)] * 4, "4 pairs are too few for an interval (5 are needed)"),
        ([], "too few valid pairs"),
    ],
)
def test_what_cannot_be_shown_is_not_said(times, says):
    assert says in "\n".join(_lines(times))


def test_where_too_few_runs_count_it_is_told_why():
    cold, warm = _records([])
    bad = {"status": "invalid", "reason": "0 of 5 measured runs valid, 3 needed; reads_data: it reads nothing"}

    told = stall_answer.sentences(stall_answer.outcome("train", cold | bad, warm))

    assert told == ["too few valid pairs of a cold and a warm run: nothing is said", f"cold: {bad['reason']}"]
    assert stall_answer.sentences(stall_answer.outcome("train", cold, warm | bad))[1:] == [f"warm: {bad['reason']}"]


def test_where_others_have_the_processors_nothing_is_said_of_the_rest():
    found = "\n".join(_lines(cores=0.5, others=1.4))

    assert "what bounds the rest is undecided: other programs kept 1.4 of 2 processors busy" in found


@pytest.mark.parametrize(
    ("cores", "says"),
    [
        (1.8, "the rest is bound by processors (1.8 of 2 busy)"),
        (1.0, "perhaps one thread bounds it"),
        (0.4, "the rest waits for something else than processors and these data (0.4 of 2 busy)"),
        (0.7, "the rest is undecided (0.7 of 2 busy)"),
    ],
)
def test_what_bounds_the_rest_is_told_by_the_processors_that_are_busy(cores, says):
    assert says in "\n".join(_lines(cores=cores))


def test_it_is_json_too():
    found = json.loads(json.dumps(stall_answer.outcome("p", *_records()).as_json()))

    assert found["whole"]["share"] == pytest.approx(0.269, abs=1e-3)
    assert found["cold"]["wall_s"] == [41.2, 40.8, 41.9]
    assert found["marked"] is None


def _cold(**passed):
    checks = [{"rule": rule, "passed": each, "message": f"why {rule}"} for rule, each in passed.items()]
    return {"role": "measured", "status": "valid", "run": 1, "wall_s": 1.5, "device_bytes": 10**7, "checks": checks}


@pytest.mark.parametrize(
    ("run", "cold", "says"),
    [
        (_cold(cold=True, device_bytes=True), True, "yes"),
        (_cold(cold=True, device_bytes=True, quiet=False), True, "yes"),  # loud, and cold
        (_cold(cold=False, device_bytes=True), False, "NO    cold: why cold"),
        (_cold(cold=True, device_bytes=None, reads_data=None), True, "yes   device_bytes cannot be told; reads_data"),
        (_cold(cold=None, device_bytes=None), False, "NO    cold cannot be told"),
        (_cold(cold=True, device_bytes=True, reads_data=False), False, "NO    reads_data: why reads_data"),
        ({"role": "measured", "status": "failed", "run": 1, "reason": "exit code 3"}, False, "NO    exit code 3"),
    ],
)
def test_of_cold_runs_alone_it_is_told_of_each_whether_it_was(run, cold, says):
    (found,) = stall_answer.cold_runs({"runs": [run]})

    assert found.cold is cold
    assert says in stall_answer.cold_lines("dd", [found])[1]
