"""Benchmarks by hand: their figures on standard output, without Hydra, submitit or a campaign."""

import json
import os
import resource
import subprocess
import sys
from types import SimpleNamespace

import pytest

from jobs import run
from jobs.__main__ import main
from jobs.events import posix_window
from tests.jobs.jobs_factory import ROOT, truncate, write_jpegs

# Others may take the processor, or the disk; and for `undelayed` a short run is not looked at often enough.
BUSY = ("quiet", "time_adds_up", "undelayed")
BUILTIN = ("--engine", "builtin")
BLOCKED = ("hydra", "omegaconf", "submitit", "pandas", "matplotlib")


@pytest.fixture
def _without_the_campaign(tmp_path, monkeypatch):
    """What `jobs/` must not need cannot be imported."""
    for name in BLOCKED:
        folder = tmp_path / "blocked" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(f"raise ModuleNotFoundError('{name} is blocked', name='{name}')\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'blocked'}{os.pathsep}{ROOT}")


def by_hand(*words, **where):
    command = [sys.executable, "-m", "jobs", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **where)


@pytest.fixture
def called(capsys):
    """Do the same in this process."""

    def call(*words):
        with pytest.raises(SystemExit) as ended:
            main([*map(str, words)])
        printed = capsys.readouterr()
        return SimpleNamespace(returncode=ended.value.code, stdout=printed.out, stderr=printed.err)

    return call


@pytest.mark.usefixtures("_without_the_campaign")
def test_the_figures_are_json_on_standard_output_and_nothing_else_is(disk):
    write_jpegs(disk / "data", 24)

    done = by_hand("micro", disk / "data", "--threads", 2, "--batch-size", 8, "--image-size", 32)

    figures = json.loads(done.stdout)
    assert (figures["images"], figures["image_errors"], len(figures["step_load_s"])) == (24, 0, 3)
    assert all(check["passed"] for check in figures["checks"] if check["rule"] not in BUSY)
    assert done.returncode == (0 if figures["status"] == "valid" else 1)  # others may be loud meanwhile
    assert sorted(path.name for path in disk.iterdir()) == ["blocked", "data"]


@pytest.mark.parametrize("words", [(), ("--help",), ("--threads", "many", "folder"), ("--cache", "hot", "folder")])
def test_usage_errors_end_with_two_and_help_with_zero(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["micro", *words])

    assert ended.value.code == (0 if words == ("--help",) else 2)
    said = capsys.readouterr()
    assert (
        said.out.startswith("usage: python -m jobs micro")
        if words == ("--help",)
        else (said.err.startswith("error: ") and said.err.endswith("\n\nhint: python -m jobs micro --help\n"))
    )


SIDES = {"fast": {"root": "/a", "name": "ssd"}, "slow": {"root": "/b", "name": "hdd"}}


@pytest.mark.parametrize(
    ("words", "where", "value"),
    [
        ("micro --threads 3", "threads", 3),
        ("micro --batch-size 5 --iterations 2", "iterations", 2),
        ("micro --prefetch 7", "prefetch", 7),
        ("micro --seed 9", "seed", 9),
        ("micro --cache as_is", "cache", "as_is"),
        ("micro --image-size 40", "benchmark.image_size", 40),
        ("micro --profile calls.npz --profile-mode counters", "profile", {"posix": "counters"}),
        ("micro --tensorflow t.npz --tensorflow-steps 5-15", "profile", {"tensorflow": "5-15"}),
        ("alexnet --accelerator emulated --step-s 0.25", "accelerator", {"name": "emulated", "step_s": 0.25}),
        ("alexnet --checkpoint /a/ssd --every 7", "checkpoint.every", 7),
        ("alexnet --checkpoint /a/ssd --background", "checkpoint.mode", "async"),
        ("alexnet --checkpoint /a/ssd --drain-to /b/hdd", "checkpoint.fast", SIDES["fast"]),
        ("alexnet --checkpoint /a/ssd --drain-to /b/hdd", "checkpoint.slow", SIDES["slow"]),
        ("alexnet --checkpoint /a/ssd --drain-to /b/hdd --every 8", "checkpoint.every", 8),
    ],
)
def test_what_a_word_asks_for_is_a_setting_of_the_run(words, where, value, shared_images, monkeypatch):
    asked, (benchmark, *more) = [], words.split()
    failed = {"status": "failed", "end": {"code": "stopped"}}
    monkeypatch.setattr(run, "execute", lambda request: asked.append(request) or failed)
    with pytest.raises(SystemExit):
        main([benchmark, str(shared_images), *more])

    found = asked[0]["settings"]
    for key in where.split("."):
        found = found[key]
    assert found == value
    targets = [more[more.index(word) + 1] for word in ("--checkpoint", "--drain-to") if word in more]
    assert [str(each) for each in (asked[0]["checkpoint"] or {"folders": []})["folders"]] == targets


