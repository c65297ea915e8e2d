"""Profiles as files, and what is said of them; Darshan logs: ours as PyDarshan reads them, and those of others."""

import json
import os
import subprocess
import sys
import warnings
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.cli.profile import main
from jobs.events import posix_window
from jobs.events.posix_window import COUNTERS, EVENT, MODES, OPERATIONS, Window
from jobs.events.table import EventsError
from jobs.profiler import Profile, ProfilerError, report, saved_profiles

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyDarshan's own, of what it draws with
    darshan = pytest.importorskip("darshan")
EXAMPLES = Path(darshan.__file__).parent / "tests" / "input"


@pytest.fixture
def written(tmp_path):
    """Return a function that profiles reads and writes and writes a log: the profile and the log."""

    def made(mode):
        folder = tmp_path / "data"
        folder.mkdir()
        with Profile(mode=mode, only=[folder]) as profile:
            (folder / "a").write_bytes(bytes(70_000))
            (folder / "a").read_bytes()
            with (folder / "a").open("r+b", buffering=0) as file:
                file.seek(5)
                file.write(bytes(30))
            np.save(folder / "b.npy", np.zeros(1000))
        profile.darshan(tmp_path / "log.darshan")
        return profile, tmp_path / "log.darshan"

    return made


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.filterwarnings("ignore")
def test_pydarshan_reads_our_counters_and_our_log_is_a_profile_again(mode, written):
    profile, log = written(mode)

    report = darshan.DarshanReport(str(log), read_all=True)

    assert report.metadata["job"]["nprocs"] == 1
    for module in report.records.keys() & {"POSIX", "STDIO"}:
        tables = report.records[module].to_df()
        assert len(tables["counters"]) == profile.window.modules.count(module) > 0
        for kind in ("counters", "fcounters"):
            for row in tables[kind].to_dict("records"):
                ours = profile.files[report.name_records[row["id"]]]
                assert {key: value for key, value in row.items() if key in ours} == pytest.approx(
                    {key: value for key, value in ours.items() if key in row}
                )
    if mode == "trace":
        records = report.records["DXT_POSIX"].to_df()
        (segments,) = [each for each in records if report.name_records[each["id"]].endswith("/data/a")]
        events = [each for each in profile.events if profile.window.paths[each["file"]].endswith("/data/a")]
        for kind in ("read", "write"):
            found, seen = segments[f"{kind}_segments"], [e for e in events if kind in OPERATIONS[e["operation"]]]
            for name in ("offset", "returned"):
                assert found["length" if name == "returned" else name].tolist() == [each[name] for each in seen]
            for edge in ("start", "end"):
                at_s = [(each[edge] - profile.window.started_ns) / 1e9 for each in seen]
                assert found[f"{edge}_time"].tolist() == pytest.approx(at_s)
    again = saved_profiles.read_profile(log)
    for path, counters in profile.files.items():
        assert again.files[path] == pytest.approx({**counters}, abs=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_what_has_no_offset_is_no_segment(tmp_path):
    ours, theirs = os.pipe()
    with Profile() as profile:
        os.write(theirs, b"x")
        os.read(ours, 1)
        os.close(ours)
        os.close(theirs)

    assert len(profile.events) == 4
    profile.darshan(tmp_path / "log.darshan")
    assert "DXT_POSIX" not in darshan.DarshanReport(str(tmp_path / "log.darshan"), read_all=False).modules


def test_that_calls_were_dropped_is_known_again(data, tmp_path):
    with Profile("counters", only=[data.parent], max_files=1) as profile:
        data.read_bytes()
        data.with_name("other").write_bytes(b"1")

    profile.darshan(tmp_path / "log.darshan")
    assert profile.dropped > 0
    assert "MODMEM" in saved_profiles.read_profile(tmp_path / "log.darshan").blind_spot()


@pytest.mark.long
def test_darshans_own_summary_is_made_of_our_log(written, tmp_path):
    _, log = written("trace")

    done = subprocess.run(
        [sys.executable, "-m", "darshan", "summary", log], cwd=tmp_path, capture_output=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("*.html"))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("sample.darshan", "2,199,023.3 MB in 16,476 calls"),
        ("sample-dxt-simple.darshan", "64 opens"),
        ("noposix.darshan", "1,812.4 MB in 199,687 calls"),
    ],
)
def test_logs_of_others_are_reported_in_the_same_words(name, told, capsys):
    if not (EXAMPLES / name).exists():
        pytest.skip("this PyDarshan has no examples")

    assert main([str(EXAMPLES / name)]) == 0
    assert told in capsys.readouterr().out


