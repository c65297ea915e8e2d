from functools import partial
from pathlib import Path

import pytest

from campaign.slurm.scheduler import (
    Task,
    parse_completion_log,
    parse_sacct,
    parse_squeue,
)
from jobs.model.codes import worker_sentence
from tests.campaign.fake_slurm import SQUEUE_HEAD

FOLDER = "/home/me/results/workers/first-0"
KEY = (FOLDER, 1)
OTHER = "/home/me/elsewhere/workers/second-0"
NOTHING = ""
SILENCE = None
LISTED = f"70|1|RUNNING|None|n1|{FOLDER}"
WAITING = f"70|1|PENDING|BeginTime||{FOLDER}"
SLURMDBD = "AccountingStorageType   = accounting_storage/slurmdbd"
NO_ACCOUNTING = "AccountingStorageType   = accounting_storage/none"


def _ended(state, index=1, folder=FOLDER):
    return f"JobId=71 JobState={state} NodeList=n1 WorkDir={folder} ArrayJobId=70 ArrayTaskId={index} ExitCode=0:0 \n"


# Seconds since the look before, who is asked, the answer, and the state that is known then.


RECORDED = Path(__file__).parent / "recorded"
MOMENTS = ("early", "late", "after")
AT = list(enumerate(MOMENTS))
COMPLETED, FAILED, RUNNING, PENDING, CANCELLED = "COMPLETED", "FAILED", "RUNNING", "PENDING", "CANCELLED"
SOME_FAILED = {0: COMPLETED, 1: FAILED, 2: FAILED, 3: FAILED}
ONE_RUNS = {1: RUNNING, **dict.fromkeys(range(2, 6), PENDING)}
# Situation: states by index at each moment; {} where the source says nothing of any task.
SQUEUE = {
    "array-failed-some": (SOME_FAILED, SOME_FAILED, SOME_FAILED),
    "array-task-limit": (ONE_RUNS, ONE_RUNS, {1: CANCELLED}),
    "array-waiting": (ONE_RUNS, ONE_RUNS, {1: CANCELLED}),
    "array-waiting-limited": (*[dict.fromkeys(range(2, 6), PENDING)] * 2, {}),
    "array-held-sparse": (*[dict.fromkeys((1, 3, 7, 8, 9), PENDING)] * 2, {}),
    "array-cancelled-pending": ({0: RUNNING}, {0: RUNNING}, {0: CANCELLED}),
    "array-cancelled-whole": [dict.fromkeys(range(6), CANCELLED)] * 3,
    "array-cancelled-before-start": [dict.fromkeys(range(6), CANCELLED)] * 3,
    "array-cancelled-one-pending": (*[dict.fromkeys((0, 1, 2, 4, 5), PENDING)] * 2, {}),
}
SACCT = {
    "array-failed-some": (SOME_FAILED, SOME_FAILED, SOME_FAILED),
    "array-task-limit": ({1: RUNNING}, {1: RUNNING}, {1: CANCELLED}),
    "array-waiting": (ONE_RUNS, ONE_RUNS, dict.fromkeys(range(1, 6), CANCELLED)),
    "array-waiting-limited": (*[dict.fromkeys(range(2, 6), PENDING)] * 2, dict.fromkeys(range(2, 6), CANCELLED)),
    "array-held-sparse": ({}, {}, {}),
    "array-cancelled-pending": ({0: RUNNING}, {0: RUNNING}, {0: CANCELLED}),
    "array-cancelled-whole": [{0: CANCELLED}] * 3,
    "array-cancelled-before-start": ({}, {}, {}),
    "array-cancelled-one-pending": ({}, {}, {}),
}
COMPLETION_LOG = {
    "array-failed-some": SOME_FAILED,
    "array-task-limit": {1: CANCELLED},
    "array-waiting": {1: CANCELLED},
    "array-waiting-limited": {},
    "array-held-sparse": {},
    "array-cancelled-pending": {0: CANCELLED},
    "array-cancelled-whole": {0: CANCELLED},
    "array-cancelled-before-start": {},
    "array-cancelled-one-pending": {},
}


def _lines(name):
    return [line.split("|") for line in (RECORDED / name).read_text(encoding="utf-8").splitlines()]


def _squeue(moment):
    """What our own format would have shown: Slurm gives a job that is no array the index N/A."""
    shown = [SQUEUE_HEAD]
    for job, _name, state, reason, node, folder, *_ in _lines(f"squeue-r.{moment}.txt"):
        number, _, index = job.partition("_")
        shown.append("|".join((number, index or "N/A", state, reason, node, folder)))
    return "\n".join(shown)


def _of_controller(line):
    return parse_squeue(f"{SQUEUE_HEAD}\n{line}\n")


def _recorded_sacct(moment):
    rows = _lines(f"sacct-X.{moment}.txt")
    return "\n".join("|".join((row[0], row[2], row[3], row[5], row[6], row[7])) for row in rows)


def _completion_log():
    return (RECORDED / "jobcomp.log").read_text(encoding="utf-8")


