"""Files that strangers may have made, spoilt: each is read, or refused in one sentence, and never with a traceback.

A table of formats times a table of damages (behaviour 63).
"""

import atexit
import re
import shutil
import tempfile
from functools import cache
from pathlib import Path

import pytest

from tests.acceptance import door

MEASURED = door.STORED / "measured" / "records"
STRANGERS = door.STORED / "strangers"
NOISE = bytes((7 * number * number + 13 * number) % 256 for number in range(3000))
NUMBER = rb"(?<![\w.\"-])-?\d+(\.\d+)?(e[+-]?\d+)?(?![\w\"])"


def each(pattern, new):
    """Return a damage that replaces what matches a pattern at up to eight places, spread over the file."""

    def damage(data):
        places = [match.span() for match in re.finditer(pattern, data)]
        for start, end in reversed(places[:: max(1, len(places) // 8)]):
            data = data[:start] + new + data[end:]
        return data

    return damage


DAMAGES = {
    "truncated": lambda data: data[: len(data) // 2],
    "a byte short": lambda data: data[:-1].rstrip()[:-1],
    "empty": lambda _: b"",
    "noise": lambda _: NOISE,
    "noise inside": lambda data: data[: len(data) // 3] + NOISE[:64] + data[len(data) // 3 + 64 :],
    "NUL": lambda data: data[: len(data) // 2] + b"\0" + data[len(data) // 2 :],
    "huge numbers": each(NUMBER, b"9" * 400),
    "infinite numbers": each(NUMBER, b"1e999"),
    "NaN": each(NUMBER, b"NaN"),
    "negative numbers": each(NUMBER, b"-7"),
    "lists for numbers": each(NUMBER, b"[[]]"),
    "texts for numbers": each(NUMBER, b'"x"'),
    "another type": lambda _: b"[1, 2]\n",
    "deep nesting": lambda _: b"[" * 100_000,
    "deep below a key": lambda data: data.replace(b": ", b": " + b"[" * 5000, 1),
    "ones": lambda data: data[: len(data) // 2] + b"\xff" * 16 + data[len(data) // 2 + 16 :],
}
FEW = ["truncated", "lists for numbers", "deep nesting"]
ALWAYS_REFUSED = {"empty", "noise", "another type", "deep nesting"}  # no reader of any format takes them for whole


def record(folder):
    return next(door.stored(folder, door.record(100.0, 101.0)).glob("records/*/record.json"))


def campaign(folder):
    return door.stored(folder, door.record(100.0, 101.0)) / "campaign.json"


def copied(source, name):
    return lambda folder: shutil.copy(source, (folder.mkdir(), folder / name)[1])


def profile(name):
    """Make the profile of a program by the documented door: as it is saved, or as a Darshan log."""

    def make(folder):
        from jobs.profiler import Profile  # noqa: PLC0415 - as a user's script does

        folder.mkdir()
        with Profile() as seen, (door.ROOT / "pyproject.toml").open("rb") as file:
            file.read()
        (seen.save if name.endswith("npz") else seen.darshan)(folder / name)
        return folder / name

    return make


def dlio(name):
    return lambda folder: shutil.copytree(STRANGERS / "dlio", folder) / name


def site(folder):
    (folder / "site").mkdir(parents=True)
    file = folder / "site" / "mine.yaml"
    file.write_text("defaults: [none, _self_]\nname: mine\nspread_max: 0.2\nstorages:\n  x:\n    root: /x\n")
    return file


READ = "benchmark.argv=[sh,-c,'cat {data}/*/*']"
DATA = ("benchmark=command", READ, "cache=as_is", "cluster=debug", *door.TINY, "runs=1", "warmup_runs=0")


@cache
def made_data():
    """Let a campaign make a data set; returns the folder that holds it."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    assert door.cli(*DATA, cwd=folder).code in (0, 1)
    return folder / "data"


def manifest(folder):
    return next(shutil.copytree(made_data(), folder).glob("datasets/*/manifest.json"))


def again(file):
    return (*DATA, f"storage.root={file.parents[2]}", f"campaign_dir={file.parents[2]}/results")


# The words that read a file, how a good one is made, and, where a message names a word instead of the file, that.
FORMATS = {
    "record.json": (lambda file: ("show", file.parent.name, file.parents[2]), record),
    "campaign.json": (lambda file: ("status", file.parent), campaign),
    "manifest.json": (again, manifest),
    "site yaml": (lambda file: ("--dry-run", "--config-dir", file.parents[1], "site=mine"), site, "configuration file"),
    "time log": (lambda file: ("timelog", file), copied(next(MEASURED.glob("*/timelog-0.timelog")), "a.timelog")),
    "profile": (lambda file: ("profile", file), profile("a.npz")),
    "darshan": (lambda file: ("profile", file), profile("a.darshan")),
    "xplane": (lambda file: ("trace", file), copied(STRANGERS / "steps.xplane.pb", "a.xplane.pb")),
    "system trace": (
        lambda file: ("trace", "--system", file, STRANGERS / "steps.xplane.pb"),
        copied(min(MEASURED.glob("*/trace-1.csv")), "a.csv"), "--system",
    ),
    "DLIO's figures": (lambda file: ("mlperf", file.parent), dlio("0_output.json")),
    "DLIO's times": (lambda file: ("mlperf", file.parent), dlio("0_per_epoch_stats.json")),
    "DLIO's summary": (lambda file: ("mlperf", file.parent), dlio("summary.json")),
}  # fmt: skip


@pytest.mark.parametrize("damages", [FEW, pytest.param([*DAMAGES], marks=pytest.mark.long)], ids=["few", "all"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_spoilt_file_is_read_or_refused_and_nothing_else(name, damages, tmp_path):
    words, make, *known = FORMATS[name]
    files = {damage: make(tmp_path / f"f{number}") for number, damage in enumerate(["good", *damages])}
    good = files["good"].read_bytes()
    for damage in damages:
        files[damage].write_bytes(DAMAGES[damage](good))
    program = "campaign" if [*FORMATS].index(name) < 4 else "analysis"

    done = dict(zip(files, door.many(*map(words, files.values()), cwd=tmp_path, program=program), strict=True))

    assert done.pop("good").code in ((0, 1) if name == "manifest.json" else (0,))
    assert {damage for damage in ALWAYS_REFUSED & {*damages} if done[damage].code == 0} == set()
    for damage, (code, out, err) in ((damage, vars(each).values()) for damage, each in done.items()):
        names = {files[damage].name, files[damage].parent.name, *known}
        assert (code in range(4), "Traceback" in out + err) == (True, False), f"{damage}: {err}"
        assert code == 0 or (door.is_one_cure(err) and any(word in out + err for word in names)), f"{damage}: {err}"


def test_a_damaged_record_counts_nowhere_and_the_others_count(tmp_path):
    good = [door.record(100.0, 102.0, threads=threads) for threads in (1, 2)]
    bad = [door.record(7.0, 7.0, threads=4 + number) for number in range(len(DAMAGES))]
    door.stored(tmp_path / "results", *good, *bad)
    for each, spoil in zip(bad, DAMAGES.values(), strict=True):
        file = tmp_path / "results" / "records" / each["cell"]["id"] / "record.json"
        file.write_bytes(spoil(file.read_bytes()))

    done = door.cli("results", "--out", "out", cwd=tmp_path, program="analysis")
    listed = door.cli("status", "results", "--json", cwd=tmp_path)

    assert (done.code, listed.code, "Traceback" in done.err + listed.err) == (1, 1, False)
    assert {101.0} <= {*door.table(tmp_path / "out", "medians")["images_per_s"]} <= {101.0, 7.0}
    assert {listed.json["cells"][each["cell"]["id"]]["status"] for each in good} == {"done"}
