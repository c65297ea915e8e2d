"""What newcomers paste: the commands of each tutorial, and a whole paper on the testbed, shortened."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from PIL import Image

from tests.acceptance import door
from tests.slurm import lab as laboratory

PAGES = (door.ROOT / "docs/tutorials").glob("*")
TUTORIALS = {path.name: door.blocks(f"tutorials/{path.name}", "bash") for path in PAGES}
# Whoever else works on this machine is no fault of a tutorial.
BUSY = " ".join(("wait_quiet_s=null", "checks.peak_max=1000", *door.SHARED[1:]))


def follow(page, folder, places, environment=os.environ):
    """Give all commands of a tutorial in one shell, as a user without a terminal; return its output and the records."""
    environment = {
        **environment, "HOME": str(folder), "CAMPAIGN_YES": "1", "PYTHONPATH": str(door.ROOT),
        "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}",
    }  # fmt: skip
    script = "".join(f"\n{block}\necho exit code $?\n" for block in TUTORIALS[page])
    for written, here in places.items():
        assert written in script, written
        script = script.replace(written, here)
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    codes = re.findall(r"^exit code (\d+)$", done.stdout, re.MULTILINE)
    assert codes == ["0"] * len(TUTORIALS[page]), done.stdout
    for results in (found := {path.parent.name: door.records(path.parent) for path in folder.glob("*/records")}):
        assert (folder / results / "report.html").exists()
    return done.stdout, found


def test_every_tutorial_has_commands_and_a_test():
    followed = set(re.findall(r'follow\(\s*"([^"]+)"', Path(__file__).read_text("utf-8")))

    assert {name for name, blocks in TUTORIALS.items() if blocks} == {*TUTORIALS} == followed


@pytest.mark.long
def test_the_first_measurement(tmp_path):
    smaller = f"threads=1,2 dataset.files=256 iterations=4 benchmark.file_mb=50 benchmark.image_size=32 {BUSY}"
    cell = "$(ls results/records | head -n 1)"
    places = {"/scratch/me": f"{tmp_path}/me", "threads=1,8": smaller, "CELL": cell}

    _, found = follow("first-measurement.md", tmp_path, places)

    cells = [(each["cell"]["benchmark"], each["cell"]["settings"].get("threads")) for each in found["results"]]
    assert {*cells} >= {("baseline", 1), ("micro", 1), ("micro", 2)}
    assert {len([run for run in each["runs"] if run["role"] == "measured"]) for each in found["results"]} == {3}


@pytest.mark.long
def test_my_own_training(tmp_path):
    (images := tmp_path / "images").mkdir()
    random = np.random.default_rng(3)
    for number in range(40):
        Image.fromarray(random.integers(0, 255, (240, 320, 3), dtype=np.uint8)).save(images / f"{number}.jpg")
    (program,) = (block for block in door.blocks("tutorials/my-training.md", "python") if "# train.py" in block)
    (tmp_path / "train.py").write_text(program)
    places = {"/data/images": str(images), "--from": f"{BUSY} --from", "CELL": "$(ls stall/records | head -n 1)"}

    _, found = follow("my-training.md", tmp_path, places)

    size = sum(path.stat().st_size for path in images.iterdir())
    for records in (found["stall"], found["after"]):
        assert sorted(each["cell"]["page_cache"] for each in records) == ["cold", "warm"]
        assert {run["data_bytes"] for each in records for run in each["runs"] if run["role"] == "measured"} == {size}


@pytest.mark.long
def test_the_first_slurm_campaign(tmp_path):
    if reason := laboratory.missing():
        pytest.skip(reason)
    (tmp_path / "me").mkdir()
    with laboratory.lab(nodes=4, cpus=2) as cluster:
        places = {"/scratch/me": f"{tmp_path}/me", "runs=3 ": f"runs=3 {BUSY} "}
        output, found = follow("slurm-campaign.md", tmp_path, places, cluster.environment)

    assert ("#SBATCH --partition=debug" in output, "node-hours" in output) == (True, True)
    cells = sorted((each["cell"]["settings"]["threads"], len(each["runs"])) for each in found["results"])
    assert cells == [(1, 3), (2, 3)]


STORAGES = ("hdd", "ssd", "optane")
SHORTENED = (
    "+size=smoke", "site=twin", "storage=ssd", "threads=1", "batch_size=4", "runs=2", "min_valid_runs=1",
    "cluster=local", "accelerator.step_s=0.02", "benchmark.width=0.125", *BUSY.split(),
)  # fmt: skip


@contextmanager
def storages(folder):
    """Make three of the paper's storages, and remove them at the end."""
    sizes = [f"{name}.size_gb=1" for name in STORAGES]
    try:
        up = ("testbed", "up", "--folder", folder, f"storages=[{','.join(STORAGES)}]", *sizes)
        made = door.cli(*up, cwd=folder.parent)
        if made.code == 3:
            pytest.skip(made.err)
        assert made.code == 0, made.err
        yield {"CAMPAIGN_TESTBED": folder}
    finally:
        door.cli("testbed", "down", "--yes", "--folder", folder, cwd=folder.parent)


@pytest.mark.long
def test_a_whole_paper_is_one_campaign_on_the_testbed_and_each_claim_has_a_verdict(cli, tmp_path):
    with storages(tmp_path / "bed") as environment:
        done, again = (cli("reproduce", *SHORTENED, "--yes", "--json", **environment) for _ in range(2))

    assert done.code == 0, done.err
    found = door.records(tmp_path / "results")
    assert {*done.json["cells"]} == {each["cell"]["id"] for each in found}
    assert [[run["role"] for run in each["runs"]] for each in found] == [["warmup", "measured"]] * 13
    of = {"baseline": [], "micro": [], "alexnet": []}
    for each in found:
        of[each["cell"]["benchmark"]].append(each)
    assert all(of.values())
    accesses = {each["cell"]["settings"]["benchmark"]["access"] for each in of["baseline"]}
    assert accesses == {"read", "write", "random_read"}
    targets = {each["cell"]["settings"]["checkpoint"]["name"] for each in of["alexnet"]}
    assert targets == {"none", *STORAGES, "burst_buffer"}
    assert all("storage" in each["provenance"]["emulated"] for each in found)
    first = min(each["runs"][0]["started_utc"] for each in of["micro"] + of["alexnet"])
    assert all(each["runs"][0]["started_utc"] < first for each in of["baseline"])
    figures = {path.stem.partition("-")[0] for path in (tmp_path / "results" / "figures").glob("*.pdf")}
    assert figures >= {"table1", "fig4", "fig6", "fig9", "fig10", "checkpoints"}
    judged = cli("results", "--junit", "claims.xml", program="analysis")
    cases = [*ET.parse(tmp_path / "claims.xml").getroot().iter("testcase")]  # noqa: S314 - the tool's own
    assert (judged.code, len(done.json["claims"]) >= 37, len(cases) >= 37) == (0, True, True)
    assert (again.code, door.records(tmp_path / "results")) == (0, found)
