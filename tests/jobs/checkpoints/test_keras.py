"""The burst buffer under TensorFlow's own checkpoints."""

import re
from functools import partial
from pathlib import Path

import pytest

from tests.jobs.checkpoints.shared import snapshots_in
from tests.lies import setup


@pytest.fixture
def run(job):
    return partial(job, of="tests.jobs.checkpoints.keras_jobs")


def test_a_restart_has_weights_optimiser_and_next_loss_of_a_training_that_was_never_cut(run, tmp_path):
    told = run("train_and_restart", fast=str(tmp_path / "fast"), slow=str(tmp_path / "slow"))

    assert told["saved"] == [4, 8]
    assert told["drained"]
    assert told["step"] == 8
    assert told["same"]
    assert told["losses"][0] == told["losses"][1]


def test_tensorflow_meeting_a_full_fast_storage_waits_for_the_drainer(run, tmp_path, staged):
    staged(setup.memory, tmp_path / "fast", 4)

    told = run("fill", fast=str(tmp_path / "fast"), slow=str(tmp_path / "slow"))

    assert told == {"drained": True, "steps": [0, 1, 2, 3, 4]}
    slow = snapshots_in(tmp_path / "slow")
    assert [slow.verify(name) for name in slow.names()] == [[]] * 5


def test_the_example_of_the_documents_goes_on_where_it_was(run, tmp_path):
    document = (Path(__file__).parents[3] / "docs" / "how-to" / "keras-checkpoints.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"<!-- ci: keras -->\n```python\n(.*?)```", document, re.DOTALL)
    for name in ("optane", "hdd"):
        (tmp_path / name).mkdir()

    printed = [run("run_code", code=code.replace("/mnt/", f"{tmp_path}/")) for _ in range(2)]

    assert len(code.splitlines()) == 10
    assert [re.findall(r"step (\d+)", text)[0] for text in printed] == ["0", "8"]
    assert len(snapshots_in(tmp_path / "optane" / "run1").names()) == 4
