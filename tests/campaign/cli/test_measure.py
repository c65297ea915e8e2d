"""`python -m campaign measure`: what it plans, what it says beforehand, and what it makes of the records."""

import copy
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from campaign import console
from campaign.__main__ import run_guarded
from campaign.cells import record
from campaign.cli import cell_command as command
from campaign.cli import measure
from campaign.cli import run as main_verb
from campaign.config import command_line
from campaign.config.collect import collect_points
from campaign.errors import EnvironmentFaultError, UsageError
from tests.campaign.fake_template import failed, figures
from tests.campaign.on_disk import leave_record


@pytest.fixture(scope="module")
def composed():
    """What the configuration makes of the words of the tests, each composed once."""
    points = {}

    def collect(words):
        if (key := tuple(words)) not in points:
            points[key] = collect_points(words)
        return copy.deepcopy(points[key])

    return collect


@pytest.fixture(scope="module")
def storage_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("me")


@pytest.fixture
def place(tmp_path, storage_folder, composed, monkeypatch):
    """A folder on a storage, empty and of one name in all tests; the campaign's own folder is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measure, "collect_points", composed)
    yield storage_folder
    shutil.rmtree(storage_folder)
    storage_folder.mkdir()


@pytest.fixture
def ask(monkeypatch):
    """A function: call the verb; its plan, its words, and what prints the result and returns it for JSON."""

    def ask(*words):
        seen = []
        show = lambda shown, as_json: lambda after: (shown(after), as_json(after))[1]  # noqa: E731
        keep = lambda planned, argv, _, *shown: seen.append((planned, argv, show(*shown))) or 0  # noqa: E731
        monkeypatch.setattr(main_verb, "run_plan", keep)
        code = measure.main([*map(str, words)])
        return seen.pop() if seen else code

    return ask


def planned_of(planned):
    """Access, preprocessing and threads of each cell."""
    settings = [entry.cell.settings for entry in planned.entries]
    return [
        (each["benchmark"].get("access"), each["benchmark"].get("preprocess"), each.get("threads")) for each in settings
    ]


def test_it_measures_the_storage_by_itself_and_then_what_the_pipeline_gets_of_it(place, ask):
    planned, words, _ = ask(place)

    random = [("random_read", None, count) for count in (1, 4, 16, 32)]
    pipeline = [(None, decodes, count) for decodes in (False, True) for count in (1, 4, 16)]
    assert planned_of(planned) == [("read", None, None), *random, *pipeline]
    assert {each.cell.settings["storage"]["root"] for each in planned.entries} == {str(place)}
    assert words == ["measure", str(place)]
    assert {each.cell.settings["dataset"].get("files") for each in planned.entries[1:]} == {1024}


def test_words_of_a_grid_are_those_of_any_campaign(place, ask):
    planned, words, _ = ask("threads=2,8", place, "runs=3", "dataset.files=2000", "benchmark.image_size=64", "seed=3")

    assert [count for access, _, count in planned_of(planned) if access == "random_read"] == [2, 8, 16]
    assert [count for access, _, count in planned_of(planned) if access is None] == [2, 8, 2, 8]
    assert planned.conduct["runs"] == 3
    assert planned.entries[-1].cell.settings["benchmark"]["image_size"] == 64
    assert words[:2] == ["measure", str(place)]
    assert command_line.strip_verb(words) == words[2:]


def test_the_user_s_own_images_are_read_where_they_lie(place, ask):
    images = place / "images" / "a"
    images.mkdir(parents=True)
    for number in range(3):
        (images / f"{number}.jpg").write_bytes(b"x" * 1000)
    (images / "README").write_bytes(b"x" * 10**6)

    planned, words, _ = ask(place, "--data", images.parent)

    assert {each.cell.settings["dataset"].get("path") for each in planned.entries[1:]} == {str(images.parent)}
    assert {each.cell.settings["iterations"] for each in planned.entries if "iterations" in each.cell.settings} == {
        None
    }
    assert words == ["measure", str(place), f"--data={images.parent}"]
    assert command_line.strip_verb(words) == []
    assert [words for _, words, _ in [ask(f"--data={images.parent}", place)]] == [words]


def test_odd_names_are_taken_as_they_are(place, ask):
    odd = place / "a 'b' \"c\", d=e ${oc.env:HOME}"
    odd.mkdir()

    planned, _, _ = ask(odd)

    assert planned.entries[0].cell.settings["storage"]["root"] == str(odd)


def test_wrong_places_are_told_with_the_cure(place, ask):
    (place / "file").touch()
    (place / "images").mkdir()
    (place / "empty").mkdir()
    (place / "empty" / "a.jpg").touch()
    (place / "me").mkdir()
    other = "/dev/shm" if os.stat("/dev/shm").st_dev != place.stat().st_dev else "/proc"  # noqa: S108, PTH116
    for words, why in (
        ((), "takes one folder, and none is named"),
        ((place, place), "takes one folder, not 2"),
        ((place / "gone",), "is not there"),
        (("",), "names no folder"),
        ((place / "file",), "is a file, not a folder"),
        ((place, "--data", place / "gone"), "is not there"),
        ((place, "--data", other), "lies on another file system"),
        ((place / "images", "--data", place), "lies in the images"),
        ((place / "me", "--data", place / "empty"), "the images in .*empty are empty"),
        ((place, "benchmark=alexnet"), "has its own benchmarks"),
        ((place, "storage=hdd"), "PATH says where"),
        ((place, "dataset.path=/data"), "PATH says where"),
        ((place, "--cfg", "job"), "no single configuration"),
        ((place, "--only", "nothing"), "no cell of this grid"),
        ((place, "nothing=1"), "nothing"),
    ):
        with pytest.raises(UsageError, match=why) as error:
            ask(*words)
        assert error.value.hint


def test_a_folder_where_nothing_can_be_written_is_refused(place, ask, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK | os.X_OK)

    with pytest.raises(EnvironmentFaultError, match="not writable") as error:
        ask(place)
    assert "read-only" in error.value.hint


def test_a_file_system_in_memory_is_refused(ask):
    with pytest.raises(EnvironmentFaultError, match=r"lies in memory \(tmpfs\)"):
        ask("/dev/shm")  # noqa: S108


def test_a_full_disk_is_told_before_anything_is_made(place, ask, monkeypatch):
    monkeypatch.setattr("jobs.system.files.free_bytes", lambda _: 10**8)

    with pytest.raises(EnvironmentFaultError, match=r"needs 3\d\d MB more, and its device has 100 MB free"):
        ask(place)
    assert not [*place.iterdir()]


def test_it_says_first_how_many_bytes_and_minutes_it_takes(place, ask, capsys):
    ask(place)

    (line,) = [line for line in capsys.readouterr().err.splitlines() if "to run" in line]
    found = re.match(
        r"11 cells, 11 to run: reads ([\d.]+) GB and makes ([\d.]+) GB of files at most; about (\d+) min where the"
        r" storage gives 100 MB/s, (\d+) min at 10",
        line,
    )
    read_gb, made_gb, fast, slow = map(float, found.groups())
    # 5 baselines of 201 MB and 6 cells of 1,024 images of 121 kB, four runs each.
    assert read_gb == pytest.approx(4 * (5 * 0.2 + 6 * 1024 * 121e3 / 1e9), rel=0.03)
    assert made_gb == pytest.approx(0.2 + 0.125, rel=0.1)
    assert 1 <= fast <= 5 < slow


@pytest.mark.parametrize(
    ("answer", "flags", "starts"), [(True, (), True), (None, (), True), (False, (), False), (False, ("--yes",), True)]
)
def test_it_asks_on_a_terminal_and_needs_none(answer, flags, starts, place, ask):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "ask_for_yes", lambda _: answer)

        assert (ask(place, *flags) != 1) is starts


def test_help_names_all_that_it_takes(capsys):
    assert run_guarded(["measure", "--help"]) == 0

    said = capsys.readouterr().out
    assert all(word in said for word in ("--data DIR", "threads=1,2,8", "--yes", "--dry-run", "Exit codes"))


RATES = {"read": 160.0, ("random_read", 1): 20.0, ("random_read", 8): 60.0, ("random_read", 16): 70.0,
         (False, 1): 19.0, (False, 8): 45.0, (True, 1): 15.0, (True, 8): 36.0}  # fmt: skip


def leave(planned, entry, rates):
    """Leave the record of a cell: three runs of these MB/s, or of one, during which the storage was busy."""
    data, machine = {"path": "/d", "checksum": "c"}, {"host": "n", "affinity": [0, 1]}
    each = rates if isinstance(rates, tuple) else [rates] * 3
    runs = [rate if isinstance(rate, dict) else run_of(entry, rate) for rate in each]
    leave_record(planned.folder, entry.cell, *runs, data=data, status="done", provenance=machine)


def run_of(entry, rate):
    wall_s = 124e6 / 1e6 / rate
    use = {
        "busy_s": 0.95 * wall_s,
        "read_bytes": 10**8,
        "written_bytes": 0,
        "own_read_bytes": 10**8,
        "own_written_bytes": None,
    }
    run = figures(
        read_mb_per_s=rate, bytes_read=124_000_000, wall_s=wall_s, elapsed_s=wall_s, load_s=wall_s, other_s=0.0,
        cpu_s=0.1 * wall_s, other_cpu=0.0, device_bytes=124_000_000,
        device_use=[{"device": "sda", "block_bytes": 512, "reads": 100, "writes": 0, "flushes": 0, "flush_s": 0.0,
                     "own_reads": 100, **use}],
    )  # fmt: skip
    run |= {"images_per_s": 8.0 * rate, "rate": {"key": "read_mb_per_s", "unit": "MB/s"}, "status": "ended"}
    if "access" in entry.cell.settings["benchmark"]:
        run = {name: value for name, value in run.items() if not name.startswith("image")} | {"requests": 1000}
    return run


@pytest.fixture
def measured(place, ask, monkeypatch, capsys):
    """A function: leave these records of a campaign with 1 and 8 threads; returns what is printed of it."""

    def show(rates, *words):
        planned, _, shown = ask(place, "threads=1,8", *words)
        planned.folder.records.mkdir(parents=True, exist_ok=True)
        for entry in planned.entries:
            benchmark, threads = entry.cell.settings["benchmark"], entry.cell.settings.get("threads")
            kind = benchmark.get("access", benchmark.get("preprocess"))
            if (rate := rates.get(kind if kind == "read" else (kind, threads))) is not None:
                leave(planned, entry, rate)
        capsys.readouterr()
        show.document = json.loads(json.dumps(shown(planned.refresh())))
        return capsys.readouterr().out

    return show


def test_the_table_has_what_the_storage_gives_what_comes_of_it_and_the_price(measured, place):
    lines = measured(RATES).splitlines()

    rows = [re.split(r" {2,}", line.strip()) for line in lines[1:9]]
    assert rows == [
        ["one file, end to end", "1", "160", "160 to 160"],
        ["random blocks", "1", "20", "20 to 20"],
        ["random blocks", "8", "60", "60 to 60"],
        ["random blocks", "16", "70", "70 to 70"],
        ["files, read only", "1", "19", "19 to 19", "152", "95%", "5%", "latency"],
        ["files, read only", "8", "45", "45 to 45", "360", "75%", "25%", "latency"],
        ["files, decoded", "1", "15", "15 to 15", "120", "75%", "21%", "latency"],
        ["files, decoded", "8", "36", "36 to 36", "288", "60%", "20%", "latency"],
    ]
    said = "\n".join(lines[9:])
    assert f"{place} feeds TensorFlow with 288 images/s (36 MB/s) at most, with 8 threads" in said
    assert "without decoding TensorFlow reads 45 MB/s (8 threads); the storage by itself gives 160 MB/s." in said
    assert "What would help: more reads at once (threads)" in said
    assert re.search(r"; python -m campaign show [0-9a-f]{10} says more\.", said)
    cells = measured.document["cells"]
    told = [[each["kind"], str(each["threads"]), f"{each['mb_per_s']:.4g}"] for each in cells]
    assert told == [row[:3] for row in rows]
    assert [each["bound"] and each["bound"]["word"] for each in cells] == [None] * 4 + ["latency"] * 4
    assert measured.document["says"] == lines[-3:-1]


def test_a_cell_whose_runs_scatter_has_a_dagger_and_the_others_have_none(measured):
    scattered = RATES | {(True, 8): (30.0, 36.0, 42.0)}
    sign = "† unstable: (max - min) / median is above checks.spread_max"

    stable, unstable = measured(RATES), measured(scattered)

    assert "†" not in stable
    assert [line.split()[2:6] for line in unstable.splitlines() if "†" in line and line != sign] == [
        ["8", "36†", "30", "to"]
    ]
    assert sign in unstable.splitlines()
    assert [each["unstable"] for each in measured.document["cells"]] == [False] * 7 + [True]


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("checks.other_device_max=0.5", "judged by looser checks than the site's: checks.other_device_max=0.5"),
        ("site.spread_max=0.5", "judged by checks.spread_max=0.5, too wide to compare anything"),
    ],
)
def test_cells_of_looser_checks_are_not_compared_and_it_is_said_why(measured, word, why):
    lines = measured(RATES, word).splitlines()

    assert [re.split(r" {2,}", line.strip())[3:] for line in lines[5:9]] == [
        ["19 to 19", "152", "latency"],
        ["45 to 45", "360", "latency"],
        ["15 to 15", "120", "latency"],
        ["36 to 36", "288", "latency"],
    ]
    (said,) = (line for line in lines if line.startswith("8 of 8 cells"))
    assert why in said
    assert "; not compared with others; cure: measure with" in said
    assert said in measured.document["says"]


def test_what_lacks_is_said_and_not_guessed(measured):
    said = measured({key: rate for key, rate in RATES.items() if key not in {(True, 8), "read"}})

    assert re.search(r"one file, end to end +1 +- +planned", said)
    assert re.search(r"files, decoded +8 +- +planned", said)
    assert "feeds TensorFlow with 120 images/s" in said


def test_without_a_cell_that_decodes_nothing_is_said_of_how_fast_it_feeds(measured):
    assert "is not known: no cell with decoding is done" in measured({"read": 160.0})


def test_the_reason_of_the_cells_that_decode_is_said_where_no_number_of_theirs_counts(measured):
    broken = failed("a.jpg is broken")

    said = measured({"read": 160.0, (True, 1): (broken, broken, broken)})

    assert re.search(r"is not known: 0 of 3 measured runs valid, \d needed; a\.jpg is broken\.", said)


def test_without_decoding_the_answer_is_that_of_the_files_that_are_read(measured):
    said = measured(RATES, "benchmark.preprocess=false")

    assert "TensorFlow reads 45 MB/s at most, with 8 threads, without decoding." in said
    assert "not known" not in said


def test_advice_on_its_cells_gives_their_commands(place, ask, folder):
    planned, words, _ = ask(place, "threads=1", "runs=3")
    entry = planned.entries[-1]
    made = record.make_record(entry.cell, {"token": "t", "words": words}, {}, {})

    found = command.arguments_for(made, {"threads": 2}, folder.root, {"words": words})

    assert {"runs=3", "threads=2", f"storage.root={place}"} <= set(found)
    assert not [word for word in found if word in ("measure", str(place))]


@pytest.mark.long
def test_a_storage_is_measured_and_the_same_command_measures_nothing_again(place):
    words = ["threads=1", "runs=2", "min_valid_runs=1", "dataset.files=64", "iterations=1", "benchmark.file_mb=16",
             "checks.other_cpu_max=1000", "checks.other_device_max=1", "checks.stolen_max=1000", "checks.delayed_max=1",
             "checks.time_error_max=0.5", "cluster=local", "wait_quiet_s=null"]  # fmt: skip
    call = [sys.executable, "-m", "campaign", "measure", str(place), *words]

    first, again = (subprocess.run(call, capture_output=True, text=True, check=False) for _ in range(2))

    assert first.returncode == again.returncode == 0, first.stderr
    assert first.stdout == again.stdout
    assert len(re.findall("^files, decoded", first.stdout, re.MULTILINE)) == 1
    assert "0 to run" in again.stderr
    assert "feeds TensorFlow with" in first.stdout
