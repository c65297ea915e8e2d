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
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RECIPE = (ROOT / "packaging" / "tfio-campaign.def").read_text()
DOCKERFILE = (ROOT / "packaging" / "Dockerfile").read_text()


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


def test_the_base_has_no_tensorflow(ended):
    assert "No module named 'tensorflow'" in ended("python", "-c", "import tensorflow", code=1).stderr


@pytest.mark.parametrize("words", [["threads=1"], ["+paper=fig6", "+size=smoke"], ["benchmark=malware"]])
def test_what_needs_tensorflow_says_so_with_the_cure_and_leaves_nothing(words, ended, tmp_path):
    done = ended("tfio-campaign", *words, code=3)

    assert re.search(r"error: TensorFlow is not installed, and benchmark=\w+ needs it\n", done.stderr)
    assert "hint: pip install 'tfio-campaign[tensorflow]'" in done.stderr
    assert [*(tmp_path / "here").iterdir()] == []


def test_a_dry_run_shows_the_plan_and_notes_it(ended):
    done = ended("tfio-campaign", "--dry-run", "threads=1,2")

    assert done.stdout.count("planned") == 2
    assert "note: the campaign would not start here: TensorFlow is not installed" in done.stderr


def test_a_run_by_hand_says_so(ended, tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(b"no image")

    done = ended("python", "-m", "jobs", "micro", tmp_path / "images", code=3)

    assert "TensorFlow is not installed" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "passed"),
    [
        ([], False),
        (["benchmark=baseline"], True),
        (["benchmark=feed", "accelerator=unet3d_h100"], True),
    ],
    ids=["by default", "a storage alone", "feed"],
)
def test_doctor_fails_only_where_a_benchmark_of_the_campaign_needs_it(words, passed, ended):
    done = ended("tfio-campaign", "doctor", "--json", *words, code=0 if passed else 3)

    found = {finding["what"]: finding for finding in json.loads(done.stdout)}
    assert found["tensorflow"]["passed"] is passed
    assert "is not installed" in found["tensorflow"]["message"]


def records(folder):
    return [json.loads(path.read_text()) for path in folder.glob("*/records/*/record.json")]


def test_a_program_and_a_storage_are_measured_and_reported_without_it(ended, tmp_path):
    """Whether the runs count is up to the machine that the tests run on; that they were measured is not."""
    data, here = tmp_path / "data", tmp_path / "here"
    data.mkdir()
    (data / "part").write_bytes(os.urandom(1 << 20))
    quick = ["cluster=local", "wait_quiet_s=0", "checks.other_cpu_max=64", "checks.other_device_max=1", "warmup_runs=0"]
    loose = [*quick, "checks.delayed_max=1", "checks.stolen_max=64", "checks.spread_max=100"]

    ended("tfio-campaign", "stall", "--runs", "3", "--yes", f"--data={data}", *loose, "--", "sh", "-c", "cat {data}/*")
    done = ended("tfio-campaign", "measure", here, "--yes", "benchmark.file_mb=8", "threads=1", "runs=1", *loose)

    assert "note: TensorFlow is not installed, and benchmark=micro needs it: only what the storage gives" in done.stderr
    assert re.search(
        r"gives [0-9.e+]+ MB/s by itself\.\nHow fast the storage feeds TensorFlow is not known", done.stdout
    )
    measured = records(here)
    names = sorted(each["cell"]["settings"]["benchmark"]["name"] for each in measured)
    assert names == [*["baseline"] * 3, *["command"] * 2]
    assert {run["status"] for each in measured for run in each["runs"]} == {"ended"}
    ended("tfio-campaign", "status")
    assert "report.html" in ended("tfio-campaign", "report").stdout
    assert "MB/s" in ended("python", "-m", "analysis", here / "results").stdout


def test_the_image_and_the_apptainer_definition_run_the_readme_s_command_and_nothing_else():
    install, _, measure = documented("run", "README.md").rpartition(" && ")
    of_docker = re.findall(r"^RUN (.+)$", DOCKERFILE, re.MULTILINE)
    post = re.search(r"%post\n(.+?)\n\n", RECIPE, re.DOTALL)[1].split("\n")
    folder = "/opt/tfio-campaign"
    unpack = [f"mkdir {folder} && tar -xf {folder}.tar -C {folder}", f"cd {folder}"]

    assert measure.startswith(".venv/bin/python -m campaign")
    assert of_docker[1:] == [install]
    assert [line.strip() for line in post] == [of_docker[0], *unpack, install]
    assert {f"ADD tfio-campaign.tar {folder}", f"WORKDIR {folder}"} <= {*DOCKERFILE.splitlines()}
    assert f"From: {re.search(r'^FROM (.+)$', DOCKERFILE, re.MULTILINE)[1]}\n" in RECIPE
    assert "git archive -o tfio-campaign.tar HEAD\n" in (ROOT / "docs" / "install.md").read_text()


def test_versions_of_python_are_said_in_one_way():
    classified = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]

    assert PROJECT["requires-python"] == f">={classified[0]}"
    assert f"Python {', '.join(classified[:-1])} or {classified[-1]}." in (ROOT / "docs" / "install.md").read_text()


def test_the_citation_is_complete_and_of_this_version():
    """What the schema of the Citation File Format 1.2.0 demands; cffconvert --validate agrees."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    heading = f"## [{citation['version']}] - {citation['date-released']}\n"

    assert citation.keys() >= {"cff-version", "message", "title", "authors"}
    assert citation["cff-version"] == "1.2.0"
    assert (citation["title"], citation["license"]) == (PROJECT["name"], PROJECT["license"])
    assert all(author.keys() & {"name", "family-names"} for author in citation["authors"])
    for work in citation["references"]:
        assert work.keys() >= {"type", "title", "authors"}
        assert all(author.keys() <= {"given-names", "family-names"} for author in work["authors"])
    assert heading in (ROOT / "CHANGELOG.md").read_text()


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
