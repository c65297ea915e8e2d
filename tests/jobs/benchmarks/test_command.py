"""Any program as a benchmark: what it is told, what it is held to, and how it fails."""

import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from campaign.cells.cell import make_cell
from jobs import run
from jobs.__main__ import main
from jobs.benchmarks import command, user_program
from jobs.data import manifest
from jobs.errors import DatasetError, ProgramError
from jobs.events import posix_window
from jobs.profiler import build
from jobs.system import cgroup, page_cache
from tests.campaign.work_lists import compose
from tests.jobs.jobs_factory import HandClock, check, judged_in_time, request_of

READ = "import pathlib, sys\nfor each in sorted(pathlib.Path(sys.argv[1]).iterdir()): each.read_bytes()\n"
# A time slice that another process gets between two parts of a run is next to nothing of so long.
A_WHILE = "\nimport time\ntime.sleep(0.5)\n"
MB = 1_000_000


@pytest.fixture
def data(disk):
    """Return a folder of six files of a megabyte, on the device."""
    folder = disk / "data"
    folder.mkdir()
    for number in range(6):
        (folder / f"{number}.bin").write_bytes(os.urandom(MB))
    page_cache.sync_file_system(folder)
    return folder


@pytest.fixture
def execute(disk):
    """Run a program of Python once on data, and return the judged run."""

    def execute(data, script, *words, cache="cold", limit_s=None, python=(sys.executable, "-c"), **own):
        held = disk / "held"
        held.mkdir(exist_ok=True)
        (held / manifest.MANIFEST_NAME).write_text(manifest.scan_folder(data, any_kind=True).to_json())
        settings = {**command.BENCHMARK.defaults, "cache": cache, "profile": {"posix": own.pop("posix", "none")}}
        settings["benchmark"] = settings["benchmark"] | {"argv": [*python, script, *words, "{data}"], **own}
        file = str(disk / "calls.npz")
        request = request_of(manifest.manifest_root(data), settings, manifest=str(held), limit_s=limit_s, profile=file)
        return judged_in_time(lambda: run.execute(request), request)

    return execute


def test_a_cold_run_fetches_what_it_reads_and_a_warm_one_fetches_nothing(data, execute):
    execute(data, READ)  # Python itself is in memory then

    cold, warm = (execute(data, READ + A_WHILE, cache=cache) for cache in ("cold", "warm"))

    assert (cold["status"], warm["status"]) == ("valid", "valid"), (cold["reason"], warm["reason"])
    assert cold["data_in_memory_bytes"] >= 6 * MB
    assert cold["device_bytes"] >= 6 * MB
    assert warm["device_bytes"] < 0.1 * MB
    assert cold["rate"] == {"key": "wall_s", "unit": "s"}
    assert cold["program"]["argv"][-1] == str(data)


def test_what_is_read_in_part_is_held_against_that_part(data, execute):
    figures = execute(data, "import sys; open(sys.argv[1] + '/0.bin', 'rb').read()")

    assert check(figures, "device_bytes")["passed"]
    assert figures["data_in_memory_bytes"] < 3 * MB


def test_a_program_that_reads_none_of_the_data_is_told_so(data, execute):
    figures = execute(data, "pass")

    assert figures["status"] == "invalid"
    assert (
        "reads_data: 0.0 MB of the 6.0 MB of data came into memory: the program reads next to nothing of them"
        in figures["reason"]
    )


def test_a_program_that_changes_its_data_is_told_so(data, execute):
    figures = execute(data, READ + "open(sys.argv[1] + '/3.bin', 'ab').write(b'x')")

    assert "same_data: files of the data that changed or are new (1): 3.bin" in figures["reason"]


def test_a_program_that_keeps_a_cache_below_its_data_is_told_so_for_nobody_evicts_it(data, execute):
    script = READ + "pathlib.Path(sys.argv[1], 'cache').mkdir(); pathlib.Path(sys.argv[1], 'cache', 'c.bin').touch()"

    assert "same_data: files of the data that changed or are new (1): cache/c.bin" in execute(data, script)["reason"]


def test_data_that_hold_nothing_are_none(tmp_path):
    (tmp_path / "empty.bin").touch()

    for path in (tmp_path, tmp_path / "empty.bin"):
        with pytest.raises(DatasetError, match="no files with content"):
            manifest.scan_folder(path, any_kind=True)


