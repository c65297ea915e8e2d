"""`python -m campaign stall` as a user speaks it."""

import contextlib
import io
import json
import os
import shlex
import signal
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock, patch

import pytest

from campaign.__main__ import run_guarded
from campaign.cli import stall
from campaign.stall import stall_answer
from campaign.stall.stall_answer import ColdWarmComparison
from jobs.judging.intervals import MedianDifference
from jobs.system import page_cache
from tests.jobs.jobs_factory import eventually
from tests.judged import records_of

QUIET = ("checks.other_cpu_max=1000", "checks.other_device_max=1", "checks.delayed_max=1", "checks.stolen_max=1000",
         "checks.time_error_max=0.2", "storage.exclusive=none")  # fmt: skip
READ = "import pathlib, sys\nfor each in pathlib.Path(sys.argv[1]).iterdir(): each.read_bytes()\nprint('hello')\n"
PROFILED = ("stall", "--cold", "--profile", "--runs", "1", "--data", "data", *QUIET)
PROGRAM = ("--", sys.executable, "read.py", "data")


def make_data(folder):
    """Make four files of data, which are on the disk, and a program that reads them; return the data's folder."""
    data = folder / "data"
    data.mkdir()
    for number in range(4):
        (data / f"{number}.bin").write_bytes(os.urandom(1 << 20))
    page_cache.sync_file_system(data)
    (folder / "read.py").write_text(READ)
    return data


