"""A baseline as a cell of a campaign: what it is made of, what it reads and writes, and by which engine."""

import statistics
from pathlib import Path

import pytest

from campaign.cells.cell import make_cell
from campaign.cells.cell_plan import PlannedCell
from campaign.cluster import submission
from campaign.config.collect import make_cells
from campaign.errors import EnvironmentFaultError
from campaign.storage import baseline_files, datasets
from campaign.worker.__main__ import Worker
from campaign.worker.batch import CampaignCall
from jobs.data import manifest
from jobs.judging import stopping
from tests.campaign.command_line import TINY
from tests.campaign.fake_template import FakeTemplate, figures
from tests.campaign.work_lists import UTC, asked_again, grid, slurm_conduct, walk, work_list
from tests.campaign.work_lists import compose as compose_any
from tests.judged import records_of

MIB = 1 << 20
SMALL = ("benchmark=baseline", "benchmark.file_mb=8", "benchmark.transfer_mib=1", "benchmark.engine=builtin")


def compose(*words):
    return compose_any(*SMALL, *words)


@pytest.fixture
def prepared(folder, tmp_path, monkeypatch):
    """Prepare what the cell of these words reads or writes; returns the cell and its data."""
    monkeypatch.chdir(tmp_path)

    def of(*words):
        cell = make_cell(compose(*words))
        said = []
        datasets.require_possible([PlannedCell(cell, "planned", 1, 1)])
        data = datasets.prepare_datasets(
            [PlannedCell(cell, "planned", 1, 1)], folder, lambda *each: said.append(each), redo=False
        )
        return cell, data[cell.id], said

    return of


OF_READERS = ("threads=8", "dataset=caltech101", "seed=3", "benchmark.seconds_max=2")
OF_REQUESTS = ("benchmark.transfer_mib=2",)


@pytest.mark.parametrize(
    ("access", "same", "other"),
    [("read", OF_READERS, OF_REQUESTS), ("write", OF_READERS, OF_REQUESTS), ("random_read", OF_REQUESTS, OF_READERS)],
)
def test_only_what_can_change_what_a_storage_gives_makes_another_cell(access, same, other):
    """A file is read or written whole, whoever asks; random reads are as large as a data set's files, by readers."""

    def cell(*words):
        return make_cell(compose(f"benchmark.access={access}", *words)).id

    assert {cell(word) for word in (*same, "batch_size=32", "prefetch=1")} == {cell()}
    assert cell() not in {cell(word) for word in other}


def test_random_reads_are_of_the_file_that_read_has_whatever_its_requests(prepared):
    few = [word for word in TINY if word.startswith("dataset.")]
    files = {
        prepared(f"benchmark.access={access}", "benchmark.file_mb=10", f"benchmark.transfer_mib={transfer}", *few)[1][
            "file"
        ]
        for access, transfer in [("random_read", 1), ("random_read", 2), ("read", 16)]
    }

    assert files == {f"read-{16 * MIB}.bin"}


def test_a_grid_of_threads_has_one_read_and_as_many_random_reads():
    words = ("threads=1,2,4,8", "benchmark.access=read,random_read")
    cells, _ = make_cells(grid(*SMALL, *words))

    assert [cell.id.rpartition("-")[0] for cell in cells] == [
        "baseline-read-local",
        *(f"baseline-random_read-demo-local-t{threads}" for threads in (1, 2, 4, 8)),
    ]


def test_the_file_is_made_under_the_root_of_the_storage_and_progress_is_told_in_mebibytes(prepared, tmp_path):
    _, data, said = prepared()

    file = tmp_path / "data" / "baseline" / f"read-{8 * MIB}.bin"
    assert Path(data["folder"]) / data["file"] == file
    assert file.stat().st_size == data["bytes"] == 8 * MIB
    assert data["block_bytes"] == MIB
    assert said[-1] == (f"making the file of {tmp_path}/data", 8, 8, "MiB")


def test_a_baseline_that_is_written_needs_room_and_no_file(prepared, tmp_path, monkeypatch):
    _, data, said = prepared("benchmark.access=write")
    monkeypatch.setattr("jobs.system.files.free_bytes", lambda _: 8 * MIB - 1)

    assert (data["file"], data["bytes"], said) == (None, 8 * MIB, [])
    assert not list((tmp_path / "data" / "baseline").glob("*.bin"))
    with pytest.raises(EnvironmentFaultError, match="8,389 kB more, and its device has 8,389 kB free"):
        prepared("benchmark.access=write")


def test_blocks_have_the_mean_size_of_the_dataset_in_whole_blocks_of_the_device(prepared):
    """As many reads are as many bytes as of the files; sizes as uneven as these have a median far below the mean."""
    uneven = ("dataset.files=24", "dataset.classes=3", "dataset.sigma=0.8")
    _, data, _ = prepared("benchmark.access=random_read", *uneven)

    sizes = [path.stat().st_size for path in Path(data["path"]).rglob("*.jpg")]
    mean = sum(sizes) / len(sizes)
    assert statistics.median(sizes) + 4096 < mean <= data["block_bytes"] < mean + 4096
    assert data["block_bytes"] % 512 == 0
    assert data["checksum"] == manifest.load_manifest(Path(data["path"])).checksum


