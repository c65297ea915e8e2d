"""The other benchmarks end to end: trainings on HDF5 files, bytes of any file as images, reads without decoding."""

from math import inf

import numpy as np
import pytest

from tests.acceptance import door

pytestmark = pytest.mark.long

ONCE = ("runs=2", "warmup_runs=0", "min_valid_runs=1", *door.SHARED)
HEP = ("dataset=hep_smoke", "dataset.train_files=2", "dataset.validation_files=1", "dataset.samples=8", "batch_size=4")
CLIMATE = ("dataset=climate_smoke", "dataset.files=5", "dataset.height=32", "dataset.width=48", "batch_size=1")
IMAGES = [word for word in door.TINY if word not in door.SHARED and not word.startswith("runs")]
MORE = {
    "climate": ("threads=2", "prefetch=1", "benchmark.epochs=2", "reader=h5py_threads,h5py_pool,offsets"),
    "hepcnn": ("threads=1", "benchmark.epochs=2"),
    "malware": ("threads=2",),
    "stream": ("threads=2",),
}
DATA = {"climate": CLIMATE, "hepcnn": HEP, "malware": IMAGES, "stream": IMAGES}
# Images of a run: samples of 2 training files (hepcnn), 4 images of 5 files (the first has statistics), 24 files.
NUMBERS = {"climate": 8, "hepcnn": 32, "malware": 24, "stream": 24}


@pytest.fixture(scope="module", params=NUMBERS)
def measured(request, tmp_path_factory):
    """Measure the cells of one benchmark; returns its name and its campaign folder."""
    name, folder = request.param, tmp_path_factory.mktemp(request.param)
    done = door.cli("-m", f"benchmark={name}", *DATA[name], *MORE[name], *ONCE, cwd=folder)
    assert done.code == 0, done.err
    return name, folder / "results"


def test_each_run_reads_what_its_samples_need_and_is_valid(measured):
    name, results = measured
    rows = door.table(results, "runs")

    assert set(rows["status"]) == {"valid"}
    for record in door.records(results):
        for run in record["runs"]:
            assert run["images"] == run["images_asked"] == NUMBERS[name]
            assert run["images_per_s"] == pytest.approx(run["images"] / run["wall_s"])
            assert run["bytes_read"] == run.get("bytes_predicted", record["dataset"]["bytes"])
            assert run["device_bytes"] > 0


def test_the_parts_of_a_run_add_up_and_come_from_its_steps(measured):
    _, results = measured
    for record in door.records(results):
        for run in record["runs"]:
            assert sum(run[part] for part in run["wall_parts"]) == pytest.approx(run["wall_s"], rel=0.3)
            steps = np.load(results / "records" / record["cell"]["id"] / run["steps"]["file"])
            assert {len(steps[name]) for name in steps.files} <= {run["steps"]["number"], 0}
            assert run["steps"]["first_load_s"] == steps["step_load_s"][0]
            assert 0 < run["load_s"] < inf


def test_the_report_draws_the_benchmark_by_its_figure_of_merit(measured):
    name, results = measured
    medians = door.table(results, "medians")

    assert len(medians) == len(door.records(results)) == (3 if name == "climate" else 1)
    assert (medians["status"] == "done").all()
    runs = door.table(results, "runs").groupby("cell")["images_per_s"].median()
    assert medians.set_index("cell")["images_per_s"].to_dict() == pytest.approx(runs.to_dict())
    assert any(path.suffix == ".png" for path in (results / "figures").iterdir())