class InProcess:
    """`python -m campaign` in this process, in a folder, with the worker here, too, and without the report."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, *words):
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            patch("campaign.cli.run.write_report", lambda *_, **__: 0),
        ):
            code = run_guarded([words[0], *["cluster=debug"] * (words[0] == "stall"), *words[1:]])
        return SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())


def statuses(campaign):
    """Return how the measured runs of a campaign ended."""
    return [run["status"] for record in records_of(campaign) for run in record["runs"] if run["role"] == "measured"]


@pytest.fixture
def data(tmp_path):
    return make_data(tmp_path)


@pytest.fixture
def here(tmp_path):
    return InProcess(tmp_path)


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    """A cold and a profiled run of the program: how to give more commands there, and what it printed."""
    folder = tmp_path_factory.mktemp("profiled")
    make_data(folder)
    call = InProcess(folder)
    return call, call(*PROFILED, *PROGRAM)


def test_cold_and_warm_runs_take_turns_and_a_campaign_remains(command, here, data, tmp_path):
    words = ("stall", "--data", "data", "--runs", "5", "--json", *QUIET, "--", sys.executable, "read.py", "{data}")

    done = command(*words)

    answer = json.loads(done.stdout)
    (program,) = answer["programs"]
    assert done.returncode == 0, done.stderr
    numbers = [program["cold"]["runs"], program["warm"]["runs"], program["whole"]["pairs"]]
    # A run that a busy machine made invalid is made up for by one more pair: a kind may have more runs than pairs.
    assert numbers == [5, 5, 5] or (min(numbers) >= 5 and "invalid" in statuses(tmp_path / "stall"))
    assert program["cold"]["disk_bytes"] >= 4 << 20 > 20 * program["warm"]["disk_bytes"]
    assert (tmp_path / "stall" / "report.html").exists()

    again = here(*(word for word in words if word != "--json"))

    assert "nothing to run: 2 of 2 cells are done" in again.stderr
    assert f"cold, {program['cold']['runs']} runs" in again.stdout


def test_with_cold_alone_each_run_is_told_to_be_cold_or_not(here, data, tmp_path):
    cold = here(
        "stall", "--cold", "--runs", "2", "--data", "data", *QUIET[:-1], "--", "cat", "data/0.bin", "data/1.bin"
    )
    other = here("stall", "--cold", "--runs", "1", "--data", "data", "campaign_dir=b", *QUIET, "--", "true")

    assert cold.returncode == 0, cold.stderr
    assert cold.stdout.count("  yes") == 2
    assert sorted(path.name for path in data.iterdir()) == ["0.bin", "1.bin", "2.bin", "3.bin"]  # and no lock of ours
    (record,) = (tmp_path / "stall" / "records").glob("*/record.json")
    assert {run["exclusive"]["how"] for run in json.loads(record.read_text())["runs"]} == {"lock"}
    assert other.returncode == 1
    assert "NO    reads_data" in other.stdout


def test_a_profile_is_a_run_of_its_own_whose_calls_stand_below_the_answer(profiled):
    call, done = profiled
    plan = call(*shlex.split(done.stdout.splitlines()[-1].partition("python -m campaign ")[2])[:-1], str(call.folder))
    answer = json.loads(call(*PROFILED, "--json", *PROGRAM).stdout)

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("  yes") == 1  # of those that count, and not of the profiled one
    assert {run["cold"] for run in answer["runs"]} == {True}
    assert "calls in one more cold run: 4 opens of 4 files of the data, 8 reads of 4 MB for 4 MB that" in done.stdout
    assert "small reads: 50% gave at most 10 KiB, 50% at most 100 B" in done.stdout
    assert (
        "order of reads: 50% continue where the last read ended, 0% skip ahead, all others start again or go back"
        in done.stdout
    )
    assert plan.returncode == 0, plan.stderr
    assert "1 profiled runs, 4 files, 4.2 MB" in plan.stdout
    assert [calls["opens"] for calls in answer["calls"]] == [4]


def test_old_runs_do_not_stand_for_data_or_a_program_that_changed(profiled):
    call, _ = profiled
    words = ("stall", "--cold", "--runs", "1", "--data", "data", *QUIET, *PROGRAM)
    program, new = call.folder / "read.py", call.folder / "data" / "new.bin"
    before = program.stat()
    refusals = {}

    program.write_text(READ)
    refusals["read.py"] = call(*words)
    os.utime(program, ns=(before.st_atime_ns, before.st_mtime_ns))
    new.write_text(READ)
    refusals[f"{call.folder / 'data'}"] = call(*words)
    new.unlink()
    assert call(*words).returncode == 0  # nothing is changed any more
    (call.folder / "data" / "0.bin").write_text(READ)
    changed = call(*words)
    again = call("stall", "redo=true", *words[1:])

    for what, refused in [*refusals.items(), (f"{call.folder / 'data'}", changed)]:
        assert refused.returncode == 2
        assert f"was measured before {what} changed" in refused.stderr
    assert again.returncode == 0, again.stderr


def test_where_a_profile_sees_nothing_it_says_so_and_there_is_none_where_no_run_counts(here, data):
    mapped = (
        "import mmap, pathlib\nfor each in pathlib.Path('data').iterdir():\n"
        "    with each.open() as file: mmap.mmap(file.fileno(), 0, prot=1).read()"
    )

    done = here(*PROFILED, "--", sys.executable, "-c", mapped)
    failed = here(*PROFILED, "campaign_dir=b", "--", "false")

    assert "0 reads of 0 MB for 4 MB that came into memory" in done.stdout, done.stderr
    assert "no read was seen: the program may map its files into memory" in done.stdout
    assert failed.returncode == 1
    assert "calls" not in failed.stdout


def test_a_program_that_fails_is_told_with_its_last_line_and_status_names_the_same_command(here, data):
    words = ["stall", "--runs", "2", "--data", "data", *QUIET, "--", sys.executable, "-c", "raise SystemExit('no GPU')"]
    done = here(*words)

    assert done.returncode == 1
    assert "ended with exit code 1: no GPU" in done.stderr
    assert "too few valid pairs" in done.stdout
    same = here("status", "stall").stderr.splitlines()[-1]
    assert same.startswith("  python -m campaign stall ")
    assert same.endswith(shlex.join(words[1:]))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--data", "data"), "no program is named"),
        (("--", "true"), "name the data of the program: --data DIR"),
        (("--data", "data", "grid", "--", "true"), "'grid' is neither a flag nor KEY=VALUE"),
        (("--data", "data", "--within", "3x", "--", "true"), "3x is no share"),
        (("--data", "data", "--runs", "0", "--", "true"), "0 is not a whole number of 1 or more"),
        (("--data", "data", "thread=1", "--", "true"), "thread"),
        (("--data", ".", "--", "true"), "stall would lie in the data"),
        (("--data", "data", "--cold", "--within", "3%", "--", "true"), "--cold measures only cold runs"),
        (("--data", "data", "--most", "3", "--", "true"), "--most 3 is less than --runs 5"),
        (("--data", "", "--", "true"), "an empty text names no folder and no file"),
        (("--data", "data", "cache=cold", "--", "true"), "--cold measures only cold runs"),
        (("--data", "data/0.bin", "--data", "data/1.bin", "--", "cat", "{data}"), "stands for one --data"),
    ],
)
def test_wrong_words_start_nothing(words, says, here, data, tmp_path):
    done = here("stall", *words)

    assert done.returncode == 2
    assert says in done.stderr
    assert not (tmp_path / "stall").exists()


def test_data_in_memory_are_refused_for_they_are_never_cold(here, tmp_path):
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        done = here("stall", "--data", file.name, "--", "cat", file.name)

    assert done.returncode == 3
    assert f"{file.name} lies in memory (tmpfs)" in done.stderr
    assert not (tmp_path / "stall").exists()


def _of(pairs, low=0.2, high=0.3):
    found = MedianDifference(pairs, 10.0, 7.0, (2.0, 3.0), (low, high))
    return [ColdWarmComparison("p", None, None, found, None, 0, None)]


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
    monkeypatch.setattr(
        stall, "_campaign", lambda words, _: asked.append(words) or (Mock(entries=[], folder=Mock(root=data)), 0)
    )
    monkeypatch.setattr(
        stall_answer, "compare_cells", lambda *_: _of(5 if len(asked) == 1 else 10, high=0.4 / len(asked))
    )
    monkeypatch.setattr(stall_answer, "lines_of_outcome", lambda *_: [])

    assert stall.main(["--data", str(data), "--within", "3%", "--", "true"]) == 0
    assert [next(word for word in words if word.startswith("runs=")) for words in asked] == ["runs=6", "runs=11"]


def test_without_data_they_are_found_in_a_first_run(here, data, tmp_path):
    words = ("stall", "--runs", "1", *QUIET, "--", sys.executable, "read.py", "data")

    refused = here(*words)
    done = here("stall", "--yes", "--cold", *words[1:])

    assert (refused.returncode, done.returncode) == (2, 0), done.stderr
    assert "there is no terminal to ask whether" in refused.stderr
    assert f"{data}  4 files  4.2 MB" in done.stderr
    assert (tmp_path / "stall.files").read_text() == "0.bin\n1.bin\n2.bin\n3.bin\n"
    assert done.stdout.count("  yes") == 1


def test_data_that_do_not_fit_into_memory_are_refused_before_anything_runs(here, data, tmp_path):
    with (data / "large").open("wb") as file:
        file.truncate(1 << 40)

    done = here("stall", "--data", "data", "--", "true")

    assert done.returncode == 3
    assert "so the data cannot be warm" in done.stderr
    assert not (tmp_path / "stall" / "records").exists()


def test_ctrl_c_ends_the_program_and_the_same_command_goes_on(command, here, data, tmp_path):
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
    done = here(*words)

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("  yes") == 1
