"""What the page says of honest runs and of other tools."""

from tests.lies import honest_runs
from tests.lies.disturbances.disturbance import ALL
from tests.lies.honest_runs import Counted
from tests.lies.tools import told
from tests.lies.tools.told import Compared, Told

RUNS = [
    {"status": "valid", "checks": [{"rule": "cold", "passed": True}]},
    {"status": "invalid", "checks": [{"rule": "cold", "passed": False}]},
    {"status": "invalid", "checks": [{"rule": "cold", "passed": False}, {"rule": "quiet", "passed": False}]},
    {"status": "invalid", "checks": [{"rule": "quiet", "passed": False}, {"rule": "unstolen", "passed": False}]},
    {"status": "failed", "reason": "killed"},
]


def test_a_run_that_others_disturbed_is_no_false_alarm():
    counts = honest_runs.count("xfs", RUNS)

    assert counts.failed == {"cold": 1, "quiet": 2, "unstolen": 1, "killed": 1}
    assert honest_runs.false_alarms([counts]) == 2


def test_the_page_has_the_count_of_all_storages_and_those_that_could_not_be_made():
    text = honest_runs.page([Counted("xfs", 30, {"quiet": 1}), Counted("overlay", missing="it needs root")])

    assert "30 runs in which nothing cheats" in text
    assert "0 false alarms; runs that had others beside them, here or on the host: `quiet` 1, `unstolen` 0." in text
    assert "| overlay | not staged: it needs root |  |" in text


def test_a_number_is_wrong_by_its_share_of_the_undisturbed_one():
    told_before, told_then = {"fio": Told(200.0)}, {"fio": Told(50.0, "fio: a word")}

    compared = told.compare(ALL["seeks"], told_before, told_then)

    assert told.line(compared) == "seeks: fio -75% fio: a word"


def test_the_page_has_the_answer_of_this_tool_beside_its_error():
    compared = Compared(ALL["seeks"], dict.fromkeys(told.TOOLS, -0.5), dict.fromkeys(told.TOOLS, ""))

    row = told.page([compared], {"seeks": "invalid (`quiet`)"}).splitlines()[-1]

    assert row == f"| {ALL['seeks'].sentence} | -50% | -50% | -50% | -50%: invalid (`quiet`) |"
