"""The ways to install that docs/install.md names: without TensorFlow, without internet, in a container."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import venv
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def documented(name, document="docs/install.md"):
    """The command below ``<!-- ci: NAME -->`` of a document."""
    return re.search(rf"<!-- ci: {name} -->\n```bash\n(.+)\n```", (ROOT / document).read_text())[1]


def needed(names):
    """The distributions that these requirements install, with all that those need."""
    found, waiting = {}, [Requirement(name) for name in names]
    while waiting:
        requirement = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name not in found:
            found[name] = metadata.distribution(name)
            waiting += map(Requirement, found[name].requires or ())
    return found


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """An environment with the dependencies of the base alone: its folder of programs."""
    folder = tmp_path_factory.mktemp("base")
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for distribution in needed(PROJECT["dependencies"]).values():
        for top in {file.parts[0] for file in distribution.files} - {"..", "__pycache__"}:
            (packages / top).symlink_to(distribution.locate_file(top))
    (packages / "checkout.pth").write_text(f"{ROOT}\n")
    (folder / "bin" / "tfio-campaign").write_text(
        f"#!{folder}/bin/python\nimport sys\nfrom campaign.__main__ import entry\n"
        "if __name__ == '__main__':\n    sys.exit(entry())\n"
    )
    (folder / "bin" / "tfio-campaign").chmod(0o755)
    return folder / "bin"


@pytest.fixture
def ended(base, tmp_path):
    """A function: run a program of the environment in an empty folder."""
    (tmp_path / "here").mkdir()
    apart = {"PATH": f"{base}:{os.environ['PATH']}", "HOME": str(tmp_path)}

    def ended(command, *words, code=0):
        done = subprocess.run(
            [base / command, *words], cwd=tmp_path / "here", env=os.environ | apart, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == code, (done.stdout, done.stderr)
        return done

    return ended


def test_what_needs_tensorflow_says_so_with_the_cure_and_leaves_nothing(ended, tmp_path):
    assert "No module named 'tensorflow'" in ended("python", "-c", "import tensorflow", code=1).stderr

    done = ended("tfio-campaign", "threads=1", code=3)

    assert "hint: pip install 'tfio-campaign[tensorflow]'" in done.stderr
    assert [*(tmp_path / "here").iterdir()] == []
    assert ended("tfio-campaign", "--dry-run", "threads=1,2").stdout.count("planned") == 2


@pytest.mark.parametrize("words", [["--help"], ["status", "--help"], ["doctor", "--help"], ["--dry-run", "threads=1"]])
def test_nothing_slow_is_loaded_for(words, tmp_path):
    loaded = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "campaign", *words], cwd=tmp_path, capture_output=True, text=True,
        check=True,
    ).stderr  # fmt: skip

    assert "campaign.verbs" in loaded
    assert re.findall(r"\| +(tensorflow|pandas|matplotlib|submitit|keras)$", loaded, re.MULTILINE) == []


def records(folder):
    return [json.loads(path.read_text()) for path in folder.glob("*/records/*/record.json")]


def test_a_program_and_a_storage_are_measured_and_reported_without_it(ended, tmp_path):
    """Whether the runs count is up to the machine that the tests run on; that they were measured is not."""
    data, here = tmp_path / "data", tmp_path / "here"
    data.mkdir()
    (data / "part").write_bytes(os.urandom(1 << 20))
    loose = ["cluster=local", "wait_quiet_s=0", "warmup_runs=0", "checks.other_cpu_max=64", "checks.other_device_max=1"]
    loose += ["checks.delayed_max=1", "checks.stolen_max=64", "checks.spread_max=100"]

    ended("tfio-campaign", "stall", "--runs", "3", "--yes", f"--data={data}", *loose, "--", "sh", "-c", "cat {data}/*")
    done = ended("tfio-campaign", "measure", here, "--yes", "benchmark.file_mb=8", "threads=1", "runs=1", *loose)

    assert re.search(r"gives [0-9.e+]+ MB/s by itself\.", done.stdout)
    measured = records(here)
    names = sorted(each["cell"]["settings"]["benchmark"]["name"] for each in measured)
    assert names == [*["baseline"] * 3, *["command"] * 2]
    assert {run["status"] for each in measured for run in each["runs"]} == {"ended"}
    assert "report.html" in ended("tfio-campaign", "report").stdout
    assert "MB/s" in ended("python", "-m", "analysis", here / "results").stdout


def test_the_images_install_and_run_as_the_readme_does():
    install, _, measure = documented("run", "README.md").rpartition(" && ")

    assert measure.startswith(".venv/bin/python -m campaign")
    for name in ("Dockerfile", "tfio-campaign.def"):
        assert install in (ROOT / "packaging" / name).read_text(), name


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="a network is cut off by root's unshare")
def test_a_site_without_internet_installs_from_a_folder_of_wheels_and_measures(tmp_path):
    """The two commands of docs/install.md, the second where no network is."""
    checkout, site = tmp_path / "checkout", tmp_path / "site"
    subprocess.run(["git", "clone", "-q", ROOT, checkout], check=True)
    site.mkdir()
    bash = ["bash", "-ceu"]
    path = {**os.environ, "PATH": f"{Path(sys.base_prefix, 'bin')}:{os.environ['PATH']}"}
    cut_off = ["unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh"]

    subprocess.run([*bash, documented("wheelhouse")], cwd=checkout, env=path, check=True)
    (checkout / "wheelhouse").rename(site / "wheelhouse")
    shutil.rmtree(checkout)
    subprocess.run([*cut_off, *bash, documented("offline")], cwd=site, env=path, check=True)
    measure = [".venv/bin/tfio-campaign", "threads=1", "dataset.files=64", "batch_size=8", "runs=2", "warmup_runs=0"]
    subprocess.run([*cut_off, *bash, shlex.join(measure)], cwd=site, env=path, check=False)

    assert not [path for path in (site / "wheelhouse").iterdir() if path.suffix != ".whl"]
    (recorded,) = records(site)
    assert [run["status"] for run in recorded["runs"]] == ["ended"] * 2
    assert list(site.glob(".venv/lib/python*/site-packages/jobs/profiler/hooks-*.so"))
