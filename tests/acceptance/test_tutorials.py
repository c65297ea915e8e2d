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

TUTORIALS = {
    path.name: door.blocks(f"tutorials/{path.name}", "bash") for path in (door.ROOT / "docs/tutorials").glob("*")
}


# Whoever else works on this machine is no fault of a tutorial.
BUSY = " ".join(("wait_quiet_s=null", "checks.peak_max=1000", *door.SHARED[1:]))


def follow(page, folder, places, environment=None):
    """Give all commands of a tutorial in one shell, as a user without a terminal; return its output and exit codes."""
    environment = {**(environment or os.environ), "HOME": str(folder), "CAMPAIGN_YES": "1"}
    environment |= {"PYTHONPATH": str(door.ROOT), "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}"}
    script = "".join(f"\n{block}\necho exit code $?\n" for block in TUTORIALS[page])
    for written, here in places.items():
        assert written in script, written
        script = script.replace(written, here)
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    codes = [int(code) for code in re.findall(r"^exit code (\d+)$", done.stdout, re.MULTILINE)]
    assert len(codes) == len(TUTORIALS[page]), done.stdout
    return done.stdout, codes


def test_every_tutorial_has_commands_and_a_test():
    followed = set(re.findall(r'follow\(\s*"([^"]+)"', Path(__file__).read_text("utf-8")))

    assert {name for name, blocks in TUTORIALS.items() if blocks} == {*TUTORIALS} == followed


@pytest.mark.long
def test_the_first_measurement(tmp_path):
    smaller = "threads=1,2 dataset.files=256 iterations=4 benchmark.file_mb=50 benchmark.image_size=32 "
    places = {
        "/scratch/me": f"{tmp_path}/me",
        "threads=1,8": smaller + BUSY,
        "CELL": "$(ls results/records | head -n 1)",
    }

    output, codes = follow("first-measurement.md", tmp_path, places)

    assert {*codes} == {0}, output
    found = door.records(tmp_path / "results")
    kinds = {(each["cell"]["benchmark"], each["cell"]["settings"].get("threads")) for each in found}
    assert kinds >= {("baseline", 1), ("micro", 1), ("micro", 2)}
    assert {len([run for run in each["runs"] if run["role"] == "measured"]) for each in found} == {3}
    assert (tmp_path / "results" / "report.html").exists()


@pytest.mark.long
def test_my_own_training(tmp_path):
    (tmp_path / "images").mkdir()
    random = np.random.default_rng(3)
    for number in range(40):
        pixels = random.integers(0, 255, (240, 320, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{number}.jpg")
    (program,) = (block for block in door.blocks("tutorials/my-training.md", "python") if "# train.py" in block)
    (tmp_path / "train.py").write_text(program)
    places = {
        "/data/images": f"{tmp_path}/images",
        "--from": f"{BUSY} --from",
        "CELL": "$(ls stall/records | head -n 1)",
    }

    output, codes = follow("my-training.md", tmp_path, places)

    assert {*codes} == {0}, output
    for folder in ("stall", "after"):
        found = door.records(tmp_path / folder)
        assert sorted(each["cell"]["page_cache"] for each in found) == ["cold", "warm"]
        assert (tmp_path / folder / "report.html").exists()
    size = sum(path.stat().st_size for path in (tmp_path / "images").iterdir())
    assert {run["data_bytes"] for each in found for run in each["runs"] if run["role"] == "measured"} == {size}


@pytest.mark.long
def test_the_first_slurm_campaign(tmp_path):
    if reason := laboratory.missing():
        pytest.skip(reason)
    (tmp_path / "me").mkdir()
    with laboratory.lab(nodes=4, cpus=2) as cluster:
        places = {"/scratch/me": f"{tmp_path}/me", "runs=3 ": f"runs=3 {BUSY} "}
        output, codes = follow("slurm-campaign.md", tmp_path, places, environment=cluster.environment)

    assert {*codes} == {0}, output
    assert "#SBATCH --partition=debug" in output
    assert "node-hours" in output
    found = door.records(tmp_path / "results")
    assert sorted(each["cell"]["settings"]["threads"] for each in found) == [1, 2]
    assert {len(each["runs"]) for each in found} == {3}
    assert (tmp_path / "results" / "report.html").exists()


STORAGES = ("hdd", "ssd", "optane")
SHORTENED = (
    "+size=smoke", "site=twin", "storage=ssd", "threads=1", "batch_size=4",
    "runs=2", "min_valid_runs=1", "cluster=local", "accelerator.step_s=0.02", "benchmark.width=0.125",
    *BUSY.split(),
)  # fmt: skip


@contextmanager
def storages(folder):
    """Make three of the paper's storages, and remove them at the end."""
    up = ("testbed", "up", "--folder", folder, f"storages=[{','.join(STORAGES)}]")
    try:
        made = door.cli(*up, *(f"{name}.size_gb=1" for name in STORAGES), cwd=folder.parent)
        if made.code == 3:
            pytest.skip(made.err)
        assert made.code == 0, made.err
        yield {"CAMPAIGN_TESTBED": folder}
    finally:
        door.cli("testbed", "down", "--yes", "--folder", folder, cwd=folder.parent)


@pytest.mark.long
def test_a_whole_paper_is_one_campaign_on_the_testbed_and_each_claim_has_a_verdict(cli, tmp_path):
    with storages(tmp_path / "bed") as environment:
        done = cli("reproduce", *SHORTENED, "--yes", "--json", **environment)
        again = cli("reproduce", *SHORTENED, "--yes", "--json", **environment)

    found = door.records(tmp_path / "results")
    assert done.code == 0, done.err
    assert {each["cell"]["benchmark"] for each in found} == {"baseline", "micro", "alexnet"}
    assert {*done.json["cells"]} == {each["cell"]["id"] for each in found}
    roles = [[run["role"] for run in each["runs"]] for each in found]
    assert roles == [["warmup", "measured"]] * 13
    settings = [each["cell"]["settings"] for each in found]
    accesses = {each["benchmark"].get("access") for each in settings if each["benchmark"]["name"] == "baseline"}
    assert accesses == {"read", "write", "random_read"}
    targets = {each["checkpoint"]["name"] for each in settings if each["benchmark"]["name"] == "alexnet"}
    assert targets == {"none", *STORAGES, "burst_buffer"}
    assert all("storage" in each["provenance"]["emulated"] for each in found)
    last = max(each["runs"][0]["started_utc"] for each in found if each["cell"]["benchmark"] == "baseline")
    assert all(each["runs"][0]["started_utc"] > last for each in found if each["cell"]["benchmark"] != "baseline")
    figures = {path.stem.partition("-")[0] for path in (tmp_path / "results" / "figures").glob("*.pdf")}
    assert figures >= {"table1", "fig4", "fig6", "fig9", "fig10", "checkpoints"}
    assert len(done.json["claims"]) >= 37
    judged = cli("results", "--junit", "claims.xml", program="analysis")
    cases = [*ET.parse(tmp_path / "claims.xml").getroot().iter("testcase")]  # noqa: S314 - the tool's own
    assert (judged.code, len(cases) >= 37) == (0, True)
    assert (again.code, door.records(tmp_path / "results")) == (0, found)
