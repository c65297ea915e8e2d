"""What cold and warm runs say, in words."""

import json

import pytest

from campaign.stall import stall_answer
from jobs.judging.bound import bound_of_work
from jobs.judging.work_done import TimeUse

TIMES = [(41.2, 30.1), (40.8, 30.6), (41.9, 29.8), (41.0, 30.4), (41.5, 30.0)]


def _records(times=TIMES, marked=None, **more):
    """Return a cold and a warm record with these seconds; a mark so many seconds after the start."""

    def run(pair, wall_s, cache):
        bytes_read = 62_000_000 if cache == "cold" else 0
        own = {"device_bytes": bytes_read, "data_in_memory_bytes": 62_000_000, "data_bytes": 62_000_000}
        program = {"cpu_s": 1.9 * wall_s, "cpus": 2}
        timed = {"marked_s": None if marked is None else wall_s - marked, "wall_s": wall_s, "elapsed_s": wall_s}
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


BUSY = bound_of_work(TimeUse(30.0, 57.0, 2.0))


def _lines(*args, rest=BUSY, **named):
    return stall_answer.lines_of_outcome(
        stall_answer.compare_records("python train.py", *_records(*args, **named), rest)
    )


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
        " (1.9 of 2 processors busy)"
    )
    assert found[4].startswith("62 of 62 MB of the data were read from the disk once; later reads come from")


def test_a_mark_gives_both_the_whole_and_the_timed_part():
    found = _lines(marked=20.0)

    assert "cold, 5 runs, timed part   21.2 s" in found[3]
    assert found[6].startswith("in the timed part: waiting for storage costs 11.1 s, 52% of this part")


@pytest.mark.parametrize(
    ("times", "says"),
    [
        ([(10, 9), (9, 10), (10, 10), (11, 10), (10, 11)], "no difference that 5 runs can show: +0 s, 0%"),
        ([(9.0, 10.0)] * 5, "the cold runs were 1 s faster"),
        ([(10.0, 9.0)] * 4, "waiting for storage costs 1 s, 10% of the runtime (valid pairs: 4; an interval needs 5)"),
        ([(9.0, 10.0)] * 4, "no waiting for storage was seen: the cold runs were 1 s faster (valid pairs: 4;"),
        ([], "too few valid pairs"),
    ],
)
def test_what_cannot_be_shown_is_not_said(times, says):
    assert says in "\n".join(_lines(times))


def test_where_too_few_runs_count_it_is_told_why():
    cold, warm = _records([])
    bad = {"status": "invalid", "reason": "0 of 5 measured runs valid, 3 needed; reads_data: it reads nothing"}

    told = stall_answer.sentences_on_outcome(stall_answer.compare_records("train", cold | bad, warm))

    assert told == ["too few valid pairs of a cold and a warm run for an answer", f"cold: {bad['reason']}"]
    assert stall_answer.sentences_on_outcome(stall_answer.compare_records("train", cold, warm | bad))[1:] == [
        f"warm: {bad['reason']}"
    ]


def _program(cores, **more):
    return {"program": {"cpu_s": cores * 30.1, "cpus": 2, **more}}


@pytest.mark.parametrize(
    ("times", "cores", "rest", "says"),
    [
        (TIMES, 1.0, None, "; the rest is bound by one thread (1.0 of 2 processors)"),
        (TIMES, 0.5, bound_of_work(TimeUse(30.0, 15.0, 2.0, storage_busy_s=9.0)), " of the runtime (25% to 29%)"),
        (TIMES, 0.5, None, " of the runtime (25% to 29%)"),
        (TIMES, 1.9, bound_of_work(TimeUse(30.0, 57.0, 2.0, storage_busy_s=1.0)), "(1.9 of 2 processors busy)"),
    ],
)
def test_what_bounds_the_rest_is_said_where_it_is_known_and_without_the_device(times, cores, rest, says):
    found = _lines(times, rest=rest, **_program(cores))[3]

    assert found.endswith(says)
    assert "storage busy" not in found


def test_an_exit_code_and_a_limit_on_io_are_said_and_codes_that_differ_are_refused():
    limit = {"device": "sda", "group": "/job", "kind": "read_bps", "per_s": 1e7, "reached_per_s": 9e6}
    cold, warm = _records(io_limits=[limit], **_program(1.9, exit=1))
    other = _records(**_program(1.9, exit=0))[1]

    said = stall_answer.compare_records("grep", cold, warm).said
    refused = stall_answer.compare_records("grep", cold, other)

    assert "exit code 1" in said[0]
    assert "/job" in said[1]
    assert refused.whole is None
    assert "exit codes differ" in refused.why_not


def test_it_is_json_too():
    found = json.loads(json.dumps(stall_answer.compare_records("p", *_records(), BUSY).as_json()))

    assert found["whole"]["share"] == pytest.approx(0.269, abs=1e-3)
    assert found["cold"]["wall_s"] == [41.2, 40.8, 41.9]
    assert found["timed_part"] is None
    assert found["warm_bound"]["word"] == "processors"
