"""Profiles as files, and what is said of them."""

import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from jobs.profiler import Profile, ProfilerError, report, table
from jobs.profiler.__main__ import main
from jobs.profiler.window import COUNTERS, EVENT, MODES, OPERATIONS, Window


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
        (lambda file: file.write_bytes(b"tfio-posix-1\n{}\n"), OTHER_VERSION),
        (_changed("head.npy", np.frombuffer(b'{"schema": 1, "operations": []}', np.uint8)), OTHER_VERSION),
        (_changed("head.npy", np.array([{"an": "object"}], dtype=object)), "it has an array whose bytes"),
        (_changed("head.npy", np.frombuffer(b'{"schema": 3, "operations": []}', np.uint8)), "its operations are not"),
        (_changed("events.npy", np.zeros(3)), "a member is float64 of 1 dimensions"),
        (_changed("stdio.npy", np.zeros(1, bool)), "its members do not fit together"),
    ],
)
def test_a_damaged_profile_and_one_of_another_version_is_an_error_that_names_it(damage, why, saved, capsys):
    _, file = saved()
    damage(file)

    assert main(["report", str(file)]) == 2
    said = capsys.readouterr().err
    assert f"saved.npz is no profile that can be read: {why}" in said
    assert "\n\nhint: name what Profile.save" in said


@pytest.mark.parametrize(("more", "is_read"), [(0, True), (1, False)])
def test_a_head_of_a_mebibyte_is_read(more, is_read, saved):
    _, file = saved()
    with zipfile.ZipFile(file) as members:
        head = members.read("head.npy").partition(b'{"schema')[2]
    _changed("head.npy", np.frombuffer((b'{"schema' + head).rjust((1 << 20) + more), np.uint8))(file)

    if is_read:
        assert table.read(file).ended
    else:
        with pytest.raises(ProfilerError, match="not whole JSON"):
            table.read(file)


COUNTED = ("POSIX", "STDIO", "POSIX")


def counted(**changed):
    """A window of counters, no two numbers of which are equal, of four seconds."""
    counters = np.zeros(3, COUNTERS)
    for place, name in enumerate(counters.dtype.names):
        shape = counters[name].shape
        counters[name] = np.arange(counters[name].size).reshape(shape) ** 2 + 100 * (place + 1)
    told = {"mode": "counters", "started_ns": 10**9, "ended_ns": 5 * 10**9, "process": 7, "paths": ["a", "a", "b"]}
    told |= {"modules": COUNTED, "counters": counters, "events": None, "dropped": 0, "read_bytes": 5}
    return Window(**{**told, "kernel_read_bytes": 6, "device_bytes": None, **changed})


def test_each_figure_is_the_sum_of_its_counters_and_the_order_of_reads_that_of_posix_alone():
    window = counted()
    rows, posix = window.counters, window.counters[[0, 2]]

    found = report.figures(window)

    for name in ("opens", "reads", "writes", "stats", "seeks", "bytes_read", "bytes_written"):
        assert found[name] == rows[name].sum(), name
    for name in ("read", "write", "meta"):
        assert found[f"{name}_s"] == pytest.approx(rows[f"{name}_time"].sum() / 1e9), name
    for name in ("read", "write"):
        assert found[f"{name}_sizes"] == rows[f"size_{name}"].sum(axis=0).tolist(), name
    assert found["syncs"] == rows["fsyncs"].sum() + rows["fdsyncs"].sum()
    assert found["stream_writes"] == rows["writes"][1]
    assert (found["files"], found["wall_s"], found["under_way_s"], found["threads"]) == (2, 4.0, None, None)
    rates = [found["read_mb_per_s"], found["write_mb_per_s"]]
    assert rates == pytest.approx([rows[name].sum() / 1e6 / 4 for name in ("bytes_read", "bytes_written")])
    for share, name in (("sequential", "seq_reads"), ("consecutive", "consec_reads")):
        assert found[share] == posix[name].sum() / posix["reads"].sum(), name
    assert "is not known of counters" in list(report.lines(window))[2]


@pytest.mark.parametrize(
    ("kernel", "seen", "unseen"),
    [
        (1 << 16, 0, None),  # as little as a few streams read ahead
        ((1 << 16) + 1, 0, "65,537 bytes were read unseen"),
        (100 << 20, 99 << 20, None),  # a hundredth
        (100 << 20, (99 << 20) - 1, "1,048,577 bytes were read unseen"),
        (0, 1 << 16, None),
        (0, (1 << 16) + 1, "65,537 bytes more were seen"),
        (None, 0, "the kernel's count is missing"),
    ],
)
def test_a_profile_is_complete_where_the_kernel_counted_hardly_more(kernel, seen, unseen):
    found = counted(kernel_read_bytes=kernel, read_bytes=seen).blind_spot()

    assert found is None if unseen is None else unseen in found


def test_a_name_that_would_act_on_the_terminal_is_shown(tmp_path, capsys):
    file = tmp_path / "\x1b[31mx"
    file.write_bytes(b"x")

    assert main(["report", str(file)]) == 2

    assert f"error: {tmp_path}/\\x1b[31mx is no profile" in capsys.readouterr().err


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
