"""`python -m campaign stall` as a user speaks it."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from campaign.cli import stall
from campaign.stall.stall_answer import Outcome
from jobs.judging.difference import Difference
from jobs.system import page_cache
from tests.jobs.jobs_factory import eventually

QUIET = ("checks.other_cpu_max=1000", "checks.other_device_max=1", "checks.delayed_max=1", "checks.stolen_max=1000",
         "checks.time_error_max=0.2", "storage.exclusive=none")  # fmt: skip
READ = "import pathlib, sys\nfor each in pathlib.Path(sys.argv[1]).iterdir(): each.read_bytes()\nprint('hello')\n"


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.bin").write_bytes(os.urandom(1 << 20))
    page_cache.sync(folder)
    (tmp_path / "read.py").write_text(READ)
    return folder


def test_cold_and_warm_runs_take_turns_and_a_campaign_remains(command, data, tmp_path):
    words = ("stall", "--data", "data", "--runs", "5", "--json", *QUIET, "--", sys.executable, "read.py", "{data}")

    done = command(*words)

    found = json.loads(done.stdout)
    (program,) = found["programs"]
    assert done.returncode == 0, done.stderr
    assert (program["cold"]["runs"], program["warm"]["runs"], program["whole"]["pairs"]) == (5, 5, 5)
    assert program["cold"]["disk_bytes"] >= 4 << 20 > 20 * program["warm"]["disk_bytes"]
    assert (tmp_path / "stall" / "report.html").exists()
    assert "hello" in next((tmp_path / "stall" / "records").glob("*/run-1.log")).read_text()

    again = command(*(word for word in words if word != "--json"))

    assert "nothing to run: 2 of 2 cells are done" in again.stderr
    assert "cold, 5 runs" in again.stdout


def test_with_cold_alone_each_run_is_told_to_be_cold_or_not(command, data):
    cold = command("stall", "--cold", "--runs", "2", "--data", "data", *QUIET, "--", "cat", "data/0.bin", "data/1.bin")
    other = command("stall", "--cold", "--runs", "1", "--data", "data", "campaign_dir=b", *QUIET, "--", "true")

    assert cold.returncode == 0, cold.stderr
    assert cold.stdout.count("  yes") == 2
    assert other.returncode == 1
    assert "NO    reads_data" in other.stdout


def test_a_program_that_fails_is_told_with_its_last_line(command, data):
    done = command("stall", "--data", "data", *QUIET, "--", sys.executable, "-c", "raise SystemExit('no GPU')")

    assert done.returncode == 1
    assert "ended with exit code 1: no GPU" in done.stderr
    assert "too few valid pairs" in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--data", "data"), "no program"),
        (("--", "true"), "--data DIR names"),
        (("--data", "data", "grid", "--", "true"), "'grid' is neither an option nor KEY=VALUE"),
        (("--data", "data", "--within", "3x", "--", "true"), "3x is no share"),
        (("--data", "data", "--runs", "0", "--", "true"), "0 is not 1 or more"),
        (("--data", "data", "thread=1", "--", "true"), "thread"),
    ],
)
def test_wrong_words_start_nothing(words, says, command, data, tmp_path):
    done = command("stall", *words)

    assert done.returncode == 2
    assert says in done.stderr
    assert not (tmp_path / "stall").exists()


def _of(pairs, low=0.2, high=0.3):
    found = Difference(pairs, 10.0, 7.0, (2.0, 3.0), (low, high))
    return [Outcome("p", None, None, found, None, 0, None)]


@pytest.mark.parametrize(
    ("found", "runs", "within", "more"),
    [
        (_of(5), 5, None, 0),
        (_of(5), 5, 0.05, 0),
        (_of(5), 5, 0.04, 5),
        (_of(9), 10, 0.04, 10),
        (_of(14), 15, 0.04, 5),  # --most
        (_of(20), 20, 0.04, 0),
        (_of(3), 5, None, 2),  # two do not count
        (_of(2), 2, None, 0),  # as many as were asked for
        (_of(5), 20, 0.04, 0),
    ],
)
def test_pairs_are_added_for_those_that_do_not_count_and_until_the_share_is_known(found, runs, within, more):
    assert stall._more_runs(found, runs, within, 20) == more  # noqa: SLF001


def test_the_campaign_goes_on_with_the_runs_that_are_added(monkeypatch, data):
    asked = []
    monkeypatch.setattr(stall, "_campaign", lambda words, **_: asked.append(words) or (None, 0))
    monkeypatch.setattr(stall, "_found", lambda *_: _of(5 if len(asked) == 1 else 10, high=0.4 / len(asked)))
    monkeypatch.setattr(stall, "_print", lambda *_, **__: None)

    assert stall.main(["--data", str(data), "--within", "3%", "--", "true"]) == 0
    assert [next(word for word in words if word.startswith("runs=")) for words in asked] == ["runs=6", "runs=11"]


def test_without_data_they_are_found_in_a_first_run(command, data, tmp_path):
    words = ("stall", "--runs", "5", *QUIET, "--", sys.executable, "read.py", "data")

    refused = command(*words)
    done = command("stall", "--yes", "--cold", *words[1:])

    assert (refused.returncode, done.returncode) == (2, 0), done.stderr
    assert "nobody can be asked" in refused.stderr
    assert f"{data}  4 files  4.2 MB" in done.stderr
    assert (tmp_path / "stall.files").read_text() == "0.bin\n1.bin\n2.bin\n3.bin\n"
    assert done.stdout.count("  yes") == 5


def test_data_that_do_not_fit_into_memory_are_refused_before_anything_runs(command, data, tmp_path):
    with (data / "large").open("wb") as file:
        file.truncate(1 << 40)

    done = command("stall", "--data", "data", "--", "true")

    assert done.returncode == 3
    assert "they cannot be warm" in done.stderr
    assert not (tmp_path / "stall" / "records").exists()


def test_ctrl_c_ends_the_program_and_the_same_command_goes_on(command, data, tmp_path):
    (tmp_path / "read.py").write_text(
        "import os, pathlib, sys, time\n"
        "for each in pathlib.Path(sys.argv[1]).iterdir(): each.read_bytes()\n"
        "if not pathlib.Path('quick').exists():\n"
        "    if os.fork() == 0: os.setsid()\n"
        "    open('pids', 'a').write(f'{os.getpid()}\\n'); time.sleep(600)\n"
    )
    words = ("stall", "--cold", "--runs", "1", "--data", "data", *QUIET, "--", sys.executable, "read.py", "{data}")
    front = command.start(*words)
    try:
        assert eventually(lambda: (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == 2)
        front.send_signal(signal.SIGINT)
        _, told = front.communicate(timeout=60)
    finally:
        front.kill()
        front.communicate()

    assert "stopped; what was measured is kept" in told
    pids = (tmp_path / "pids").read_text().split()
    assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))

    (tmp_path / "quick").touch()
    done = command(*words)

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("  yes") == 1