def test_reading_past_the_page_cache_cannot_be_told_from_reading_nothing_and_is_no_fault(data, execute):
    script = (
        "import mmap, os, sys\nroom = mmap.mmap(-1, 1 << 20)\nfor n in range(6):\n"
        "    fd = os.open(f'{sys.argv[1]}/{n}.bin', os.O_RDONLY | os.O_DIRECT)\n    os.readv(fd, [room])\n"
    )
    execute(data, "pass")

    cold, warm = (execute(data, script + A_WHILE, cache=cache) for cache in ("cold", "warm"))

    assert check(cold, "reads_data")["passed"] is None
    assert cold["status"] == "valid", cold["reason"]
    assert "from_memory: 6.0 MB of 6.0 MB of data came from the device" in warm["reason"]


def test_a_mapped_file_counts_as_read(data, execute):
    script = "import mmap, sys\nf = open(sys.argv[1] + '/1.bin', 'rb')\nsum(mmap.mmap(f.fileno(), 0, prot=1)[::4096])\n"

    figures = execute(data, script)

    assert check(figures, "device_bytes")["passed"]
    assert figures["device_bytes"] >= MB


def test_a_grandchild_that_outlives_the_program_is_part_of_the_run(data, execute):
    script = (
        "import os, pathlib, sys, time\nprogram = os.getpid()\nif os.fork() == 0:\n    os.setsid()\n"
        "    while os.getppid() == program: time.sleep(0.01)\n    time.sleep(0.4)\n"
        "    for each in pathlib.Path(sys.argv[1]).iterdir(): each.read_bytes()\n"
    )

    figures = execute(data, script)

    assert figures["left_s"] > 0.2
    assert figures["wall_s"] > 0.4
    assert check(figures, "device_bytes")["passed"]
    assert figures["data_in_memory_bytes"] >= 6 * MB


def test_data_are_a_single_file_or_the_files_of_a_list_and_a_link_leads_to_them(data, execute, disk):
    (disk / "link").symlink_to(data)
    names = disk / "names"
    names.write_text("1.bin\n4.bin\n")

    one = execute(data / "2.bin", f"import sys\nopen(sys.argv[1], 'rb').read()\n{A_WHILE}")
    linked = execute(disk / "link", READ + A_WHILE)

    assert (one["data_bytes"], linked["data_bytes"]) == (MB, 6 * MB)
    assert (one["status"], linked["status"]) == ("valid", "valid"), (one["reason"], linked["reason"])
    assert [file.name for file in manifest.scan_folder(data, any_kind=True, listed=names).files] == ["1.bin", "4.bin"]
    for odd in ("../other", ""):
        names.write_text(f"1.bin\n{odd}\n")
        with pytest.raises(DatasetError, match=f"names '{odd}', which is no file below"):
            manifest.scan_folder(data, any_kind=True, listed=names)


def test_of_two_names_of_one_file_one_counts(data):
    os.link(data / "0.bin", data / "again.bin")

    assert len(command.data_files(data, manifest.scan_folder(data, any_kind=True))) == 6


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (
            "import sys; print('one'); print('the cause', file=sys.stderr); sys.exit(3)",
            "ended with exit code 3: the cause",
        ),
        ("import os; os.kill(os.getpid(), 11)", "was killed by signal 11"),
    ],
)
def test_a_program_that_fails_fails_the_run_with_its_last_line(script, why, data, execute):
    figures = execute(data, script)

    assert figures["status"] == "failed"
    assert why in figures["reason"]


def test_a_program_that_cannot_be_started_fails_the_run(data, execute):
    assert "no-such-program" in execute(data, "", python=("no-such-program",))["reason"]


@pytest.fixture
def clock(monkeypatch):
    """The clock by which a program has its time; it goes on when it is told to."""
    clock = HandClock()
    monkeypatch.setattr(user_program, "time", SimpleNamespace(perf_counter=clock.now, time_ns=time.time_ns))
    return clock