@pytest.mark.usefixtures("_without_the_campaign")
def test_a_folder_without_images_ends_with_two_and_a_hint_and_no_file_there_stands_for_a_module(tmp_path, called):
    (tmp_path / "empty").mkdir()
    for name in ("numpy", "json"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('of the user')\n")

    for done in (by_hand("micro", tmp_path / "missing", cwd=tmp_path), called("micro", tmp_path / "empty")):
        assert (done.returncode, done.stdout, done.stderr.partition(": ")[0]) == (2, "", "error")
        assert "\n\nhint: " in done.stderr


@pytest.fixture
def data(disk):
    write_jpegs(disk / "data", 24)
    return disk / "data"


@pytest.mark.parametrize(("more", "code", "status"), [([], 1, "invalid"), (["--no-preprocess"], 0, "valid")])
def test_an_invalid_run_ends_with_one_and_says_why_and_without_decoding_it_is_valid(job, data, more, code, status):
    truncate(data / "005.jpg")

    figures, ended = job("by_hand", words=[str(data), "--image-size", "32", *more])

    assert (ended, figures["status"]) == (code, status)
    assert ("005.jpg" in str(figures["reason"])) is bool(code)


def test_a_run_by_hand_leaves_its_posix_calls_in_a_file(job, data, tmp_path):
    words = ["--no-preprocess", "--profile", str(tmp_path / "calls.npz"), "--profile-mode", "counters"]

    figures, ended = job("by_hand", words=[str(data), *words])

    window = posix_window.read_window(tmp_path / "calls.npz")
    assert (ended, figures["profile"]["file"], figures["profile"]["mode"]) == (0, "calls.npz", "counters")
    assert sum(each["POSIX_BYTES_READ"] for each in window.files.values()) == figures["bytes_read"]


@pytest.mark.parametrize(
    ("words", "ends"),
    [
        (("theirs", *BUILTIN), (2, "did not make")),
        (("own", "--engine", "ior"), (3, "no program ior")),
        (("own/missing", *BUILTIN), (2, "own/missing is no folder")),
    ],
)
def test_a_missing_engine_ends_in_three_and_a_folder_that_is_not_there_or_somebody_elses_in_two(
    disk, monkeypatch, called, words, ends
):
    monkeypatch.setenv("PATH", "")
    (disk / "theirs" / "baseline").mkdir(parents=True)
    (disk / "theirs" / "baseline" / "thesis.tex").write_text("mine")
    (disk / "own").mkdir()

    done = called("baseline", disk / words[0], "--file-mb", 1, *words[1:])

    assert (done.returncode, ends[1] in done.stderr) == (ends[0], True)
    assert not (disk / "own" / "missing").exists()


def test_what_the_operating_system_refuses_is_told_with_the_file(disk, called):
    (disk / "baseline").mkdir()
    lock = disk / "baseline" / ".tfio-baseline.lock"
    (disk / "baseline" / ".tfio-baseline").write_text(
        "files of tfio-campaign's baselines; remove the folder as you like", encoding="utf-8"
    )
    lock.symlink_to(disk / "precious")

    done = called("baseline", disk, "--file-mb", 16, *BUILTIN)

    assert done.returncode == 2
    assert str(lock) in done.stderr
    assert not (disk / "precious").exists()


def test_too_small_a_limit_of_open_files_is_told_with_its_cure(tmp_path):
    for number in range(3 * 40):
        (tmp_path / f"{number}.bin").write_bytes(b"x")
    words = ("feed", tmp_path, "--accelerators", 40, "--batch-size", 1)

    done = by_hand(*words, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)))

    assert done.returncode == 2
    assert "Too many open files" in done.stderr
    assert done.stderr.endswith("hint: allow more open files: ulimit -n NUMBER\n")
    assert "[Errno" not in done.stderr.rpartition("error: ")[2]
