"""IOR and fio as engines: what they are told, what is read of their answers, and answers that are broken."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.benchmarks.engines import datafile, external
from jobs.benchmarks.engines.external import EXTERNAL, fio_command, ior_command, ior_outcome
from jobs.errors import EngineError
from tests.jobs.benchmarks.baseline_factory import MIB, execute, order, read_file
from tests.jobs.jobs_factory import eventually

RECORDED = Path(__file__).parent / "recorded"
FIO = (RECORDED / "fio-3.33-read.json").read_text()
IOR = (RECORDED / "ior-3.3-read.txt").read_text()
ORDER = order(Path("/mnt/read.bin"), size=32 * MIB)
ADAPTERS = {"fio": (EXTERNAL["fio"], FIO), "ior": (EXTERNAL["ior"], IOR)}
needs_fio = pytest.mark.skipif(not shutil.which("fio"), reason="fio is not installed")


@needs_fio
@pytest.mark.parametrize(
    ("access", "block"), [("read", MIB), ("write", MIB), ("random_read", 114_688), ("random_read", 12_288)]
)
def test_fio_moves_what_is_asked_for_and_its_bytes_are_counted_as_ours(access, block, disk, tmp_path):
    file = datafile.make_marked_folder(disk / "baseline") / "written.bin"
    file = file if access == "write" else read_file(disk)

    figures = execute(file, access, engine="fio", block=block, raw=tmp_path / "engine-3.txt", threads=2)

    assert (figures["status"], figures["reason"], figures["engine"]) == ("valid", None, "fio")
    assert figures["engine_version"].startswith("fio-3.")
    moved = figures["bytes_written" if access == "write" else "bytes_read"]
    assert moved == figures["requests"] * block
    assert 8 * MIB - 2 * block < moved <= 8 * MIB
    assert figures["written_bytes" if access == "write" else "device_bytes"] >= moved
    assert figures["cpu_s"] > 0
    said = (tmp_path / "engine-3.txt").read_text()
    assert said.startswith("$ fio --name=baseline ")
    assert json.loads(said[said.index("{") : said.rindex("}") + 1])["fio version"] == figures["engine_version"]
    assert figures["engine_output"] == "engine-3.txt"
    assert not (file.exists() and access == "write")


@needs_fio
@pytest.mark.long
def test_the_time_of_fio_includes_the_flush_of_what_it_wrote(disk):
    """Without direct access the bytes are in memory first; the least of several times is not that of a busy machine."""
    file = disk / "written.bin"
    asked = order(file, "write", size=64 * MIB, direct=False)
    command = fio_command(asked)
    unflushed = [word for word in command if not word.startswith("--end_fsync")]

    def took(words):
        file.unlink(missing_ok=True)
        return EXTERNAL["fio"].outcome(external.program_output(words, disk, None), asked).wall_s

    pairs = [(took(command), took(unflushed)) for _ in range(4)]

    assert "--end_fsync=1" in command
    assert min(without for _, without in pairs) < min(flushed for flushed, _ in pairs)


@needs_fio
def test_fio_reads_a_file_whose_name_means_something_to_it(disk):
    folder = disk / "a:b$jobname"
    folder.mkdir()

    assert execute(read_file(folder), engine="fio")["status"] == "valid"


@needs_fio
def test_fio_that_fails_says_why_in_one_line(disk):
    with pytest.raises(EngineError, match="fio ended with exit code 1: …") as failed:
        external.run_external(EXTERNAL["fio"], None, order(disk / "missing.bin"))

    assert "\n" not in str(failed.value)


@pytest.mark.parametrize("name", ADAPTERS)
def test_the_figures_of_an_answer_are_those_it_holds(name):
    engine, text = ADAPTERS[name]

    outcome = external.checked_outcome(engine, text, ORDER, 1.0)

    assert (outcome.moved_bytes, outcome.requests) == (32 * MIB, 32)
    assert outcome.wall_s == pytest.approx(0.0441, rel=0.01)
    assert outcome.version == {"fio": "fio-3.33", "ior": "IOR-3.3.0"}[name]
    assert sum(outcome.parts.values()) == pytest.approx(outcome.wall_s) or not outcome.parts


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("fio: this platform does not support process shared mutexes, forcing use of threads.\n", ""),
        (
            "WARNING: {unfinished\nnote: both iodepth >= 1 and synchronous I/O engine are selected\n",
            "\ntrailing }{ words",
        ),
        ("\x00\ufffd{}", "}\n}\n]"),
    ],
)
def test_words_around_an_answer_do_not_matter(name, before, after):
    engine, text = ADAPTERS[name]

    assert engine.outcome(before + text + after, ORDER) == engine.outcome(text, ORDER)


def _fio(change):
    document = json.loads(FIO)
    change(document["jobs"][0])
    return json.dumps(document)


BROKEN_FIO = [
    ("", "gave no complete answer, and printed nothing"),
    ("fio: failed to parse\n", "gave no complete answer: …fio: failed to parse"),
    (FIO[: len(FIO) // 2], "gave no complete answer: …"),
    (FIO + FIO, "gave 2 answers"),
    (
        FIO.replace('"runtime" : 44', '"runtime" : nan').replace('"runtime": 44', '"runtime": -nan'),
        "no number runtime",
    ),
    (FIO.replace("762600727", "NaN"), "no number bw_bytes"),
    (FIO.replace("762600727", "inf"), "no number bw_bytes"),
    (FIO.replace("762600727", "1e999"), "no number bw_bytes"),
    (FIO.replace("762600727", "7626007"), "bytes/s, but also"),
    (FIO.replace('"total_ios": 32', '"total_ios": "32"'), "no number total_ios"),
    (_fio(lambda job: job.pop("read")), "has no result of the read"),
    (_fio(lambda job: job["read"].pop("io_bytes")), "no number io_bytes"),
    (_fio(lambda job: job["read"].update(io_bytes=0)), "impossible numbers"),
    (_fio(lambda job: job["read"].update(io_bytes=31 * MIB)), "bytes were to be read"),
    (_fio(lambda job: job.update(error=5)), "error 5"),
    ('{"jobs": []}', "does not have exactly one job"),
    ('{"jobs": {"read": 1}}', "does not have exactly one job"),
    ('{"jobs": [[]]}', "does not have exactly one job"),
]
RESULT = IOR[IOR.index('{\n          "access"') : IOR.index('\n      ], \n      "max"')]


@pytest.mark.parametrize(
    "text",
    [
        IOR.replace("      ], \n", "", 1),  # issue 233
        IOR.replace("}\n", "}\n]\n]\n") + "[ ]\n}\n",  # issue 102
        IOR.replace(
            '"Results": [\n', '"Results": [\nCommencing read performance test: Sat Nov 21 22:03:32 2026\n'
        ),  # 503
        "IOR-3.3.0: MPI Coordinated Test of Parallel I/O\n" + IOR,
    ],
)
def test_what_ior_is_known_to_break_does_not_matter(text):
    assert ior_outcome(text, ORDER) == ior_outcome(IOR, ORDER)


BROKEN_IOR = [
    ("", "gave no complete result, and printed nothing"),
    (IOR[: IOR.index('"closeTime"')], "gave no complete result: …"),
    (IOR + RESULT, "gave 2 results"),
    (IOR.replace('"access": "read"', '"access": "write"'), "gave no complete result"),
    (IOR.replace('"bwMiB": 725.6236', '"bwMiB": nan'), "no number bwMiB"),
    (IOR.replace('"bwMiB": 725.6236', '"bwMiB": 800.0'), "bytes/s, but also"),
    (IOR.replace('"totalTime": 0.0441', '"totalTime": 0.0000'), "impossible numbers"),
    (IOR.replace('"closeTime": 0.0000', '"closed": 0'), "no number closeTime"),
]


@pytest.mark.parametrize(
    ("engine", "text", "word"), [*(("fio", *each) for each in BROKEN_FIO), *(("ior", *each) for each in BROKEN_IOR)]
)
def test_a_broken_answer_is_told_with_its_last_words(engine, text, word, capsys):
    with pytest.raises(EngineError) as failed:
        external.checked_outcome(EXTERNAL[engine], text, ORDER, 1.0)

    assert word in str(failed.value)
    assert "\n" not in str(failed.value)
    assert text[-100:].strip() in capsys.readouterr().err


@pytest.mark.parametrize("name", ADAPTERS)
@given(st.text(), st.integers(0, 3000))
def test_no_text_whatever_makes_an_adapter_say_anything_but_a_figure_or_an_error(name, words, cut):
    engine, text = ADAPTERS[name]
    for broken in (words, text[:cut] + words + text[cut:], text[:cut] + words):
        try:
            outcome = external.checked_outcome(engine, broken, ORDER, 1.0)
        except EngineError:
            continue
        assert outcome.moved_bytes == 32 * MIB


FAKE_IOR = """\
#!/bin/sh
[ -n "$FAKE_FAILS" ] && { echo "ior ERROR: cannot open file" >&2; exit 17; }
case " $* " in *" -w "*) access=write; head -c 33554432 /dev/zero > written.bin; sync written.bin ;; *) access=read
  dd if="$(ls read-*.bin)" of=/dev/null bs=1M iflag=direct status=none ;; esac
