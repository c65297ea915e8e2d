"""Darshan logs: ours as PyDarshan reads them, and those of others."""

import os
import subprocess
import sys
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest

from jobs.profiler import Profile, ProfilerError, darshan_log, saved
from jobs.profiler.__main__ import main
from jobs.profiler.window import MODES, OPERATIONS

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
    again = saved.read(log)
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
    assert saved.read(tmp_path / "log.darshan").dropped == 1


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

    assert main(["report", str(EXAMPLES / name)]) == 0
    assert told in capsys.readouterr().out


def test_a_damaged_log_is_an_error(written, capfd):
    _, log = written("counters")
    log.write_bytes(log.read_bytes()[: os.stat(log).st_size // 2])  # noqa: PTH116

    with pytest.raises(ProfilerError, match=r"log\.darshan is no Darshan log"):
        saved.read(log)


def test_a_log_that_ends_pythons_process_is_an_error(written):
    _, log = written("counters")
    data = log.read_bytes()
    head = list(darshan_log._HEADER.unpack_from(data))  # noqa: SLF001 - the format's own
    at, size = head[4:6]  # the names of files, each ended by a NUL
    names = zlib.compress(zlib.decompress(data[at : at + size])[:-1])
    head[4:6] = len(data), len(names)
    log.write_bytes(darshan_log._HEADER.pack(*head) + data[darshan_log._HEADER.size :] + names)  # noqa: SLF001

    with pytest.raises(ProfilerError, match=r"log\.darshan is no Darshan log .*killed by signal"):
        saved.read(log)