def _states(tasks, situation):
    return {task.index: task.state for task in tasks if task.folder == f"/tmp/tfio/{situation}"}  # noqa: S108


def _situations():
    rows = [line.split("\t") for line in (RECORDED / "jobs.tsv").read_text(encoding="utf-8").splitlines()]
    return {row[1]: "--array" in row[2] for row in rows}


def test_every_recorded_array_is_looked_for_in_every_source():
    arrays = {situation for situation, is_array in _situations().items() if is_array}

    assert arrays == SQUEUE.keys() == SACCT.keys() == COMPLETION_LOG.keys()


@pytest.mark.parametrize("situation", SQUEUE)
@pytest.mark.parametrize(("at", "moment"), AT)
def test_the_controller_and_the_accounting_tell_the_state_of_each_task(at, moment, situation):
    assert _states(parse_squeue(_squeue(moment)), situation) == SQUEUE[situation][at]
    assert (
        _states(parse_sacct(_recorded_sacct(moment)), situation) == SACCT[situation][at]
    )  # one line may stand for many


@pytest.mark.parametrize("situation", COMPLETION_LOG)
def test_the_completion_log_tells_the_state_of_each_task_that_ended(situation):
    assert _states(parse_completion_log(_completion_log(), 0), situation) == COMPLETION_LOG[situation]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_job_that_is_no_array_is_nobody_s_task(moment):
    arrays = {f"/tmp/tfio/{situation}" for situation, is_array in _situations().items() if is_array}  # noqa: S108

    found = [
        *parse_squeue(_squeue(moment)),
        *parse_sacct(_recorded_sacct(moment)),
        *parse_completion_log(_completion_log(), 0),
    ]

    assert found
    assert {task.folder for task in found} <= arrays


@pytest.mark.parametrize(
    ("tasks", "situation", "told"),
    [
        (parse_squeue(_squeue("early")), "array-waiting", (1, RUNNING, "", "n1", "", "55264493_1")),
        (parse_squeue(_squeue("early")), "array-waiting", (2, PENDING, "Licenses", "", "", "55264493_2")),
        (parse_sacct(_recorded_sacct("early")), "array-failed-some", (3, FAILED, "", "n2", "3:0", "55264491_3")),
        (
            parse_sacct(_recorded_sacct("early")),
            "array-waiting-limited",
            (5, PENDING, "Licenses", "", "0:0", "55264494_5"),
        ),
        (parse_completion_log(_completion_log(), 0), "array-failed-some", (3, FAILED, "", "n2", "3:0", "55264491_3")),
    ],
)
def test_a_task_carries_all_that_its_source_says_of_it(tasks, situation, told):
    assert Task(f"/tmp/tfio/{situation}", *told) in list(tasks)  # noqa: S108


@pytest.mark.parametrize(
    ("job", "indices"),
    [
        ("123_4", [4]), ("123_[4]", [4]), ("123_[2-5%1]", [2, 3, 4, 5]), ("123_[1,3,7-9]", [1, 3, 7, 8, 9]),
        ("123_[0-2,4-5%1]", [0, 1, 2, 4, 5]), ("123_[0-6:3]", [0, 3, 6]),
        *((odd, []) for odd in ("123", "123.batch", "123_4.batch", "123+0")),
    ],
)  # fmt: skip
def test_a_job_number_of_the_accounting_stands_for_these_tasks(job, indices):
    tasks = list(parse_sacct(f"{job}|PENDING|0:0|None assigned|Resources|/batch"))

    assert [task.index for task in tasks] == indices
    assert [task.job_id for task in tasks] == [f"123_{index}" for index in indices]


GARBAGE = ["", "   ", "|||||", "||||||||", "slurm_load_jobs error: Unable to contact", "a=b c=d", "_|_|_"]
LOGGED = "JobId=8 JobState=RUNNING NodeList=n1 WorkDir=/batch ArrayJobId=7 ArrayTaskId=1"
LINES = {parse_sacct: "7_1|RUNNING|0:0|n1|None|/batch", partial(parse_completion_log, user=0): LOGGED}


@pytest.mark.parametrize("line", GARBAGE)
@pytest.mark.parametrize("read", LINES)
def test_a_line_that_explains_no_end_is_passed_over_and_the_next_one_read(read, line):
    (found,) = read(f"{line}\n{LINES[read]}\n{line}\n")

    assert (*found.key, found.state, found.node, found.job_id) == ("/batch", 1, "RUNNING", "n1", "7_1")


@pytest.mark.parametrize(
    "line", [*GARBAGE, "7|1|RUNNING", "7|1|RUNNING|None|n1|", "7|1|RUNNING|None|n1|/batch\n7|2|PEN"]
)
def test_what_squeue_does_not_print_is_no_answer_of_the_controller(line):
    assert _of_controller(line) is None