def test_at_the_time_limit_all_of_it_is_ended(data, execute, disk, clock, monkeypatch):
    script = "import os, sys, time\nos.fork()\nopen(sys.argv[1], 'a').write(f'{os.getpid()}\\n')\ntime.sleep(600)\n"
    pids = lambda: (disk / "pids").read_text().splitlines() if (disk / "pids").exists() else []  # noqa: E731
    monkeypatch.setattr(user_program.time, "perf_counter", lambda: clock.now() + (len(pids()) == 2))

    figures = execute(data, script, str(disk / "pids"), limit_s=0.6)

    assert "still running after run_timeout_s=0.6; all of its processes were ended" in figures["reason"]
    assert len(pids()) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids())


def test_what_it_takes_to_bring_data_into_memory_is_part_of_the_time_limit(data, execute, clock, monkeypatch):
    read_through = page_cache.read_through
    monkeypatch.setattr(page_cache, "read_through", lambda paths: clock.sleep(0.8) or read_through(paths))

    figures = execute(data, "import time; time.sleep(600)", cache="warm", limit_s=0.8)

    assert "still running after run_timeout_s=0.8" in figures["reason"]


def test_the_rate_is_a_number_that_the_program_prints(data, execute):
    script = READ + "print('warm 1 img/s'); print('at 3.5 img/s'); print('at 1,000 img/s'); print('at 2 img/s')"
    pattern = r"at ([0-9.,]+) img/s"

    last = execute(data, script, metric=pattern, unit="img/s", better="lower")
    median = execute(data, script, metric=pattern, matches="median")

    assert (last["printed"], median["printed"]) == (2.0, 3.5)
    assert last["rate"] == {"key": "printed", "unit": "img/s"}
    assert command.BENCHMARK.figure_of({"metric": "x", "unit": "u", "better": "lower"}).better == "lower"
    assert "output matches benchmark.metric=nothing (.)" in execute(data, READ, metric="nothing (.)")["reason"]


def test_what_is_found_must_be_a_number():
    with pytest.raises(ProgramError, match="no number"):
        user_program.read_printed_number("loss nan_\n", "loss (.*)", "last")


@pytest.mark.parametrize("number", ["0", "-5", "nan", "inf", "1e400"])
def test_a_metric_that_is_not_a_finite_number_above_0_fails_the_run(number):
    with pytest.raises(ProgramError, match=r"^benchmark\.metric=speed \(\.\*\) found the number .* above 0; correct"):
        user_program.read_printed_number(f"speed {number}\n", "speed (.*)", "last")


def test_a_line_that_is_printed_marks_where_the_timed_part_begins(data, execute):
    script = "import time\ntime.sleep(0.3); print('imports', 'done', flush=True)\n" + READ + "time.sleep(0.5)"

    figures = execute(data, script, begins="^imports done$")
    missing = execute(data, READ, begins="epoch 1")

    assert figures["wall_s"] > 0.4
    assert 0.1 < figures["marked_s"] < figures["wall_s"] - 0.25
    assert "no printed line matches benchmark.begins=epoch 1" in missing["reason"]


@pytest.mark.parametrize(
    ("chunks", "found"),
    [
        ((b"epoch 1", b"0 of 20\n", b"epoch 1\n"), 3),  # a half-printed line is not a line
        ((b"epoch 1\nmore\n",), 1),
        ((b"epoch 1", b"\n"), 1),  # printed in one piece, and its end later
        ((b"x\nepoch ", b"1"), 2),  # the last line of all may lack its end
        ((b"epoch 1", b"0"), None),
        ((b"epoch 1\r\n",), 1),
        ((b"epoch 0\r", b"epoch 1", b"\repoch 2"), 2),  # a line of progress
        ((b"x" * 40_000, b"x" * 40_000, b"epoch 1\n", b"epoch 1\n"), 4),
        ((b"epoch 1", b"0" * 40_000, b"0" * 40_000, b"epoch 1\n"), None),
    ],
)
def test_a_line_marks_the_begin_if_it_still_matches_when_it_is_complete(monkeypatch, chunks, found):
    times = iter(range(1, len(chunks) + 2))
    monkeypatch.setattr(user_program.time, "perf_counter", lambda: next(times))
    line = user_program.BeginLine("^epoch 1$")

    for chunk in (*chunks, b""):
        if line.printed_s is None:
            line.search(chunk)

    assert line.printed_s == found