@pytest.fixture
def item(folder, prepared):
    """A work list with one baseline, as a worker reads it."""

    def make(*words):
        cell, data, _ = prepared(*words)
        _, conduct = make_cells([compose(*words)])
        work = work_list(folder, [cell], {**conduct, "runs": 3})
        work["cells"][0]["dataset"] = data
        return work

    return make


def test_a_worker_asks_for_the_file_and_keeps_the_engines_words_beside_the_record(item, folder):
    work = item()
    template, _ = walk(folder, work)

    asked = [argument["baseline"] for argument, *_ in template.asked]
    cell = folder.cell(work["cells"][0]["id"])
    assert [each["raw"] for each in asked] == [str(cell / f"engine-{run}.txt") for run in range(3)]
    assert {(each["file"].rpartition("/")[2], each["file_bytes"], each["block_bytes"]) for each in asked} == {
        (f"read-{8 * MIB}.bin", 8 * MIB, MIB)
    }


def test_a_written_file_goes_though_its_run_was_killed(item, folder):
    work = item("benchmark.access=write")
    written = Path(work["cells"][0]["dataset"]["folder"]) / f"written-{work['cells'][0]['id']}.bin"

    class Killed(FakeTemplate):
        def run(self, argument, log, timeout_s):
            assert argument["baseline"]["file"] == str(written)
            written.write_bytes(b"half of it")
            return super().run(argument, log, timeout_s)

    Worker(folder, work, Killed()).run_all()

    assert not written.exists()


def test_the_spread_of_a_baseline_is_that_of_its_own_rate(item, folder):
    rates = [100.0, 150.0, 100.0]
    told = {"key": "write_mb_per_s", "unit": "MB/s"}
    runs = [{**figures(), "write_mb_per_s": rate, "rate": told} for rate in rates]
    for run in runs:
        del run["images_per_s"], run["read_mb_per_s"]

    _, (recorded,) = walk(folder, item("benchmark.access=write"), *runs)

    assert recorded["checks"][0]["observed"] == pytest.approx(50 / 125)


@pytest.mark.parametrize(("then", "aside"), [("ior", 1), (None, 0)], ids=["another", "lost"])
def test_runs_of_another_engine_are_kept_aside_but_not_where_it_was_lost(then, aside, item, folder, monkeypatch):
    work = item()
    for runs, engine in ((3, "fio"), (4, then)):
        monkeypatch.setattr(baseline_files, "engine_here", lambda _, engine=engine: engine)
        work["conduct"]["runs"] = runs
        _, (recorded,) = walk(folder, asked_again(work, token=str(runs)))

    assert recorded["provenance"]["engine"] == (then or "fio")
    assert len(stopping.measured_runs(recorded)) == 3
    assert len(list(folder.cell(work["cells"][0]["id"]).glob("elsewhere-*/record.json"))) == aside


def test_an_engine_that_is_missing_is_told_before_anything_is_started(monkeypatch, tmp_path, point):
    monkeypatch.setenv("PATH", str(tmp_path))
    settings = make_cell(compose("benchmark.engine=fio")).settings

    baseline_files.require_engine(make_cell(point).settings)
    with pytest.raises(EnvironmentFaultError, match="no program fio"):
        baseline_files.require_engine(settings)
    assert baseline_files.engine_here(settings) is None


@pytest.mark.long
def test_a_storage_is_written_and_read_by_one_command(command):
    accesses = "benchmark.access=write,read,random_read"
    done = command("-m", *SMALL, "benchmark.file_mb=64", accesses, "cluster=local", *TINY)

    assert done.returncode == 0, done.stderr
    records = records_of(command.cwd / "results")
    rates = {each["cell"]["settings"]["benchmark"]["access"]: each["runs"][1] for each in records}
    assert {access: run["status"] for access, run in rates.items()} == dict.fromkeys(rates, "valid")
    assert rates.keys() == {"write", "read", "random_read"}
    assert "MB/s" in done.stderr
    assert not list(command.cwd.glob("data/baseline/written-*"))


def test_a_job_of_a_baseline_asks_for_as_many_cpus_as_it_has_readers(folder):
    asked = {}
    for access in ("read", "random_read"):
        cells, conduct = make_cells([compose(f"benchmark.access={access}", "threads=8")])
        request = CampaignCall(folder, slurm_conduct(conduct), "t", UTC, ())
        (array,) = submission.make_arrays([PlannedCell(cell, "planned", 5, 5) for cell in cells], request, 100)
        asked[access] = array.cpus

    assert asked == {"read": 1, "random_read": 8}