@pytest.mark.parametrize("text", ["", "\n", "7|1|RUNNING|None|n1|/batch\n"])
def test_an_answer_without_its_head_is_none_and_one_with_nothing_below_it_lists_no_job(text):
    assert parse_squeue(text) is None
    assert parse_squeue(f"{SQUEUE_HEAD}\n") == []
    assert parse_squeue(f"a notice of the site\n{SQUEUE_HEAD}\n") == []


@pytest.mark.parametrize(
    "job", ["9_[1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31,33,35,37,39,41,4...]", "9_[1,3,...%1]", "9_[x]"]
)
def test_a_list_of_indices_that_slurm_cut_short_does_not_hide_the_next_line(job):
    found = list(parse_sacct(f"{job}|PENDING|0:0|None assigned|None|/batch\n7_1|FAILED|1:0|n1|None|/batch\n"))

    assert ("/batch", 1, "FAILED") in [(*task.key, task.state) for task in found]
    assert [task.key for task in parse_sacct("7_1|FAILED")] == [("", 1)]  # nobody's


def test_a_work_folder_may_have_any_name():
    folder = "/home/me/my results|x"
    (controller,) = _of_controller(f"7|1|RUNNING|None|n1|{folder}")
    (accounting,) = parse_sacct(f"7_1|RUNNING|0:0|n1|None|{folder}")
    (logged,) = parse_completion_log(f"JobId=8 JobState=FAILED WorkDir={folder} ReservationName= ArrayTaskId=1 ", 0)

    assert [task.folder for task in (controller, accounting, logged)] == [folder] * 3


@pytest.mark.parametrize(
    ("state", "code", "node", "said"),
    [
        ("NODE_FAIL", "0:0", "n6", "Slurm: NODE_FAIL on n6"),
        ("FAILED", "3:0", "n2", "Slurm: FAILED, exit code 3 on n2"),
        ("FAILED", "0:9", "n1", "Slurm: FAILED, signal 9 on n1"),
        ("OUT_OF_MEMORY", "1:125", "n1", "Slurm: OUT_OF_MEMORY, exit code 1, signal 125 on n1"),
        ("CANCELLED", "0:0", "", "Slurm: CANCELLED"),
        ("TIMEOUT", "", "n1", "Slurm: TIMEOUT on n1"),
        ("LOST", "", "", "Slurm: LOST: Slurm no longer knows a job with this working directory"),
    ],
)
def test_an_end_is_told_by_its_state_what_the_exit_code_adds_and_the_node(state, code, node, said):
    end = Task("/batch", 0, state, "", node, code, "7_0").end()

    assert end["code"] == state
    assert worker_sentence(end).startswith(said)


@pytest.mark.parametrize(
    ("states", "live", "queued"),
    [
        (["PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD"], True, True),
        (["RUNNING", "COMPLETING", "SUSPENDED", "A_STATE_TO_COME"], True, False),
        (["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL"], False, False),
        (["OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "REVOKED", "LOST"], False, False),
    ],
    ids=["waits", "runs", "is over", "is over for a rarer reason"],
)
def test_a_state_means_that_a_task_waits_runs_or_is_over(states, live, queued):
    for state in states:
        task = Task("/batch", 0, state, "", "", "", "7_0")
        assert (task.live, task.queued) == (live, queued), state


FEWER = "cancel the job, then ask for fewer resources"


@pytest.mark.parametrize(
    ("reason", "cure"),
    [
        *((reason, "") for reason in ("Priority", "QOSMaxJobsPerUserLimit", "")),
        (
            "PartitionTimeLimit",
            "cancel the job; set a smaller cluster.timeout_min or another cluster.partition",
        ),
        ("JobHeldUser", "`scontrol release 70` releases the job"),
        *((each, FEWER) for each in ("QOSMaxWallDurationPerJobLimit", "AssocMaxCpuPerNode", "MaxMemPerLimit")),
        ("InvalidQOS", "cancel the job, then set cluster.qos=…"),
        ("QOSNotAllowed", "cancel the job, then set cluster.qos=…"),
        ("launch failed requeued held", "`scontrol release 70` releases the job"),
    ],
)  # fmt: skip
def test_a_job_that_will_never_start_is_told_with_the_cure(reason, cure):
    told = Task("/batch", 1, "PENDING", reason, "", "", "70_1").waits_for

    assert told == (f"{reason}: the job cannot start; {cure}" if cure else reason)


def test_a_job_of_another_user_in_a_folder_of_ours_is_none_of_ours():
    line = (  # as Slurm 22.05 wrote it of a job that user 65534 had submitted with this name and --chdir
        "JobId=55452620 UserId=nobody(65534) GroupId=nogroup(65534) Name=x UserId=root(0) ArrayTaskId=5 "
        "JobState=COMPLETED NodeList=n1 WorkDir=/results/workers/token-0 ArrayJobId=55452620 ArrayTaskId=1 ExitCode=0:0"
    )

    assert list(parse_completion_log(line, 0)) == []
    assert [task.key for task in parse_completion_log(line, 65534)] == [("/results/workers/token-0", 1)]