def test_a_damaged_log_is_an_error(written, capfd):
    _, log = written("counters")
    log.write_bytes(log.read_bytes()[: os.stat(log).st_size // 2])  # noqa: PTH116

    with pytest.raises(ProfilerError, match=r"log\.darshan is no Darshan log .*; name a whole log"):
        saved_profiles.read_profile(log)


def test_a_log_that_ends_pythons_process_is_an_error(written):
    _, log = written("counters")
    data = log.read_bytes()
    head = list(saved_profiles._HEADER.unpack_from(data))  # noqa: SLF001 - the format's own
    at, size = head[4:6]  # the names of files, each ended by a NUL
    names = zlib.compress(zlib.decompress(data[at : at + size])[:-1])
    head[4:6] = len(data), len(names)
    log.write_bytes(saved_profiles._HEADER.pack(*head) + data[saved_profiles._HEADER.size :] + names)  # noqa: SLF001

    with pytest.raises(ProfilerError, match=r"log\.darshan is no Darshan log .*killed by signal"):
        saved_profiles.read_profile(log)


@pytest.fixture
def a_profile(tmp_path):
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
def test_what_is_saved_is_read_again(mode, a_profile):
    profile, file = a_profile(mode)

    again = posix_window.read_window(file)

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


OTHER_VERSION = "it has schema 1, and this version reads schema 3"


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda file: file.write_bytes(b"tfio-posix-1\n{}\n"), OTHER_VERSION),
        (_changed("head.npy", np.frombuffer(b'{"schema": 1, "operations": []}', np.uint8)), OTHER_VERSION),
        (_changed("head.npy", np.array([{"an": "object"}], dtype=object)), "the archive has an array whose bytes"),
        (_changed("head.npy", np.frombuffer(b'{"schema": 3, "operations": []}', np.uint8)), "its operations differ"),
        (_changed("events.npy", np.zeros(3)), "a member is float64 of 1 dimensions"),
        (_changed("stdio.npy", np.zeros(1, bool)), "its members do not fit together"),
    ],
)
def test_a_damaged_profile_and_one_of_another_version_is_an_error_that_names_it(damage, why, a_profile, capsys):
    _, file = a_profile()
    damage(file)

    assert main([str(file)]) == 2
    said = capsys.readouterr().err
    assert f"saved.npz is no profile that can be read: {why}" in said
    assert "\n\nhint: name what Profile.save" in said


@pytest.mark.parametrize(("more", "is_read"), [(0, True), (1, False)])
def test_a_head_of_a_mebibyte_is_read(more, is_read, a_profile):
    _, file = a_profile()
    with zipfile.ZipFile(file) as members:
        head = members.read("head.npy").partition(b'{"schema')[2]
    _changed("head.npy", np.frombuffer((b'{"schema' + head).rjust((1 << 20) + more), np.uint8))(file)

    if is_read:
        assert posix_window.read_window(file).ended
    else:
        with pytest.raises(EventsError, match="not valid JSON"):
            posix_window.read_window(file)


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

    found = report.window_metrics(window)

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
    assert "counters do not show when" in list(report.report_lines(window))[2]


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

    assert main([str(file)]) == 2

    assert f"error: {tmp_path}/\\x1b[31mx is no profile" in capsys.readouterr().err


