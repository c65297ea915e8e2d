"""A file of the current folder stands for no module of ours, of a dependency or of Python, however we are started."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.campaign.command_line import TINY

ROOT = Path(__file__).parents[2]
OURS = ("analysis", "campaign", "conf", "jobs")
OTHERS = (
    "PIL", "darshan", "filelock", "fontTools", "h5py", "hydra", "hydra_plugins", "jinja2", "keras", "matplotlib",
    "numpy", "obstore", "omegaconf", "pandas", "psutil", "rich", "submitit", "tensorflow", "yaml",
)  # fmt: skip
OF_PYTHON = (
    "argparse", "copy", "csv", "ctypes", "hashlib", "json", "logging", "multiprocessing", "pickle", "queue", "random",
    "secrets", "select", "signal", "socket", "statistics", "string", "struct", "subprocess", "tempfile", "uuid",
)  # fmt: skip
GRID = ("threads=1", *TINY, "cluster=local", "checks.spread_max=100")


@pytest.fixture
def plant(tmp_path):
    """A folder full of modules with the names of others; one that is imported leaves its name and ends the program."""
    (tmp_path / "imported").mkdir()
    home = tmp_path / "home"
    home.mkdir()

    def planted(*, but=()):
        for name in {*OURS, *OTHERS, *OF_PYTHON} - {*but}:
            trace = f"open({str(tmp_path / 'imported' / name)!r}, 'w').close()\nraise SystemExit(0)\n"
            (home / f"{name}.py").write_text(trace)
            (home / name).mkdir()  # what is a folder as well comes before the file
            for each in ("__init__", "__main__"):
                (home / name / f"{each}.py").write_text(trace)
        return home

    yield planted
    assert [path.name for path in (tmp_path / "imported").iterdir()] == []


def script(folder):
    """The console script, as an installer writes it."""
    module, _, function = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"][
        "tfio-campaign"
    ].partition(":")
    path = folder / "tfio-campaign"
    body = f"if __name__ == '__main__':\n    sys.exit({function}())\n"
    path.write_text(f"import sys\nfrom {module} import {function}\n{body}")
    return path


def ended(command, cwd, **environment):
    return subprocess.run(
        list(map(str, command)), cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=300, check=False,
    )  # fmt: skip


def measured(home, *start):
    """Measure a whole campaign with its report, ask what is said of it, and make the report once more."""
    done = ended([*start, *GRID], home)
    assert done.returncode == 0, done.stderr
    assert (home / "results" / "report.html").stat().st_size > 0
    (record,) = (home / "results").glob("records/*/record.json")
    cell = json.loads(record.read_text())["cell"]["id"]
    for words in (["show", cell], ["report"]):
        after = ended([*start, *words], home)
        assert (after.returncode, "Traceback" in after.stderr) == (0, False), (words, after.stderr)


@pytest.mark.long
def test_the_console_script_takes_nothing_of_the_current_folder(plant, tmp_path):
    start = (sys.executable, script(tmp_path))
    home = plant()

    measured(home, *start)


@pytest.mark.long
def test_python_m_takes_nothing_of_it_but_the_package_that_it_names(plant):
    measured(plant(but=["campaign"]), sys.executable, "-m", "campaign")


def test_python_p_m_takes_nothing_of_it(plant):
    done = ended([sys.executable, "-P", "-m", "campaign", "--dry-run", *GRID], plant())

    assert (done.returncode, "1 cell" in done.stderr) == (0, True)


@pytest.mark.parametrize(
    ("module", "words", "shown"),
    [
        ("campaign", ["--version"], "tfio-campaign"),
        ("analysis", ["verdicts", "--help"], "verdicts"),
        ("analysis", ["nothing"], "nothing"),
        ("analysis", ["profile", "log.darshan"], "log.darshan is no Darshan log that PyDarshan reads"),
        ("jobs", ["micro", "nowhere"], "nowhere"),
        ("jobs.burst_buffer", ["status", "fast", "slow"], ""),
    ],
)
def test_nor_does_a_program_of_ours_but_the_package_that_it_names(module, words, shown, plant):
    home = plant(but=[module.partition(".")[0]])
    (home / "log.darshan").write_bytes(b"3.41\0\0\0\0")  # it is read in a process of its own

    done = ended([sys.executable, "-m", module, *words], home)

    assert shown in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_program_of_somebody_keeps_its_folder_though_it_imports_us(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("import jobs.system.programs\nimport beside\n")
    (tmp_path / "mine" / "__main__.py").write_text("import beside\nprint(beside.WORD)\n")
    (tmp_path / "beside.py").write_text("WORD = 'mine'\n")

    done = ended([sys.executable, "-m", "mine"], tmp_path, PYTHONPATH=str(ROOT))

    assert done.stdout == "mine\n", done.stderr


@pytest.mark.parametrize("words", [["--version"], pytest.param(GRID, marks=pytest.mark.long)])
def test_a_checkout_that_is_not_installed_works_in_its_root(words, tmp_path):
    """Its own modules are then files of the current folder."""
    for package in OURS:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    bare = f"import sys; sys.path[:] = [each for each in sys.path if each != {str(ROOT)!r}]"
    (tmp_path / "startup").mkdir()
    (tmp_path / "startup" / "sitecustomize.py").write_text(bare)

    done = ended([sys.executable, "-m", "campaign", *words], tmp_path, PYTHONPATH=str(tmp_path / "startup"))

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "results" / "report.html").exists() is (words == GRID)
