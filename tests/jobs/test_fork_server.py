"""A run in a process of its own: whatever it does, its figures or its end come back, and nothing stays behind."""

# ruff: noqa: SLF001 - the parts are tested one by one

import contextlib
import os
import resource
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from campaign.errors import EnvironmentFaultError
from campaign.worker.runner import Template
from jobs.model.codes import run_end_sentence
from tests.jobs.jobs_factory import ROOT, eventually

KILLS = (signal.SIGKILL, signal.SIGTERM, signal.SIGABRT, signal.SIGSEGV)
OWNER = """
import sys
from pathlib import Path
from campaign.worker import runner
from campaign.worker.runner import Template
template = Template(Path(sys.argv[1]), ("tests.jobs.plain_jobs",))
try:
    template.run({"pids": sys.argv[2]}, Path(sys.argv[3]), 600, job="tests.jobs.plain_jobs:hang")
finally:
    template.close()
"""


@pytest.fixture(scope="module")
def light(tmp_path_factory):
    """A template without TensorFlow; a test that kills it leaves one to the next that starts again."""
    template = Template(tmp_path_factory.mktemp("light") / "template.log", ("tests.jobs.plain_jobs:short_grace",))
    yield template
    template.close()


@pytest.fixture
def log(tmp_path):
    return tmp_path / "run.log"


@pytest.fixture
def ask(light, log):
    def run(function, timeout_s=30.0, into=log, **argument):
        return light.run(argument, into, timeout_s, job=f"tests.jobs.plain_jobs:{function}")

    return run


def gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def numbers(file):
    assert eventually(file.exists)
    return [int(word) for word in file.read_text().split()]


def template_pid(light):
    return light._process.pid


@pytest.mark.parametrize("value", [{"nested": [1, 2.5, None, "ü"]}, "x" * 5_000_000], ids=["nested", "large"])
def test_the_result_of_a_run_comes_back(ask, value):
    answer = ask("echo", value=value)

    assert answer["value"] == value
    assert answer["elapsed_s_with_fork"] > 0


def test_each_run_is_a_process_of_its_own_that_sees_no_state_of_another(ask, light):
    pids = [ask("pid")["value"] for _ in range(2)]

    assert [ask("use_state")["value"] for _ in range(3)] == [1, 1, 1]
    assert ask("frozen")["value"] > 10_000  # objects that a collection leaves alone
    assert len({*pids, template_pid(light), os.getpid()}) == 4
    assert eventually(lambda: all(map(gone, pids)))


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"function": "leave", "code": 3}, "ended with exit code 3"),
        ({"function": "leave", "code": 0}, "ended"),
        ({"function": "no_such_function"}, "AttributeError"),
        ({"function": "fail"}, "ended with exit code 1: ValueError: on purpose"),
        *(({"function": "die", "signal": int(n)}, f"killed by signal {int(n)} ({n.name})") for n in KILLS),
    ],
    ids=str,
)
def test_a_run_without_a_result_has_failed_and_tells_how_it_ended(ask, light, log, asked, reason):
    ask("echo", value=1)
    before = template_pid(light)

    answer = ask(**asked)

    assert answer["status"] == "failed"
    assert reason in run_end_sentence(answer["end"])
    assert "ValueError" not in reason or answer["log_tail"].endswith("ValueError: on purpose")
    assert ("Traceback (most recent call last)" in log.read_text()) == ("Error" in reason)
    assert ask("echo", value=1)["value"] == 1
    assert template_pid(light) == before


def test_a_result_that_is_too_large_ends_as_a_sentence_with_its_size_and_several_large_ones_come(ask, light, tmp_path):
    limit, around = 15 << 20, len('{"result": {"value": ""}}')

    ends = [run_end_sentence(ask("large", size=size)["end"]) for size in (limit - around + 1, 20_000_000)]
    logs = [tmp_path / f"{number}.log" for number in range(2)]
    largest = [{"size": limit - around}] * 2
    outcomes = light.run_together(largest, logs, 60, job="tests.jobs.plain_jobs:large")

    assert ends == [
        f"its result has {size:,} bytes of JSON, and 15,728,640 are allowed"
        for size in (limit + 1, 20_000_000 + around)
    ]
    assert [len(each.run["value"]) for each in outcomes] == [limit - around] * 2


def test_a_run_past_its_limit_is_killed_with_its_own_children(ask, tmp_path):
    answer = ask("hang", timeout_s=1.0, pids=str(tmp_path / "pids"))

    assert answer["status"] == "failed"
    assert answer["end"] == {"code": "timed_out", "seconds": 1.0}
    assert eventually(lambda: all(gone(pid) for pid in numbers(tmp_path / "pids")))


