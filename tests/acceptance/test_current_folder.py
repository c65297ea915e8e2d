"""A file of the current folder stands for no module of ours, of a dependency or of Python, however we are started."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance import door

# The shortest campaign that makes data, measures and reports without TensorFlow.
BASELINE = ("benchmark=baseline", "benchmark.access=random_read", "benchmark.file_mb=4", "benchmark.seconds_max=1")
TINY = (*door.TINY, "runs=2", "cluster=local")

OURS = ("analysis", "campaign", "conf", "jobs")
THEIRS = (
    "PIL", "darshan", "filelock", "fontTools", "h5py", "hydra", "hydra_plugins", "jinja2", "keras", "matplotlib",
    "numpy", "obstore", "omegaconf", "pandas", "psutil", "rich", "submitit", "tensorflow", "yaml", "argparse", "copy",
    "csv", "ctypes", "hashlib", "json", "logging", "multiprocessing", "pickle", "queue", "random", "secrets", "select",
    "signal", "socket", "statistics", "string", "struct", "subprocess", "tempfile", "uuid",
)  # fmt: skip


@pytest.fixture
def plant(tmp_path):
    """Fill a folder with modules of others' names; one that is imported leaves its name and ends the program."""
    (tmp_path / "imported").mkdir()
    home = tmp_path / "home"
    home.mkdir()

    def planted(but):
        for name in {*OURS, *THEIRS} - {but}:
            trace = f"open({str(tmp_path / 'imported' / name)!r}, 'w').close()\nraise SystemExit(0)\n"
            (home / f"{name}.py").write_text(trace)
            (home / name).mkdir()  # what is a folder as well comes before the file
            for each in ("__init__", "__main__"):
                (home / name / f"{each}.py").write_text(trace)
        return home

    yield planted
    assert [path.name for path in (tmp_path / "imported").iterdir()] == []


def console_script(folder: Path) -> list[object]:
    """Write the console script, as an installer does; returns the words that start it."""
    module, main = re.search(r'tfio-campaign = "([\w.]+):(\w+)"', (door.ROOT / "pyproject.toml").read_text()).groups()
    text = f"import sys\nfrom {module} import {main}\nif __name__ == '__main__':\n    sys.exit({main}())\n"
    (folder / "tfio-campaign").write_text(text)
    return [sys.executable, folder / "tfio-campaign"]


@pytest.mark.parametrize("words", [BASELINE, pytest.param((), marks=pytest.mark.long)], ids=["baseline", "tensorflow"])
@pytest.mark.parametrize("as_script", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_campaign_and_its_report_take_nothing_of_the_current_folder(as_script, words, plant, tmp_path):
    first = console_script(tmp_path) if as_script else door.words_of("campaign")
    home = plant("" if as_script else "campaign")

    done = [
        subprocess.run([*first, *each], cwd=home, env=door.environment(), capture_output=True, text=True, check=False)
        for each in ((*words, *TINY), ["report"])
    ]

    assert [each.returncode for each in done] == [0, 0], done[0].stderr
    assert len(door.records(home / "results")) == 1
    assert (home / "results" / "report.html").stat().st_size > 0


@pytest.mark.parametrize(
    ("module", "words", "shown"),
    [
        ("campaign", ["--version"], "tfio-campaign"),
        ("analysis", ["nothing"], "nothing"),
        ("analysis", ["profile", "log.darshan"], "log.darshan"),
        ("jobs", ["micro", "nowhere"], "nowhere"),
        ("jobs.burst_buffer", ["status", "fast", "slow"], ""),
    ],
)
def test_a_program_of_ours_takes_nothing_of_the_current_folder_but_its_package(module, words, shown, plant):
    home = plant(module.partition(".")[0])
    (home / "log.darshan").write_bytes(b"3.41\0\0\0\0")  # it is read in a process of its own

    done = door.cli(*words, program=module, cwd=home)

    assert shown in done.out + done.err
    assert "Traceback" not in done.err


def test_a_program_of_the_user_that_imports_us_keeps_its_folder(tmp_path):
    (tmp_path / "mine.py").write_text("import jobs.burst_buffer\nimport beside\nprint(beside.WORD)\n")
    (tmp_path / "beside.py").write_text("WORD = 'mine'\n")

    assert door.cli(program="mine", cwd=tmp_path).out == "mine\n"


def test_a_checkout_that_is_not_installed_works_in_its_root(tmp_path):
    """Its own modules are then files of the current folder."""
    for package in OURS:
        shutil.copytree(door.ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "startup").mkdir()
    bare = f"import sys; sys.path[:] = [each for each in sys.path if each != {str(door.ROOT)!r}]"
    (tmp_path / "startup" / "sitecustomize.py").write_text(bare)

    done = door.cli("--dry-run", *TINY, cwd=tmp_path, PYTHONPATH=tmp_path / "startup")

    assert (done.code, "micro-demo-local" in done.out + done.err) == (0, True)
