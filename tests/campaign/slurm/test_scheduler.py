from __future__ import annotations

import os

import pytest

from campaign.slurm import scheduler
from campaign.slurm.client import Facts
from campaign.slurm.scheduler import Scheduler
from campaign.slurm.task import LOST, SACCT_FORMAT, SQUEUE_FORMAT

FOLDER = "/home/me/results/workers/first-0"
KEY = (FOLDER, 1)
NOTHING = ""
SILENCE = None
LISTED = f"70|1|RUNNING|None|n1|{FOLDER}"
WAITING = f"70|1|PENDING|BeginTime||{FOLDER}"
SLURMDBD = "AccountingStorageType   = accounting_storage/slurmdbd"
NO_ACCOUNTING = "AccountingStorageType   = accounting_storage/none"


class Asked:
    """Answers from a list, one a call; the calls are kept."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.calls = []

    def __call__(self, *words):
        self.calls.append(words)
        return self.answers.pop(0)

    @property
    def programs(self):
        return [words[0] for words in self.calls]


class Clock:
    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(scheduler, "time", clock)
    return clock


@pytest.fixture(autouse=True)
def sacct(tmp_path, monkeypatch):
    """A program sacct is on PATH, as on a cluster; nobody runs it here."""
    program = tmp_path / "bin" / "sacct"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def _scheduler(*answers, config=SLURMDBD):
    return Scheduler(Facts(config), ["tfio-first"], "2026-11-20", Asked(*answers))


def _log(path):
    return f"{NO_ACCOUNTING}\nJobCompType = jobcomp/filetxt\nJobCompLoc = {path}"


def _ended(state, index=1, folder=FOLDER):
    return f"JobId=71 JobState={state} NodeList=n1 WorkDir={folder} ArrayJobId=70 ArrayTaskId={index} ExitCode=0:0 \n"


def _state(asked, key=KEY):
    task = asked.task(key)
    return task and task.state


@pytest.mark.parametrize("tasks", [1, 500])
def test_a_look_is_one_question_however_many_tasks_there_are(tasks):
    keys = {(FOLDER, index) for index in range(tasks)}
    known = _scheduler("\n".join(f"70|{index}|RUNNING|None|n1|{FOLDER}" for index in range(tasks)))

    known.refresh(keys)

    assert known.ask.programs == ["squeue"]
    assert {_state(known, key) for key in keys} == {"RUNNING"}


@pytest.mark.parametrize("tasks", [1, 500])
def test_a_look_is_one_question_also_where_every_end_is_to_be_explained(tasks):
    keys = {(FOLDER, index) for index in range(tasks)}
    known = _scheduler(NOTHING, "\n".join(f"70_{index}|FAILED|1:0|n1|None|{FOLDER}" for index in range(tasks)))

    known.refresh(keys)
    known.refresh(keys)

    assert known.ask.programs == ["squeue", "sacct"]
    assert {_state(known, key) for key in keys} == {"FAILED"}


def test_the_controller_is_asked_for_our_jobs_of_any_state_task_by_task():
    known = Scheduler(Facts(""), ["tfio-a", "tfio-b"], "2026-11-20", Asked(NOTHING))

    known.refresh({KEY})

    (words,) = known.ask.calls
    assert words[0] == "squeue"
    assert {"-h", "-r", "--all", "--states=all", f"--user={os.getuid()}", "--name=tfio-a,tfio-b"} <= set(words)
    assert words[-2:] == ("-o", SQUEUE_FORMAT)


def test_the_accounting_is_asked_for_our_names_since_the_first_submission():
    known = Scheduler(Facts(SLURMDBD), ["tfio-a", "tfio-b"], "2026-11-20", Asked(NOTHING, NOTHING))

    known.refresh({KEY})
    known.refresh({KEY})

    words = known.ask.calls[1]
    assert words[0] == "sacct"
    assert {"-n", "-P", "-X", "--starttime=2026-11-20", "--name=tfio-a,tfio-b"} <= set(words)
    assert words[-2:] == ("-o", SACCT_FORMAT)


def test_of_a_task_that_nobody_was_asked_about_nothing_is_known():
    known = _scheduler()

    assert known.task(KEY) is None
    assert not known.doubtful(KEY)


def test_a_requeued_job_waits_whatever_the_accounting_says_of_its_earlier_life():
    known = _scheduler(NOTHING, f"70_1|PREEMPTED|0:0|n1|None|{FOLDER}", WAITING)

    known.refresh({KEY})
    known.refresh({KEY})
    before = _state(known)
    known.refresh({KEY})

    assert known.ask.programs == ["squeue", "sacct", "squeue"]
    assert (before, _state(known)) == ("PREEMPTED", "PENDING")


def test_the_accounting_is_left_in_peace_while_the_controller_lists_everything():
    known = _scheduler(WAITING, LISTED, LISTED)

    for _ in range(3):
        known.refresh({KEY})

    assert known.ask.programs == ["squeue"] * 3


def test_how_a_task_ended_that_the_controller_no_longer_lists_is_asked_at_the_next_look():
    known = _scheduler(LISTED, NOTHING, f"70_1|NODE_FAIL|1:0|n6|None|{FOLDER}")

    known.refresh({KEY})
    known.refresh({KEY})
    before = known.task(KEY), known.doubtful(KEY)
    known.refresh({KEY})

    assert before == (None, True)
    assert known.ask.programs == ["squeue", "squeue", "sacct"]
    assert known.task(KEY).end() == "NODE_FAIL, exit code 1 on n6"
    assert not known.doubtful(KEY)


def test_an_end_that_the_controller_still_lists_needs_no_other_witness():
    known = _scheduler(f"70|1|TIMEOUT|TimeLimit|n1|{FOLDER}")

    known.refresh({KEY})

    assert known.task(KEY).end() == "TIMEOUT on n1"


def test_the_last_of_several_lives_tells_the_end():
    known = _scheduler(NOTHING, f"70_1|PREEMPTED|0:0|n1|None|{FOLDER}\n70_1|COMPLETED|0:0|n2|None|{FOLDER}")

    known.refresh({KEY})
    known.refresh({KEY})

    assert known.task(KEY).end() == "COMPLETED on n2"


def test_one_unexplained_task_does_not_stop_the_others_from_being_seen():
    other = (FOLDER, 2)
    known = _scheduler(f"70|2|PENDING|Priority||{FOLDER}", NOTHING, f"70|2|RUNNING|None|n1|{FOLDER}")

    for _ in range(3):
        known.refresh({KEY, other})

    assert known.ask.programs == ["squeue", "sacct", "squeue"]
    assert _state(known, other) == "RUNNING"


@pytest.mark.parametrize("accounting", [f"70_1|RUNNING|0:0|n1|None|{FOLDER}", NOTHING, SILENCE])
def test_a_task_that_the_controller_forgot_is_lost_whatever_lives_on_in_the_accounting(clock, accounting):
    known = _scheduler(LISTED, NOTHING, accounting, NOTHING)
    known.refresh({KEY})
    known.refresh({KEY})
    known.refresh({KEY})
    before = _state(known)

    clock.now += 4.0
    known.refresh({KEY})

    assert known.ask.programs == ["squeue", "squeue", "sacct", "squeue"]
    assert (before, _state(known)) == (None, LOST)


def test_a_task_is_not_lost_by_one_answer_however_long_ago(clock):
    known = _scheduler(NOTHING, NOTHING)
    known.refresh({KEY})

    clock.now += 60.0
    known.refresh({KEY})

    assert known.ask.programs == ["squeue", "sacct"]
    assert known.task(KEY) is None


def test_a_task_is_not_lost_by_many_answers_within_four_seconds(clock):
    known = _scheduler(*[NOTHING] * 5, config=NO_ACCOUNTING)

    for seconds in (0.0, 1.0, 1.0, 1.9):
        clock.now += seconds
        known.refresh({KEY})
    before = _state(known)
    clock.now += 0.2
    known.refresh({KEY})

    assert (before, _state(known)) == (None, LOST)


def test_a_task_that_the_controller_lists_again_was_not_absent_before(clock):
    known = _scheduler(NOTHING, LISTED, NOTHING, NOTHING, config=NO_ACCOUNTING)
    known.refresh({KEY})
    clock.now += 60.0
    known.refresh({KEY})
    known.refresh({KEY})

    clock.now += 3.0
    known.refresh({KEY})

    assert known.task(KEY) is None
    assert known.doubtful(KEY)


def test_a_task_that_was_given_up_is_known_again_when_the_controller_lists_it(clock):
    known = _scheduler(NOTHING, NOTHING, LISTED, config=NO_ACCOUNTING)
    known.refresh({KEY})
    clock.now += 4.0
    known.refresh({KEY})
    before = _state(known)

    known.refresh({KEY})

    assert (before, _state(known)) == (LOST, "RUNNING")


def test_without_accounting_the_completion_log_tells_in_the_same_look(tmp_path):
    (tmp_path / "jobcomp.log").write_text(_ended("PREEMPTED") + _ended("NODE_FAIL") + _ended("COMPLETED", 2))
    known = _scheduler(NOTHING, config=_log(tmp_path / "jobcomp.log"))

    known.refresh({KEY})

    assert known.ask.programs == ["squeue"]
    assert known.task(KEY).end() == "NODE_FAIL on n1"


def test_what_the_completion_log_says_of_a_task_that_lives_is_not_believed(tmp_path):
    (tmp_path / "jobcomp.log").write_text(_ended("PREEMPTED"))
    known = _scheduler(WAITING, config=_log(tmp_path / "jobcomp.log"))

    known.refresh({KEY, (FOLDER, 2)})

    assert _state(known) == "PENDING"


def test_a_completion_log_that_is_large_is_read_from_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(scheduler, "_LOG_TAIL_BYTES", 300)
    (tmp_path / "jobcomp.log").write_text(_ended("NODE_FAIL", 2) + "x" * 300 + "\n" + _ended("TIMEOUT"))
    known = _scheduler(NOTHING, config=_log(tmp_path / "jobcomp.log"))

    known.refresh({KEY, (FOLDER, 2)})

    assert (_state(known), _state(known, (FOLDER, 2))) == ("TIMEOUT", None)


def test_a_completion_log_may_hold_bytes_that_are_no_text(tmp_path):
    (tmp_path / "jobcomp.log").write_bytes(b"JobId=1 Name=\xff\xfe\n" + _ended("TIMEOUT").encode())
    known = _scheduler(NOTHING, config=_log(tmp_path / "jobcomp.log"))

    known.refresh({KEY})

    assert _state(known) == "TIMEOUT"


@pytest.mark.parametrize("there", ["nothing", "a folder"])
def test_a_completion_log_that_cannot_be_read_is_no_error_and_tells_nothing(there, tmp_path, clock):
    if there == "a folder":
        (tmp_path / "jobcomp.log").mkdir()
    known = _scheduler(NOTHING, NOTHING, config=_log(tmp_path / "jobcomp.log"))

    known.refresh({KEY})
    before = _state(known)
    clock.now += 4.0
    known.refresh({KEY})

    assert (before, _state(known)) == (None, LOST)


def test_a_controller_that_is_silent_leaves_what_was_known_and_is_timed_from_its_first_silence(clock):
    known = _scheduler(LISTED, SILENCE, SILENCE, config=NO_ACCOUNTING)
    known.refresh({KEY})
    clock.now += 10.0
    known.refresh({KEY})

    clock.now += 30.0
    known.refresh({KEY})

    assert known.silent_since == 1010.0
    assert _state(known) == "RUNNING"


def test_nothing_is_lost_while_the_controller_is_silent(clock):
    known = _scheduler(NOTHING, SILENCE, SILENCE, config=NO_ACCOUNTING)

    for _ in range(3):
        known.refresh({KEY})
        clock.now += 60.0

    assert known.task(KEY) is None


def test_a_controller_that_answers_again_is_silent_no_longer(clock):
    known = _scheduler(WAITING, SILENCE, LISTED, config=NO_ACCOUNTING)
    known.refresh({KEY})
    known.refresh({KEY})
    before = known.silent_since

    known.refresh({KEY})

    assert (before, known.silent_since) == (1000.0, None)
    assert _state(known) == "RUNNING"


def test_while_the_controller_is_silent_it_and_the_accounting_are_asked_in_turn():
    known = _scheduler(SILENCE, NOTHING, SILENCE, NOTHING, LISTED, LISTED)

    for _ in range(6):
        known.refresh({KEY})

    assert known.ask.programs == ["squeue", "sacct", "squeue", "sacct", "squeue", "squeue"]


def test_while_the_controller_is_silent_the_accounting_tells_the_end_of_what_it_had_not_listed():
    known = _scheduler(SILENCE, f"70_1|FAILED|1:0|n1|None|{FOLDER}")

    known.refresh({KEY})
    known.refresh({KEY})

    assert known.silent_since is not None
    assert known.task(KEY).end() == "FAILED, exit code 1 on n1"


def test_while_the_controller_is_silent_what_the_accounting_calls_running_is_no_end():
    known = _scheduler(WAITING, SILENCE, f"70_1|RUNNING|0:0|n1|None|{FOLDER}")

    for _ in range(3):
        known.refresh({KEY})

    assert _state(known) == "PENDING"


def test_while_the_controller_is_silent_the_accounting_tells_the_end_of_what_ran_before():
    known = _scheduler(LISTED, SILENCE, f"70_1|COMPLETED|0:0|n1|None|{FOLDER}")

    for _ in range(3):
        known.refresh({KEY})

    assert _state(known) == "COMPLETED"


def test_what_the_accounting_told_in_the_silence_stands_when_the_controller_is_back_without_the_task():
    known = _scheduler(LISTED, SILENCE, f"70_1|COMPLETED|0:0|n1|None|{FOLDER}", NOTHING)

    for _ in range(4):
        known.refresh({KEY})

    assert known.silent_since is None
    assert _state(known) == "COMPLETED"


@pytest.mark.parametrize("config", [SLURMDBD, "log"])
def test_a_job_with_our_number_and_index_in_another_folder_is_not_ours(config, clock, tmp_path):
    other = "/home/me/elsewhere/workers/second-0"
    (tmp_path / "jobcomp.log").write_text(_ended("FAILED", folder=other))
    foreign = f"70|1|RUNNING|None|n1|{other}"
    answers = [foreign, f"70_1|FAILED|1:0|n1|None|{other}"] if config == SLURMDBD else [foreign]
    known = _scheduler(*answers, foreign, config=config if config == SLURMDBD else _log(tmp_path / "jobcomp.log"))
    for _ in answers:
        known.refresh({KEY})
    before = _state(known)

    clock.now += 4.0
    known.refresh({KEY})

    assert (before, _state(known)) == (None, LOST)


@pytest.mark.parametrize("state", ["NODE_FAIL", "PREEMPTED", "BOOT_FAIL"])
def test_while_the_controller_is_silent_an_end_after_which_slurm_begins_again_is_none(state):
    known = _scheduler(SILENCE, f"70_1|{state}|0:0|n1|None|{FOLDER}", WAITING)
    known.refresh({KEY})
    known.refresh({KEY})
    before = known.task(KEY)

    known.refresh({KEY})

    assert before is None
    assert _state(known) == "PENDING"


def test_an_end_after_which_slurm_begins_again_counts_when_the_controller_is_back_without_the_task():
    known = _scheduler(SILENCE, f"70_1|NODE_FAIL|1:0|n6|None|{FOLDER}", NOTHING)

    for _ in range(3):
        known.refresh({KEY})

    assert known.task(KEY).end() == "NODE_FAIL, exit code 1 on n6"
