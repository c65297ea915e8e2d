import os

import pytest

from campaign.slurm import scheduler
from campaign.slurm.client import Facts
from campaign.slurm.scheduler import Scheduler
from campaign.slurm.task import SACCT_FORMAT, SQUEUE_FORMAT
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


class Asked:
    """Answers from a list, one a call; the calls are kept."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.calls = []

    def __call__(self, *words):
        self.calls.append(words)
        answer = self.answers.pop(0)
        return answer if answer is None or words[0] != "squeue" else f"{SQUEUE_HEAD}\n{answer}"

    @property
    def programs(self):
        return [words[0] for words in self.calls]


@pytest.fixture(autouse=True)
def time(clock):
    return clock(scheduler)


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


def test_a_look_is_one_question_however_many_tasks_there_are_or_ends_are_to_be_explained():
    keys = {(FOLDER, index) for index in range(500)}
    running = "\n".join(f"70|{index}|RUNNING|None|n1|{FOLDER}" for index in range(500))
    failed = "\n".join(f"70_{index}|FAILED|1:0|n1|None|{FOLDER}" for index in range(500))
    known = _scheduler(running, NOTHING, failed)
    seen = []

    for _ in range(3):
        known.refresh(keys)
        seen.append({_state(known, key) for key in keys})

    assert known.ask.programs == ["squeue", "squeue", "sacct"]
    assert seen == [{"RUNNING"}, {None}, {"FAILED"}]


def test_the_controller_and_then_the_accounting_are_asked_for_our_jobs_by_name_task_by_task():
    known = Scheduler(Facts(SLURMDBD), ["tfio-a", "tfio-b"], "2026-11-20", Asked(NOTHING, NOTHING))

    known.refresh({KEY})
    known.refresh({KEY})

    controller, accounting = known.ask.calls
    mine = (f"--user={os.getuid()}", "--name=tfio-a,tfio-b", "-o")
    assert controller == ("squeue", "-r", "--all", "--states=all", *mine, SQUEUE_FORMAT)
    user, names, format_ = mine
    assert accounting == ("sacct", "-n", "-P", "-X", user, "--starttime=2026-11-20", names, format_, SACCT_FORMAT)


def _sacct(state):
    return f"70_1|{state}|1:0|n1|None|{FOLDER}"


# Seconds since the look before, who is asked, the answer, and the state that is known then.
STORIES = {
    "a requeued job waits whatever the accounting says of its earlier life": [
        (0, "squeue", NOTHING, None), (0, "sacct", _sacct("PREEMPTED"), "PREEMPTED"), (0, "squeue", WAITING, "PENDING"),
    ],
    "the accounting is left in peace while the controller lists everything": [
        (0, "squeue", WAITING, "PENDING"), (0, "squeue", LISTED, "RUNNING"), (0, "squeue", LISTED, "RUNNING"),
    ],
    "how a task ended that the controller no longer lists is asked at the next look": [
        (0, "squeue", LISTED, "RUNNING"), (0, "squeue", NOTHING, None), (0, "sacct", _sacct("NODE_FAIL"), "NODE_FAIL"),
    ],
    "an end that the controller still lists needs no other witness": [
        (0, "squeue", f"70|1|TIMEOUT|TimeLimit|n1|{FOLDER}", "TIMEOUT"),
    ],
    "the last of several lives tells the end": [
        (0, "squeue", NOTHING, None), (0, "sacct", f"{_sacct('PREEMPTED')}\n{_sacct('COMPLETED')}", "COMPLETED"),
    ],
    "a task is not lost by one answer however long ago": [
        (0, "squeue", NOTHING, None), (60, "sacct", NOTHING, None), (0, "squeue", NOTHING, "LOST"),
    ],
    "a task that was given up is known again when the controller lists it": [
        (0, "squeue", NOTHING, None), (0, "sacct", NOTHING, None), (4, "squeue", NOTHING, "LOST"),
        (0, "squeue", LISTED, "RUNNING"),
    ],
    "a task that the controller lists again was not absent before": [
        (0, "squeue", NOTHING, None), (60, "sacct", NOTHING, None), (0, "squeue", LISTED, "RUNNING"),
        (0, "squeue", NOTHING, None), (3, "sacct", NOTHING, None), (0, "squeue", NOTHING, None),
    ],
    "nothing is lost while the controller is silent": [
        (0, "squeue", NOTHING, None), (60, "sacct", NOTHING, None), (60, "squeue", SILENCE, None),
    ],
    "while the controller is silent it and the accounting are asked in turn": [
        (0, "squeue", SILENCE, None), (0, "sacct", NOTHING, None), (0, "squeue", SILENCE, None),
        (0, "sacct", NOTHING, None), (0, "squeue", LISTED, "RUNNING"), (0, "squeue", LISTED, "RUNNING"),
    ],
    "in the silence the accounting tells the end of what had not been listed": [
        (0, "squeue", SILENCE, None), (0, "sacct", _sacct("FAILED"), "FAILED"),
    ],
    "in the silence what the accounting calls running is no end": [
        (0, "squeue", WAITING, "PENDING"), (0, "squeue", SILENCE, "PENDING"),
        (0, "sacct", _sacct("RUNNING"), "PENDING"),
    ],
    "what the accounting told in the silence stands when the controller is back without the task": [
        (0, "squeue", LISTED, "RUNNING"), (0, "squeue", SILENCE, "RUNNING"),
        (0, "sacct", _sacct("COMPLETED"), "COMPLETED"), (0, "squeue", NOTHING, "COMPLETED"),
    ],
    **{
        f"in the silence {state}, after which Slurm begins again, is no end": [
            (0, "squeue", SILENCE, None), (0, "sacct", _sacct(state), None), (0, "squeue", WAITING, "PENDING"),
        ]
        for state in ("NODE_FAIL", "PREEMPTED", "BOOT_FAIL")
    },
    "an end after which Slurm begins again counts when the controller is back without the task": [
        (0, "squeue", SILENCE, None), (0, "sacct", _sacct("NODE_FAIL"), None), (0, "squeue", NOTHING, "NODE_FAIL"),
    ],
    **{
        f"a task that the controller forgot is lost whatever the accounting says: {says}": [
            (0, "squeue", LISTED, "RUNNING"), (0, "squeue", NOTHING, None), (0, "sacct", answer, None),
            (4, "squeue", NOTHING, "LOST"),
        ]
        for says, answer in {"it runs": _sacct("RUNNING"), "nothing": NOTHING, "no answer": SILENCE}.items()
    },
    "a job with our number and index in another folder is not ours": [
        (0, "squeue", LISTED.replace(FOLDER, OTHER), None), (0, "sacct", _sacct("FAILED").replace(FOLDER, OTHER), None),
        (4, "squeue", LISTED.replace(FOLDER, OTHER), "LOST"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("looks", STORIES.values(), ids=STORIES)
def test_what_is_known_of_a_task_after_each_look(looks, time):
    known = _scheduler(*(answer for _, _, answer, _ in looks))

    for after_s, program, _, state in looks:
        time.now += after_s
        known.refresh({KEY})

        assert (known.ask.programs[-1], _state(known)) == (program, state)
        if known.silent_since is None:
            assert known.doubtful(KEY) is (state is None)

    assert len(known.ask.programs) == len(looks)


def test_one_unexplained_task_does_not_stop_the_others_from_being_seen():
    other = (FOLDER, 2)
    known = _scheduler(f"70|2|PENDING|Priority||{FOLDER}", NOTHING, f"70|2|RUNNING|None|n1|{FOLDER}")

    for _ in range(3):
        known.refresh({KEY, other})

    assert known.ask.programs == ["squeue", "sacct", "squeue"]
    assert _state(known, other) == "RUNNING"


@pytest.mark.parametrize("log", [None, "nothing", "a folder"])
def test_a_task_is_lost_when_four_seconds_of_answers_lack_it_whatever_log_cannot_be_read(log, time, tmp_path):
    if log == "a folder":
        (tmp_path / "jobcomp.log").mkdir()
    known = _scheduler(*[NOTHING] * 5, config=_log(tmp_path / "jobcomp.log") if log else NO_ACCOUNTING)
    states = []

    for seconds in (0.0, 1.0, 1.0, 1.9, 0.1):
        time.now += seconds
        known.refresh({KEY})
        states.append(_state(known))

    assert states == [None] * 4 + ["LOST"]


def test_without_accounting_the_completion_log_tells_in_the_same_look_of_ours_that_live_no_more(tmp_path):
    (tmp_path / "jobcomp.log").write_text(
        _ended("FAILED", 3).replace("JobId=71 ", "JobId=71 UserId=nobody(65534) ")  # in a folder of ours
        + _ended("PREEMPTED") + _ended("NODE_FAIL") + _ended("COMPLETED", 2) + _ended("FAILED", folder=OTHER)
    )  # fmt: skip
    known = _scheduler(WAITING.replace("70|1", "70|4"), config=_log(tmp_path / "jobcomp.log"))

    known.refresh({(FOLDER, index) for index in range(1, 5)})

    assert known.ask.programs == ["squeue"]
    assert known.task(KEY).end() == {"code": "NODE_FAIL", "node": "n1"}
    assert [_state(known, (FOLDER, index)) for index in (2, 3, 4)] == ["COMPLETED", None, "PENDING"]


def test_what_the_completion_log_says_of_a_task_that_lives_is_not_believed(tmp_path):
    (tmp_path / "jobcomp.log").write_text(_ended("PREEMPTED"))
    known = _scheduler(WAITING, config=_log(tmp_path / "jobcomp.log"))

    known.refresh({KEY, (FOLDER, 2)})

    assert _state(known) == "PENDING"


def test_a_completion_log_that_is_large_is_read_from_its_end_and_may_hold_what_is_no_text(tmp_path, monkeypatch):
    monkeypatch.setattr(scheduler, "_LOG_TAIL_BYTES", 300)
    noise = b"x" * 300 + b"\nJobId=1 Name=\xff\xfe\n"
    (tmp_path / "jobcomp.log").write_bytes(_ended("NODE_FAIL", 2).encode() + noise + _ended("TIMEOUT").encode())
    known = _scheduler(NOTHING, config=_log(tmp_path / "jobcomp.log"))

    known.refresh({KEY, (FOLDER, 2)})

    assert (_state(known), _state(known, (FOLDER, 2))) == ("TIMEOUT", None)


def test_a_controller_that_is_silent_leaves_what_was_known_and_is_timed_from_its_first_silence(time):
    known = _scheduler(LISTED, SILENCE, SILENCE, config=NO_ACCOUNTING)
    known.refresh({KEY})
    time.now += 10.0
    known.refresh({KEY})

    time.now += 30.0
    known.refresh({KEY})

    assert known.silent_since == 1010.0
    assert _state(known) == "RUNNING"