sleep 0.05
sed "s/\\"access\\": \\"read\\"/\\"access\\": \\"$access\\"/" "$ANSWER"
"""


@pytest.fixture
def fake_ior(tmp_path, monkeypatch):
    """A program ior that really moves the bytes, and says what the recorded answer says."""
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "ior").write_text(FAKE_IOR)
    (folder / "ior").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("ANSWER", str(RECORDED / "ior-3.3-read.txt"))


def test_fio_is_told_milliseconds_for_it_takes_a_fraction_of_a_second_for_no_limit(tmp_path):
    assert "--runtime=750ms" in fio_command(order(tmp_path, "random_read", block=4096, seconds_max=0.75))


@pytest.mark.parametrize("access", ["read", "write"])
def test_a_run_by_ior_has_its_figures_and_its_parts(access, fake_ior, disk, tmp_path):
    file = datafile.make_marked_folder(disk / "baseline") / "written.bin"
    file = file if access == "write" else read_file(disk, 32)

    figures = execute(file, access, engine="auto", size=32 * MIB, raw=tmp_path / "engine-0.txt")

    assert (figures["status"], figures["reason"]) == ("valid", None)
    assert (figures["engine"], figures["engine_version"]) == ("ior", "IOR-3.3.0")
    assert figures["wall_parts"] == ["open_s", "transfer_s", "close_s"]
    assert figures[f"{access}_mb_per_s"] == pytest.approx(32 * MIB / 1e6 / 0.0441)
    assert f"-o {file.name}" in (tmp_path / "engine-0.txt").read_text()


def test_an_engine_that_fails_leaves_its_words(fake_ior, disk, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_FAILS", "1")

    with pytest.raises(EngineError, match="ior ended with exit code 17: …ior ERROR: cannot open file"):
        execute(read_file(disk), engine="ior", raw=tmp_path / "engine-0.txt")

    assert "exit code 17" in (tmp_path / "engine-0.txt").read_text()


def test_ior_writes_a_new_file_and_flushes_it_and_reads_one_that_is_there():
    written, read = (ior_command(replace(ORDER, access=access)) for access in ("write", "read"))

    assert " ".join(written) == (
        "ior -a POSIX -w -e -k -i 1 -b 33554432 -t 1048576 --posix.odirect -o read.bin -O summaryFormat=JSON"
    )
    assert read[3:5] == ["-r", "-E"]
    assert "--posix.odirect" not in ior_command(replace(ORDER, direct=False))


def _places(file, **asked):
    """Have fio read blocks at random places of a file; returns the offsets of each reader, in its order."""
    command = fio_command(order(file, "random_read", block=12_288, seconds_max=60, **asked))
    external.program_output(
        [*command, "--write_lat_log=places", "--log_offset=1", "--per_job_logs=1"], file.parent, None
    )
    logs = sorted(file.parent.glob("places_clat.*.log"))
    return [[int(line.split(",")[4]) for line in log.read_text().splitlines()] for log in logs]


@needs_fio
def test_no_block_is_read_twice_by_readers_of_fio_at_places_that_follow_from_the_seed_and_are_others_for_each(disk):
    file, blocks = read_file(disk), 8 * MIB // 12_288
    first, again, other = (_places(file, threads=3, seed=seed) for seed in (0, 0, 1))

    everything = [place // 12_288 for reader in first for place in reader]
    assert len(first) == 3
    assert len(set(everything)) == len(everything) == blocks - blocks % 3
    assert all(0 <= block < blocks for block in everything)
    assert first == again
    assert all(one != two for one, two in zip(first, other, strict=True))
    assert first[0] != [place - blocks // 3 * 12_288 for place in first[1]]
    assert all(reader != sorted(reader) for reader in first)


@needs_fio
def test_there_are_no_more_readers_of_fio_than_blocks(disk):
    readers = _places(read_file(disk), size=2 * 12_288, threads=5)

    assert sorted(readers) == [[0], [12_288]]


def test_an_engine_ends_with_the_run_that_started_it(tmp_path):
    code = (
        "import sys; from pathlib import Path; from jobs.benchmarks.engines import external\n"
        "external.program_output(['sh', '-c', 'echo $$ > pid; exec sleep 300'], Path(sys.argv[1]), None)"
    )
    root = Path(external.__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=root) as run:
        pid = tmp_path / "pid"
        assert eventually(lambda: pid.exists() and pid.read_text().strip())
        engine = psutil.Process(int(pid.read_text()))
        run.kill()

    assert eventually(lambda: not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE)


@pytest.mark.parametrize("text", ["[" * 5_000, '{"a": ' * 5_000])
def test_an_answer_without_an_end_is_no_answer(text):
    assert list(external.json_objects(text)) == []
