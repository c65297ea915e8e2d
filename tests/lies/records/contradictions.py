"""Records that contradict themselves: of two cells one is good, and the other has a run that no campaign writes."""

from tests.analysis.record_factory import record
from tests.lies.lie import INVALID, REFUSED, VALID, Answer, Expected, lie
from tests.lies.records.made import reported


def _hdd(threads, rates=(100.0, 101.0, 102.0)):
    return record(rates, storage="hdd", threads=threads)


def _expected(words):
    return Expected((REFUSED,), rf"hdd-t2-b64.*({words})")


def _changed(workspace, changes):
    bad = _hdd(2)
    bad["runs"][2] |= changes
    return reported(workspace, _hdd(1), bad)


@lie("A record has a run of a negative rate.", _expected("negative|below 0|images_per_s"))
def negative_rate(workspace):
    return "a run of -101 images/s", _changed(workspace, {"images_per_s": -101.0})


@lie("A record has two runs of one number.", _expected("number|twice|two runs|run 1"))
def one_number_twice(workspace):
    return "the second run says that it is run 1, too", _changed(workspace, {"run": 1})


@lie("A record has a run whose rate is not its images over its time.", _expected("_s\\b"))
def other_rate(workspace):
    return "512 images in 5.07 s, recorded as 1,000 images/s", _changed(workspace, {"images_per_s": 1000.0})


@lie(
    "A record has a run with checks that passed, and figures that do not.",
    Expected((INVALID,), "^045d310151 .*invalid: cold"),
)
def checks_that_passed(workspace):
    cold = {"rule": "cold", "passed": True, "observed": 0.0, "limit": 0.01, "message": "0.00% were in memory"}
    answer = _changed(workspace, {"resident_fraction": 1.0, "checks": [cold]})
    told = tuple(line for line in answer.remarks if "invalid: cold" in line)
    return "all pages of the run were in memory", Answer(INVALID if told else VALID, told, answer.remarks)


@lie("A record has runs of 1e308 images/s.", _expected(r"1e\+?308|too large|_s\b"))
def overflow(workspace):
    return "512 images in 5e-306 s", reported(workspace, _hdd(1), _hdd(2, (1e308,) * 3))
