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
FEW = ["truncated", "noise", "NUL", "lists for numbers", "deep nesting"]
# The word of the command that a message names, where it does not name the file.
NAMED_BY = {"site yaml": "configuration file", "system trace": "--system"}
# What no reader of any format takes for a whole file.
ALWAYS_REFUSED = {"empty", "noise", "another type", "deep nesting"}


def record(folder):
    return next(door.stored(folder, door.record(100.0, 101.0)).glob("records/*/record.json"))


def campaign(folder):
    return door.stored(folder, door.record(100.0, 101.0)) / "campaign.json"


def copied(source, name):
    def make(folder):
        folder.mkdir()
        return shutil.copy(source, folder / name)

    return make


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


# Program, the words that read a file, and how a good one is made.
FORMATS = {
    "record.json": ("campaign", lambda file: ("show", file.parent.name, file.parents[2]), record),
    "campaign.json": ("campaign", lambda file: ("status", file.parent), campaign),
    "manifest.json": ("campaign", again, manifest),
    "site yaml": ("campaign", lambda file: ("--dry-run", "--config-dir", file.parents[1], "site=mine"), site),
    "time log": (
        "analysis", lambda file: ("timelog", file),
        copied(next(MEASURED.glob("hepcnn*/timelog-0.timelog")), "a.timelog"),
    ),
    "profile": ("analysis", lambda file: ("profile", file), profile("a.npz")),
    "darshan": ("analysis", lambda file: ("profile", file), profile("a.darshan")),
    "xplane": ("analysis", lambda file: ("trace", file), copied(STRANGERS / "steps.xplane.pb", "a.xplane.pb")),
    "system trace": (
        "analysis", lambda file: ("trace", "--system", file, STRANGERS / "steps.xplane.pb"),
        copied(min(MEASURED.glob("*/trace-1.csv")), "a.csv"),
    ),
    **{
        f"DLIO's {name}": ("analysis", lambda file: ("mlperf", file.parent), dlio(name))
        for name in ("0_output.json", "0_per_epoch_stats.json", "summary.json")
    },
}  # fmt: skip


@pytest.mark.parametrize("damages", [FEW, pytest.param([*DAMAGES], marks=pytest.mark.long)], ids=["few", "all"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_spoilt_file_is_read_or_refused_and_nothing_else(name, damages, tmp_path):
    program, words, make = FORMATS[name]
    files = {damage: make(tmp_path / f"f{number}") for number, damage in enumerate(["good", *damages])}
    good = files["good"].read_bytes()
    for damage in damages:
        files[damage].write_bytes(DAMAGES[damage](good))

    done = dict(zip(files, door.many(*map(words, files.values()), cwd=tmp_path, program=program), strict=True))

    assert done.pop("good").code in ((0, 1) if name == "manifest.json" else (0,))
    for damage, each_done in done.items():
        said, known = each_done.out + each_done.err, (files[damage].name, files[damage].parent.name, NAMED_BY.get(name))
        assert each_done.code in (0, 1, 2, 3), f"{damage}: {said}"
        assert "Traceback" not in said, damage
        assert each_done.code == 0 or door.is_one_cure(each_done.err), f"{damage}: {said}"
        assert each_done.code == 0 or any(word and word in said for word in known), f"{damage}: {said}"
    assert {damage for damage in ALWAYS_REFUSED & {*damages} if done[damage].code == 0} == set()


def test_a_damaged_record_counts_nowhere_and_the_others_count(tmp_path):
    good = [door.record(100.0, 102.0, threads=threads) for threads in (1, 2)]
    door.stored(tmp_path / "results", *good, *(door.record(7.0, 7.0, threads=4 + n) for n in range(len(DAMAGES))))
    spoilt = {}
    for (damage, spoil), path in zip(DAMAGES.items(), sorted(tmp_path.glob("results/records/*"))[2:], strict=True):
        file = path / "record.json"
        file.write_bytes(spoil(file.read_bytes()))
        spoilt[path.name] = damage

    done = door.cli("results", "--out", "out", cwd=tmp_path, program="analysis")
    listed = door.cli("status", "results", "--json", cwd=tmp_path)

    assert (done.code, listed.code) == (1, 1)
    assert "Traceback" not in done.err + listed.err
    medians = door.table(tmp_path / "out", "medians")
    assert {101.0} <= {*medians["images_per_s"]} <= {101.0, 7.0}
    assert {each["status"] for cell, each in listed.json["cells"].items() if cell not in spoilt} == {"done"}