def test_what_a_run_prints_is_in_its_log_and_never_in_the_protocol(ask, light, tmp_path):
    logs = [tmp_path / f"{number}.log" for number in range(3)]

    answer = ask("chatter", into=tmp_path / "missing" / "run.log")  # one that cannot be opened costs no run
    outcomes = light.run_together([{}] * 3, logs, 30, job="tests.jobs.plain_jobs:chatter")

    assert answer["value"] == ""  # standard input is empty, not the requests
    assert [each.run["value"] for each in outcomes] == [""] * 3
    for text in (log.read_text() for log in logs):
        assert [text.count(words) for words in ("forged", "straight to the descriptor", "to stderr")] == [1, 1, 1]


def test_killing_the_template_kills_its_run_and_the_next_run_works(ask, light, tmp_path):
    ask("pid")
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(ask, "hang", pids=str(tmp_path / "pids"), timeout_s=60)
        run, child = numbers(tmp_path / "pids")
        os.kill(template_pid(light), signal.SIGKILL)

        assert answer.result(timeout=30)["end"] == {"code": "template_killed"}
    assert eventually(lambda: gone(run))
    os.kill(child, signal.SIGKILL)  # a run's own children outlive a template that was killed
    assert ask("echo", value=1)["value"] == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["it closes the template", "it cannot"])
def test_an_owner_that_ends_leaves_no_run_under_way(tmp_path, number):
    run, child = owner_that_gets(number, tmp_path)
    try:
        assert eventually(lambda: gone(run))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)  # a run's own children outlive a template that was killed


def owner_that_gets(number, tmp_path):
    """Start a process that owns a template with a run under way, and end it with a signal."""
    words = [str(tmp_path / name) for name in ("template.log", "pids", "run.log")]
    command = [sys.executable, "-c", OWNER, *words]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as owner:
        run, child = numbers(tmp_path / "pids")
        template = psutil.Process(run).ppid()
        assert psutil.Process(template).ppid() == owner.pid
        owner.send_signal(number)
    assert eventually(lambda: gone(template))
    return run, child


def test_where_one_of_several_is_killed_the_others_are_ended_and_say_so(light, tmp_path):
    arguments = [{"pids": str(tmp_path / "0")}, {"pids": str(tmp_path / "1"), "signal": int(signal.SIGKILL)}]
    logs = [tmp_path / f"{number}.log" for number in range(2)]

    outcomes = light.run_together(arguments, logs, 60, job="tests.jobs.plain_jobs:hang_or_die")

    assert [each.failed_with_another for each in outcomes] == [True, False]
    assert outcomes[0].run["end"] == {"code": "rank_failed"}
    assert outcomes[1].run["end"] == {"code": "killed", "number": 9}
    assert eventually(lambda: all(gone(pid) for pid in numbers(tmp_path / "0")))


def test_a_module_that_cannot_be_imported_is_a_fault_of_the_environment(tmp_path):
    template = Template(tmp_path / "template.log", ("no_such_module_of_ours",))

    with pytest.raises(EnvironmentFaultError, match="no_such_module_of_ours"):
        template.run({}, tmp_path / "run.log", 5, job="json:loads")
    assert "ModuleNotFoundError" in (tmp_path / "template.log").read_text()


@pytest.mark.parametrize("kind", ["symbolic", "hard"])
def test_a_link_in_the_place_of_a_log_is_replaced_and_what_it_leads_to_is_left_alone(ask, tmp_path, kind):
    private, log = tmp_path / "private", tmp_path / "run.log"
    private.write_text("of the user alone")
    if kind == "symbolic":
        log.symlink_to(private)
    else:
        log.hardlink_to(private)

    ask("chatter", into=log)

    assert private.read_text() == "of the user alone"
    assert log.read_text() != "of the user alone"
    assert not log.is_symlink()
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_run_that_dies_leaves_no_core_with_its_secrets_where_it_ran(tmp_path, monkeypatch):
    if not Path("/proc/sys/kernel/core_pattern").read_text(encoding="ascii").startswith("core"):
        pytest.skip("this machine writes cores elsewhere, or hands them to a program")
    before = resource.getrlimit(resource.RLIMIT_CORE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    template = Template(tmp_path / "template.log", ("tests.jobs.plain_jobs",))
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    try:
        run = template.run({"signal": signal.SIGSEGV}, tmp_path / "run.log", 30.0, "tests.jobs.plain_jobs:die")
    finally:
        template.close()
        resource.setrlimit(resource.RLIMIT_CORE, before)

    assert run["end"] == {"code": "killed", "number": 11}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("core")] == []
