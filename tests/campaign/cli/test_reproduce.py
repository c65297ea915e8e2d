"""The whole paper on the twin of its testbed, shortened: asserted is what the records hold, not how fast it was."""

import csv
import json
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from campaign.testbed import apply
from tests.campaign.command_line import CommandLine
from tests.campaign.testbed.testbeds import required

WORDS = (
    "+size=smoke", "site=twin", "storage=ssd", "threads=1,2", "batch_size=4,8", "iterations=20", "dataset.files=160",
    "runs=2", "min_valid_runs=1", "cluster=local", "accelerator.step_s=0.02", "benchmark.width=0.125",
    # Two cores serve training and storages, and short runs outpace the bounds of the kernel.
    "checks.other_cpu_max=1000", "checks.other_device_max=1", "checks.peak_max=1000",
    "checks.time_error_max=0.1", "checks.stolen_max=1000", "checks.delayed_max=1",
)  # fmt: skip


@pytest.fixture(scope="module")
def twin(tmp_path_factory):
    """The four storages of the paper, 2 GB each."""
    required()
    folder = tmp_path_factory.mktemp("twin") / "testbed"
    sizes = (f"{name}.size_gb=2" for name in ("hdd", "ssd", "optane", "lustre"))
    command = [sys.executable, "-m", "campaign", "testbed", "up", "--folder", str(folder), *sizes]
    try:
        subprocess.run(command, check=True, timeout=120)
        yield folder
    finally:
        apply.down(folder)


@pytest.fixture(scope="module")
def reproduced(twin, tmp_path_factory):
    """What the command said, the folder it made, and a way to give more commands there."""
    command = CommandLine(tmp_path_factory.mktemp("reproduced"), timeout_s=580)
    return command("reproduce", *WORDS, CAMPAIGN_TESTBED=str(twin)), command.cwd / "results", command


@pytest.fixture(scope="module")
def records(reproduced):
    return [json.loads(path.read_text()) for path in reproduced[1].glob("records/*/record.json")]


def _is(record, benchmark):
    return record["cell"]["benchmark"] == benchmark


@pytest.mark.long
def test_every_recipe_is_done_and_every_run_is_proved(reproduced, records):
    said = reproduced[0]

    assert said.returncode == 0, said.stderr
    assert {record["cell"]["benchmark"] for record in records} == {"baseline", "micro", "alexnet"}
    assert {record["status"] for record in records} == {"done"}
    runs = [run for record in records for run in record["runs"]]
    assert {run["role"] for run in runs} == {"warmup", "measured"}
    for run in runs:
        proofs = {check["rule"]: check["passed"] for check in run["checks"]}
        assert proofs["complete"] is proofs["time_adds_up"] is proofs["quiet"] is True
        assert {proofs.get(rule, True) for rule in ("reached_device", "cold", "device_bytes")} == {True}


@pytest.mark.long
def test_baselines_come_first_and_judge_the_others(records):
    first = max(record["runs"][0]["started_utc"] for record in records if _is(record, "baseline"))
    others = [record for record in records if not _is(record, "baseline")]

    accesses = {record["cell"]["settings"]["benchmark"].get("access") for record in records} - {None}
    assert accesses == {"write", "read", "random_read"}
    assert all(record["runs"][0]["started_utc"] > first for record in others)
    for run in (run for record in others for run in record["runs"]):
        assert "below_peak" in {check["rule"] for check in run["checks"]}


@pytest.mark.long
def test_snapshots_went_to_every_target_of_the_paper(records):
    saved = {}
    for record in records:
        if "checkpoint" in record["cell"]["settings"] and _is(record, "alexnet"):
            saved.setdefault(record["cell"]["settings"]["checkpoint"]["name"], []).append(record)

    assert saved.keys() == {"none", "hdd", "ssd", "optane", "burst_buffer"}
    for name in saved.keys() - {"none"}:
        lines = [line for record in saved[name] for run in record["runs"] for line in run["checkpoints"]]
        assert lines
        assert all(line["verified"] and line["durable_slow_s"] for line in lines)


@pytest.mark.long
def test_all_that_is_shown_says_emulated(reproduced, records):
    said, folder, _ = reproduced

    assert all("storage" in record["provenance"]["emulated"] for record in records)
    assert "ssd (emulated, model)" in said.stdout
    assert "ssd is a flash model, 280.55 MB/s read" in (folder / "report.html").read_text()
    figures = {path.stem.partition("-")[0] for path in (folder / "figures").glob("*.pdf")}
    assert figures == {"table1", "fig4", "fig5", "fig6", "fig7", "fig8", "fig9", "fig10", "checkpoints"}
    with (folder / "tables" / "medians.csv").open() as file:
        shares = [row["percent_of_baseline"] for row in csv.DictReader(file) if row["benchmark"] != "baseline"]
    assert shares
    assert all(float(share) > 0 for share in shares)


@pytest.mark.long
def test_every_claim_has_a_verdict_that_a_build_server_can_read(reproduced):
    _, folder, command = reproduced

    done = command("verdicts", "--junit", "verdicts.xml")

    assert done.returncode in (0, 1), done.stderr
    cases = list(ET.parse(command.cwd / "verdicts.xml").iter("testcase"))  # noqa: S314 - written a moment ago
    with (folder / "tables" / "verdicts.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if not row["pair"]]
    assert len(cases) == len(rows) >= 37
    assert {row["verdict"] for row in rows} >= {"not comparable"}


@pytest.mark.long
def test_the_same_command_runs_nothing(reproduced, twin):
    _, folder, command = reproduced
    before = {path: path.read_bytes() for path in folder.glob("records/*/record.json")}

    again = command("reproduce", *WORDS, CAMPAIGN_TESTBED=str(twin))

    assert again.returncode == 0, again.stderr
    assert "nothing to run" in again.stderr
    assert {path: path.read_bytes() for path in folder.glob("records/*/record.json")} == before