def test_a_profile_larger_than_the_limit_is_not_unpacked(a_profile):
    _, file = a_profile()

    with pytest.raises(EventsError, match="more than"):
        posix_window.read_window(file, file.stat().st_size - 500)


def test_the_report_says_what_was_read_and_how(a_profile, capsys):
    _, file = a_profile()

    assert main([str(file)]) == 0
    told = capsys.readouterr().out
    assert main([str(file), "--json"]) == 0
    (figures,) = json.loads(capsys.readouterr().out)

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


def test_the_time_with_a_call_under_way_comes_first_and_sums_over_threads_are_named_so(a_profile):
    profile, _ = a_profile()
    events, second = np.zeros(3, EVENT), 10**9
    events["thread"], events["operation"] = [1, 2, 1], OPERATIONS.index("read")
    events["start"], events["end"] = [0, second, 5 * second], [3 * second, 4 * second, 6 * second]
    window = replace(
        profile.window, events=events, started_ns=0, ended_ns=8 * second, device_bytes=5_000_000, beside=""
    )
    window.counters["read_time"] = 0
    window.counters["read_time"][0] = 7 * second

    lines = list(report.report_lines(window))

    assert (report.window_metrics(window)["under_way_s"], report.window_metrics(window)["threads"]) == (5.0, 2)
    assert lines[2] == "calls    a call was under way for 5.000 of 8.000 s; seconds below are summed over 2 threads"
    assert lines[3].endswith("7.000 s summed")
    assert "device   5.0 MB fetched for the process, by the kernel's count" in lines


def test_a_chrome_trace_has_one_line_a_file(a_profile, tmp_path, capsys):
    profile, file = a_profile()

    assert main([str(file), "--chrome", str(tmp_path / "trace.json")]) == 0
    drawn = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]

    named = {each["tid"]: each["args"]["name"] for each in drawn if each["name"] == "thread_name"}
    reads = [each for each in drawn if each["name"] == "read"]
    assert sorted(named.values()) == sorted(profile.files)
    assert sum(each["args"]["returned"] for each in reads) == 200_050
    assert all(each["ts"] >= 0 and each["ts"] + each["dur"] <= profile.window.wall_s * 1e6 for each in reads)


@pytest.mark.parametrize("flag", ["--chrome", "--darshan"])
def test_what_cannot_be_written_is_an_error_and_the_profile_stays(flag, a_profile, capsys):
    _, file = a_profile()
    before = file.read_bytes()

    for out, why in (("saved.npz", "is the profile itself"), ("none/out", "No such file")):
        assert main([str(file), flag, str(file.parent / out)]) == 2
        said = capsys.readouterr().err
        assert (why in said, "\n\nhint: name a" in said, file.read_bytes() == before) == (True, True, True)


def test_counters_have_no_chrome_trace(a_profile, tmp_path):
    profile, _ = a_profile("counters")

    with pytest.raises(EventsError, match="mode trace"):
        profile.chrome(tmp_path / "none.json")


def test_of_several_profiles_each_is_reported_by_its_name_and_none_is_written(a_profile, tmp_path, capsys):
    _, file = a_profile()
    other = tmp_path / "other.npz"
    other.write_bytes(file.read_bytes())
    words = [str(file), str(other)]

    assert main(words) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.endswith(".npz:")] == [
        f"{file}:",
        f"{other}:",
    ]
    assert main([*words, "--json"]) == 0
    assert [each["file"] for each in json.loads(capsys.readouterr().out)] == words
    assert main([*words, "--darshan", str(tmp_path / "log")]) == 2
    assert "of one profile\n\nhint: name a single FILE" in capsys.readouterr().err
    assert not (tmp_path / "log").exists()


def test_a_report_on_a_compute_node_imports_neither_pandas_nor_matplotlib_nor_tensorflow(a_profile):
    _, file = a_profile()
    code = "import sys; from analysis.__main__ import main; main(['profile', sys.argv[1]]); print(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", code, file], capture_output=True, text=True, check=True)

    assert not {"pandas", "matplotlib", "tensorflow"}.intersection(done.stdout.split())
