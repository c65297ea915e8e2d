"""Profiles as files, and what is said of them."""

import json
import os
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from jobs.profiler import Profile, ProfilerError, report, table
from jobs.profiler.__main__ import main
from jobs.profiler.window import COUNTERS, EVENT, MODES, MODULES, OPERATIONS
from jobs.terminal import complain


@pytest.fixture
def saved(tmp_path):
    """Return a function that profiles the reading of two files and saves it: the profile and its file."""

    def made(mode="trace"):
        folder = tmp_path / "data"
        folder.mkdir()
        (folder / "small").write_bytes(bytes(50))
        (folder / "large\x1b[2J").write_bytes(bytes(200_000))
        with Profile(mode=mode, only=[folder]) as profile:
            for path in folder.iterdir():
                path.read_bytes()
        profile.save(tmp_path / "saved.npz")
        return profile, tmp_path / "saved.npz"

    return made


@pytest.mark.parametrize("mode", MODES)
def test_what_is_saved_is_read_again(mode, saved):
    profile, file = saved(mode)

    again = table.read(file)

    assert {path: dict(each) for path, each in again.files.items()} == dict(profile.files.items())
    assert again.wall_s == profile.window.wall_s
    assert again.events is profile.events is None or (again.events == profile.events).all()


def _cut(file):
    file.write_bytes(file.read_bytes()[:-200])


def _link(file):
    file.rename(file.with_name("elsewhere"))
    file.symlink_to(file.with_name("elsewhere"))


def _fifo(file):
    file.unlink()
    os.mkfifo(file)


def _changed(name, array):
    def change(file):
        with zipfile.ZipFile(file) as members:
            kept = {each: members.read(each) for each in members.namelist()}
        with zipfile.ZipFile(file, "w") as members:
            for each, data in kept.items():
                if each != name:
                    members.writestr(each, data)
            with members.open(name, "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=True)

    return change


OTHER_VERSION = "it is of schema 1, and this version reads schema 3"


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (_cut, ""),
        (_link, ""),
        (_fifo, ""),
        (lambda file: file.write_bytes(b"tfio-posix-2\n{}\n"), ""),
        (lambda file: file.write_bytes(b"tfio-posix-1\n{}\n"), OTHER_VERSION),
        (lambda file: file.write_bytes(b""), ""),
        (_changed("head.npy", np.frombuffer(b'{"schema": 1, "operations": []}', np.uint8)), OTHER_VERSION),
        (_changed("head.npy", np.frombuffer(b"[1]", np.uint8)), ""),
        (_changed("head.npy", np.array([{"an": "object"}], dtype=object)), ""),
        (_changed("events.npy", np.zeros(3)), ""),
        (_changed("stdio.npy", np.zeros(1, bool)), ""),
    ],
)
def test_a_damaged_profile_and_one_of_another_version_is_an_error_that_names_it(damage, why, saved, capsys):
    _, file = saved()
    damage(file)

    assert main(["report", str(file)]) == 2
    said = capsys.readouterr().err
    assert f"saved.npz is no profile that can be read: {why}" in said
    assert "\n\nhint: name what Profile.save" in said


def test_a_name_that_would_act_on_the_terminal_is_shown(tmp_path, capsys):
    file = tmp_path / "\x1b[31mx"
    file.write_bytes(b"x")

    assert main(["report", str(file)]) == 2

    assert f"error: {tmp_path}/\\x1b[31mx is no profile" in capsys.readouterr().err


def test_a_hint_that_would_act_on_the_terminal_is_shown(capsys):
    complain("two\nlines", "see \x9b31m")

    assert capsys.readouterr().err == "error: two\\nlines\n\nhint: see \\x9b31m\n"


def test_a_profile_larger_than_the_limit_is_not_unpacked(saved, monkeypatch):
    _, file = saved()
    monkeypatch.setattr(table, "LARGEST_BYTES", file.stat().st_size - 500)

    with pytest.raises(ProfilerError, match="more than"):
        table.read(file)


