"""Hints on a cell beside its bound: each from its own part of the runs, and none where that part shows nothing."""

import copy
import json
from pathlib import Path

import pytest

from campaign.cli.cell_hints import hints_on
from jobs.judging.bound import Bound

MEASURED = json.loads((Path(__file__).parents[2] / "jobs" / "judging" / "measured.json").read_text(encoding="utf-8"))
LATENCY, DECODING = Bound("latency", 0.9, ""), Bound("decoding", 0.9, "")
SAVES = {"prefetch": 1.0, "read": 0.5, "decode": 0.05, "buffering": 0.0, "input wait": 0.0}


def recorded(word, settings=None, **parts):
    """A record that was measured, of which this word is known, with more settings and with parts of its runs."""
    made = copy.deepcopy(next(each["record"] for each in MEASURED if each["word"] == word))
    made["terms"] = {"checks": {"other_cpu_max": 0.5}}
    made["cell"]["settings"] |= settings or {}
    made["runs"] = [run | parts for run in made["runs"]]
    return made


@pytest.mark.parametrize(
    ("meta_s", "bound", "hint"),
    [(3.0, LATENCY, "30% of the time in calls"), (2.9, LATENCY, ""), (9.0, DECODING, "")],
)
def test_calls_that_do_not_read_are_said_where_a_profile_has_them_and_calls_matter(meta_s, bound, hint):
    profile = {"meta_s": meta_s, "read_s": 10.0 - meta_s}

    found = hints_on(recorded("decoding", profile=profile), bound)

    assert [each.startswith(hint) for each in found] == [True] * bool(hint)


def test_of_a_training_without_prefetch_what_could_pass_during_a_step_is_said():
    steps = {"number": 11, "first_load_s": 0.0}
    parts = {"steps": steps, "load_s": 5.0, "compute_s": 5.5}

    (hint,) = hints_on(recorded("steps", {"prefetch": 0}, **parts), LATENCY)

    assert "up to 0.5 of the 0.5 s for a batch" in hint
    assert hints_on(recorded("steps", {"prefetch": 1}, **parts), LATENCY) == []
    assert hints_on(recorded("steps", {"prefetch": 0}, **parts), LATENCY._replace(try_={"prefetch": 1})) == []
    assert hints_on(recorded("steps", {"prefetch": 0}, **parts | {"load_s": 0.1}), LATENCY) == []


@pytest.mark.parametrize(("waited_s", "count"), [(1.0, 1), (0.15, 0)])
def test_remedies_of_tensorflow_s_trace_are_named_the_best_first(waited_s, count):
    traced = {"steps_s": 4.0, "waited_s": waited_s, "remedies_s": SAVES}

    found = hints_on(recorded("decoding", tensorflow=traced), DECODING)

    assert len(found) == count
    assert all(each.index("at most 1 s") < each.index("at most 0.5 s") and "0.05 s" not in each for each in found)
