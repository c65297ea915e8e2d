"""A campaign on a real gateway, as a person types it: what it proves, and that the secret is in none of its files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jobs.objects.client import Client
from jobs.system.device import devices_of_every_byte
from tests.jobs.jobs_factory import write_jpegs
from tests.judged import records_of

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
UNJUDGED = (
    "checks.other_cpu_max=100", "checks.other_device_max=1", "checks.spread_max=50", "checks.stolen_max=100",
    "checks.delayed_max=1",
)  # fmt: skip
FEW = ("runs=2", "warmup_runs=0", "min_valid_runs=2")


@pytest.fixture
def campaign(ceph, tmp_path, monkeypatch):
    """Run a campaign on images in the gateway's bucket; returns what is on disk afterwards."""
    for name, value in ceph.credentials.items():
        monkeypatch.setenv(name, value)
    storage = {"endpoint": ceph.endpoint, "bucket": ceph.bucket, "prefix": "mine", "region": ceph.region}
    client = Client(storage)
    for path in write_jpegs(tmp_path / "images", 32, side=200):
        client.put(f"photos/{path.name}", path)
    client.put("photos/folder.jpg", b"")  # so do consoles mark a folder
    words = [f"storage.{key}={value}" for key, value in storage.items()]
    words += [f"storage.device={ceph.device}"] if ceph.device else []

    def run(*more, data=("dataset=folder", "dataset.path=photos", "batch_size=8")):
        mine = ("storage=s3", *words, *data, *FEW, *UNJUDGED, *more)
        command = [sys.executable, "-m", "campaign", "-m", *mine]
        environment = {**ceph.environment, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return records_of(tmp_path / "results")

    return run


def test_a_campaign_on_objects_is_cold_complete_and_has_the_secret_nowhere(campaign, ceph, tmp_path):
    records = campaign("threads=1,2", "storage.engine=threads,async")

    assert len(records) == 4
    for run in (run for recorded in records for run in recorded["runs"]):
        passed = {check["rule"]: check["passed"] for check in run["checks"]}
        assert passed["cold"] is (True if ceph.device else None)
        assert all(passed[rule] for rule in ("complete", "same_data", "time_adds_up"))
        assert (run["objects"]["requests"], run["objects"]["retries"], run["images"]) == (32, 0, 32)
        assert {"radosgw", "ceph-osd"} <= run["objects"]["servers"].keys()
    texts = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(texts) > 20
    for word in ceph.credentials.values():
        assert not any(word.encode() in text for text in texts)


def test_snapshots_drain_to_the_bucket_reach_its_device_and_are_gone_when_the_run_is_over(campaign, ceph, tmp_path):
    (tmp_path / "fast").mkdir()
    endpoint = ceph.endpoint.replace("127.0.0.1", "localhost")  # as the data's, spelt otherwise
    address = f"{endpoint}/{ceph.bucket}/saved" + (f"?device={ceph.device}" if ceph.device else "")
    below = [f"dsk/{each.name}" for each in devices_of_every_byte(Path(ceph.device))[1:]] if ceph.device else []
    (recorded,) = campaign(
        "benchmark=alexnet", "benchmark.width=0.1", "iterations=4", "accelerator=cpu", "checkpoint=burst_buffer",
        "checkpoint.every=2", f"checkpoint.fast.root={tmp_path / 'fast'}", "checkpoint.slow.name=ceph",
        f'checkpoint.slow.root="{address}"',
    )  # fmt: skip

    assert recorded["cell"]["settings"]["checkpoint"]["slow"]["root"] == address.partition("?")[0]
    for run in recorded["runs"]:
        assert [target.get("served_here") for target in run["targets"]] == [None, True]
        assert run["targets"][1].get("below", []) == below
        assert [check["passed"] for check in run["checks"] if check["rule"] == "cold"] == [None]
        (check,) = (check for check in run["checks"] if check["rule"] == "checkpoints_durable")
        assert check["passed"] is (True if ceph.device else None)
        assert "2 of 2 snapshots read back on ceph" in check["message"]
        assert all(line["verified"] and line["drain_s"] > 0 for line in run["checkpoints"])
    assert list(Client({**recorded["cell"]["settings"]["storage"], "prefix": "saved"}).list_objects()) == []
    assert not list((tmp_path / "fast" / "checkpoints").iterdir())


def test_the_baseline_of_objects_gets_ranges_without_tensorflow(campaign):
    (baseline,) = campaign("benchmark=baseline", "benchmark.access=random_read", "benchmark.file_mb=32", "threads=2")

    for run in baseline["runs"]:
        assert run["bytes_read"] == run["objects"]["bytes"] == run["requests"] * run["read_bytes_each"]
        assert (run["engine"], run["objects"]["concurrency"]) == ("builtin", 2)


def test_the_baseline_puts_objects_that_reach_the_disk_and_removes_them(campaign, ceph):
    words = ("benchmark=baseline", "benchmark.access=write", "benchmark.file_mb=32", "benchmark.transfer_mib=1")
    (baseline,) = campaign(*words, "threads=2")

    for run in baseline["runs"]:
        passed = {check["rule"]: check["passed"] for check in run["checks"]}
        assert passed["reached_device"] is (True if ceph.device else None)
        assert (passed["complete"], passed["time_adds_up"]) == (True, True)
        assert (run["requests"], run["objects"]["requests"]) == (31, 31)
    store = Client({"endpoint": ceph.endpoint, "bucket": ceph.bucket, "prefix": "mine", "region": ceph.region})
    assert not [each.key for each in store.list_objects("baseline") if "written" in each.key]


@pytest.mark.parametrize(
    ("benchmark", "shape"),
    [
        ("hepcnn", ("train_files=4", "validation_files=4", "samples=16", "image_size=64")),
        ("climate", ("files=16", "height=96", "width=144")),
    ],
)
def test_trainings_get_ranges_of_hdf5_files_cold_and_as_predicted(benchmark, shape, campaign, ceph):
    data = (f"dataset={'hep' if benchmark == 'hepcnn' else 'climate'}_smoke", *(f"dataset.{word}" for word in shape))
    how = ("reader=offsets", "storage.engine=threads,async", "storage.checksum=true", "accelerator.step_s=0.01")
    batch = ("batch_size=16",) if benchmark == "hepcnn" else ()
    records = campaign(f"benchmark={benchmark}", *how, *batch, data=data)

    assert len(records) == 2
    for run in (run for recorded in records for run in recorded["runs"]):
        passed = {check["rule"]: check["passed"] for check in run["checks"]}
        assert passed["cold"] is (True if ceph.device else None)
        rules = ("complete", "same_data", "time_adds_up", "counts_as_predicted", "bytes_as_predicted")
        assert all(passed[rule] for rule in rules), passed
        assert run["objects"]["requests"] >= 5 * run.get("loads", 0)