def test_the_report_says_what_was_read_and_how(saved, capsys):
    _, file = saved()

    assert main(["report", str(file)]) == 0
    told = capsys.readouterr().out
    assert main(["report", str(file), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)

    assert "complete: nothing was dropped or missed" in told
    assert "0.2 MB in 4 calls" in told
    assert "order    50.0% of the reads sequential, 50.0% consecutive" in told
    assert "reads    to 100 B               3   75.0%" in told
    assert "\x1b" not in told
    assert (figures["files"], figures["opens"], figures["reads"], figures["bytes_read"]) == (
        3,
        2,
        4,
        200_050,
    )  # their folder is one
    assert figures["read_mb_per_s"] == pytest.approx(0.20005 / figures["wall_s"])


def test_the_time_with_a_call_under_way_comes_first_and_sums_over_threads_are_named_so(saved):
    profile, _ = saved()
    events, second = np.zeros(3, EVENT), 10**9
    events["thread"], events["operation"] = [1, 2, 1], OPERATIONS.index("read")
    events["start"], events["end"] = [0, second, 5 * second], [3 * second, 4 * second, 6 * second]
    window = replace(
        profile.window, events=events, started_ns=0, ended_ns=8 * second, device_bytes=5_000_000, beside=""
    )
    window.counters["read_time"] = 0
    window.counters["read_time"][0] = 7 * second

    lines = list(report.lines(window))

    assert (report.figures(window)["under_way_s"], report.figures(window)["threads"]) == (5.0, 2)
    assert lines[2] == "calls    a call was under way for 5.000 of 8.000 s; seconds below are summed over 2 threads"
    assert lines[3].endswith("7.000 s summed")
    assert "device   5.0 MB fetched for the process, by the kernel's count" in lines


def test_of_counters_it_is_said_that_the_time_with_a_call_under_way_is_not_known(saved):
    window = replace(saved("counters")[0].window, beside="")

    assert report.figures(window)["under_way_s"] is None
    assert "is not known of counters" in list(report.lines(window))[2]


def test_the_order_of_reads_is_that_of_posix_alone(saved):
    profile, _ = saved("counters")
    counters = np.zeros(2, COUNTERS)
    for name in ("reads", "seq_reads", "consec_reads"):
        counters[name] = [1, 9]

    found = report.figures(replace(profile.window, modules=MODULES, paths=["a", "a"], counters=counters))

    assert (found["reads"], found["sequential"], found["consecutive"]) == (10, 1.0, 1.0)


def test_a_chrome_trace_has_one_line_a_file(saved, tmp_path, capsys):
    profile, file = saved()

    assert main(["chrome", str(file), str(tmp_path / "trace.json")]) == 0
    drawn = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]

    named = {each["tid"]: each["args"]["name"] for each in drawn if each["name"] == "thread_name"}
    reads = [each for each in drawn if each["name"] == "read"]
    assert sorted(named.values()) == sorted(profile.files)
    assert sum(each["args"]["returned"] for each in reads) == 200_050
    assert all(each["ts"] >= 0 and each["ts"] + each["dur"] <= profile.window.wall_s * 1e6 for each in reads)


@pytest.mark.parametrize("verb", ["chrome", "darshan"])
def test_what_cannot_be_written_is_an_error_and_the_profile_stays(verb, saved, capsys):
    _, file = saved()
    before = file.read_bytes()

    for out, why in (("saved.npz", "is the profile itself"), ("none/out", "No such file")):
        assert main([verb, str(file), str(file.parent / out)]) == 2
        said = capsys.readouterr().err
        assert (why in said, "\n\nhint: name a" in said, file.read_bytes() == before) == (True, True, True)


def test_counters_have_no_chrome_trace(saved, tmp_path):
    profile, _ = saved("counters")

    with pytest.raises(ProfilerError, match="mode trace"):
        profile.chrome(tmp_path / "none.json")