def test_the_program_itself_marks_where_the_timed_part_begins(data, execute, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(run.__file__).parents[1]))
    script = "import time, jobs\ntime.sleep(0.3); jobs.mark(); time.sleep(0.1); jobs.mark()\n" + READ

    figures = execute(data, script)

    assert 0.1 < figures["marked_s"] < figures["wall_s"] - 0.3
    assert execute(data, READ)["marked_s"] is None


def test_argv_and_environment_have_the_values_of_the_cell(data, execute, disk, monkeypatch):
    script = "import os; open('here', 'w'); print('batch', os.environ['BATCH'], 'PYTHONSAFEPATH' in os.environ)"
    words = ("{threads}", "x{seed}y", "{cache}", "{print $1}", "{other}")
    own = {"environment": {"BATCH": "{batch_size}"}, "metric": "batch ([0-9]+) False", "workdir": str(disk)}
    monkeypatch.setenv("PYTHONSAFEPATH", "1")  # as the campaign sets it for itself

    figures = execute(data, script, *words, cache="as_is", **own)

    assert figures["printed"] == 64
    assert figures["program"]["argv"][3:-1] == ["4", "x0y", "as_is", "{print $1}", "{other}"]
    assert (disk / "here").exists()


def _point(*words):
    return compose("benchmark=command", "benchmark.argv=[prog,--workers,'{threads}']", *words)


def test_a_cell_has_those_settings_alone_that_the_program_is_told():
    one, other = make_cell(_point()), make_cell(_point("batch_size=7"))

    assert one.id == other.id
    assert make_cell(_point("threads=9")).id != one.id
    assert {"threads", "cache"} <= one.settings.keys()
    assert not {"batch_size", "seed", "iterations", "nodes", "staging"} & one.settings.keys()
    assert one.settings["benchmark"]["workdir"] == str(Path.cwd())


def test_data_that_do_not_fit_into_the_memory_that_is_left_cannot_be_warm(data, execute, monkeypatch):
    monkeypatch.setattr(command, "memory_left_bytes", lambda: 5 * MB)

    with pytest.raises(DatasetError, match=r"have 0.0 GB, but only 0.0 GB of memory are free, .*cannot be warm"):
        execute(data, READ, cache="warm")
    assert execute(data, READ + A_WHILE)["status"] == "valid"


def test_memory_that_is_left_is_that_of_the_machine_or_of_a_group(tmp_path):
    left = cgroup.memory_left_bytes()

    assert left is not None
    assert left <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


_HELLO = "print('hello', file=sys.stderr)"


def test_by_hand_the_program_follows_two_dashes(data, capfd):
    with pytest.raises(SystemExit):
        main(["command", str(data), "--cache", "cold", "--", sys.executable, "-c", READ + _HELLO, "{data}"])

    printed = capfd.readouterr()
    figures = json.loads(printed.out)
    assert figures["program"]["argv"] == [sys.executable, "-c", READ + _HELLO, str(data)]
    assert "hello" in printed.err
    assert {each["rule"] for each in figures["checks"]} >= {"cold", "device_bytes", "reads_data"}


def test_by_hand_its_calls_are_counted(data, disk, capfd):
    with pytest.raises(SystemExit):
        main(["command", str(data), "--profile", str(disk / "calls.npz"), "--", sys.executable, "-c", READ, "{data}"])

    calls = json.loads(capfd.readouterr().out)["profile"]
    assert (calls["opens"], calls["bytes_read"], calls["file"]) == (6, 6 * MB, "calls.npz")
    assert posix_window.read_window(disk / "calls.npz").counters["bytes_read"].sum() == 6 * MB


@pytest.mark.parametrize("environment", [{"LD_PRELOAD": ""}, {"TFIO_FILES": "/no/such/folder"}])
def test_a_program_that_takes_no_hooks_has_no_profile(environment, data, execute, monkeypatch):
    figures = execute(data, READ, posix="counters", environment=environment)

    assert figures["status"] == "failed"
    assert "recorded no process" in figures["reason"]
    monkeypatch.setattr(build, "build_library", lambda: (_ for _ in ()).throw(build.BuildError("no C compiler")))
    assert "profiler cannot be used: no C compiler" in execute(data, READ, posix="counters")["reason"]


def test_by_hand_a_program_is_asked_for(data, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["command", str(data)])

    assert ended.value.code == 2
    assert "no program" in capsys.readouterr().err
