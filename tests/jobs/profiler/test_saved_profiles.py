"""Profiles as files, and what is said of them; Darshan logs: ours as PyDarshan reads them, and those of others."""

import warnings
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from analysis.cli.profile import main
from jobs.events import posix_window
from jobs.events.posix_window import COUNTERS, EVENT, MODES, OPERATIONS, Window
from jobs.events.table import EventsError
from jobs.profiler import Profile, report, saved_profiles

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyDarshan's own, of what it draws with
    darshan = pytest.importorskip("darshan")


def test_that_calls_were_dropped_is_known_again(data, tmp_path):
    with Profile("counters", only=[data.parent], max_files=1) as profile:
        data.read_bytes()
        data.with_name("other").write_bytes(b"1")

    profile.darshan(tmp_path / "log.darshan")
    assert profile.dropped > 0
    assert "MODMEM" in saved_profiles.read_profile(tmp_path / "log.darshan").blind_spot()


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


def test_a_profile_larger_than_the_limit_is_not_unpacked(a_profile):
    _, file = a_profile()

    with pytest.raises(EventsError, match="more than"):
        posix_window.read_window(file, file.stat().st_size - 500)


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


def test_counters_have_no_chrome_trace(a_profile, tmp_path):
    profile, _ = a_profile("counters")

    with pytest.raises(EventsError, match="mode trace"):
        profile.chrome(tmp_path / "none.json")
