"""Which cluster is taken, and what it cannot be asked for.

Who makes the data of a campaign, and what is said of it before.
"""

import os
import re
import subprocess
import sys

import pytest

from campaign.cells import cell_plan
from campaign.cells.cell import make_cell
from campaign.cluster import placement, submission
from campaign.config.collect import make_cells
from campaign.errors import EnvironmentFaultError, UsageError
from campaign.storage.made_data import MissingData
from campaign.worker.batch import CampaignCall
from jobs.data import make, specs
from jobs.store.folder import Folder
from tests.campaign.work_lists import UTC, grid, slurm_conduct


@pytest.fixture
def chosen(point):
    """The cluster of this name for a cell on a storage with this root."""

    def choose(name, root="/scratch", *, shared=True, detach=False):
        storage = {**point["storage"], "root": root, "shared": shared}
        return placement.choose_cluster(
            [make_cell({**point, "storage": storage})], {"cluster": {"name": name}, "detach": detach}
        )

    return choose


@pytest.mark.parametrize(
    ("name", "root", "shared"),
    [("slurm", "data", True), ("slurm", "~/data", False), ("slurm", "/scratch", False), ("local", "data", False)],
)
def test_a_cluster_that_was_named_is_taken_without_a_question_where_runs_find_their_root(
    name, root, shared, chosen, programs
):
    programs("sbatch", "exit 1")
    programs("sinfo", "echo debug")

    assert chosen(name, root, shared=shared) == name
    assert programs.calls == []
    with pytest.raises(UsageError, match=r"needs an absolute storage\.root"):
        chosen("slurm", "data", shared=False)


@pytest.fixture
def planned(folder, tmp_path):
    """A function that plans the cells of these words, on a storage that is there."""
    (tmp_path / "data").mkdir()

    def planned(*words):
        cells, conduct = make_cells(grid(f"storage.root={tmp_path}/data", *words))
        return cell_plan.make_plan(cells, slurm_conduct(conduct), folder)

    return planned


def _made(planned, **site):
    return placement.plan_data(planned.entries, {**planned.conduct["site"], **site})


def test_nersc_s_data_are_counted_and_what_does_not_fit_is_refused_before_anything_is_made(planned):
    data = _made(cdb := planned("+paper=cdb"))

    assert re.fullmatch(
        r"to make: data set climate: 62,739 files, 3\.8 TB, /.*/datasets/climate-\w+, by a job before the other jobs,"
        r" in about [\d.]+ (h|min) of processor time; IT DOES NOT FIT: /.* needs 3,775,739 MB more,.* free",
        "\n".join(data.lines),
    )
    assert data.cells_with_data_by_job == {entry.cell.id for entry in cdb.entries}
    with pytest.raises(EnvironmentFaultError, match="needs 3,775,739 MB more"):
        data.require_room()
    of_nodes = _made(planned("+paper=cdb", "storage.shared=false"), login_data_gb=0)
    of_nodes.require_room()
    assert (of_nodes.cells_with_data_by_job, "by each node that reads the data set" in of_nodes.lines[0]) == (
        set(),
        True,
    )


SITE = {"make_data": "ask", "login_data_gb": 10.0, "login_processes": 4}
CORES = len(os.sched_getaffinity(0))
BY_A_JOB = "by a job before the other jobs"
BY_NODE = "by each node that reads the data set, unless the node has the data set already"
THINGS = [
    # files, bytes, seconds of a processor; whether each node has its own, and what is said
    ((7, 1_900_000, 90.0), True, "7 files, 1.9 MB, /p, on this login node by 4 processes of nice 19, in about 22 s"),
    ((1, 999_000_000, 90.0), True, "999 MB, /p, on this login node by 1 process of nice 19, in about 1.5 min"),
    ((2, 10**10, 7e4), True, "2 files, 10 GB, /p, on this login node by 2 processes of nice 19, in about 9.7 h"),
    ((3, 10**10 + 1, 7e4), True, f"3 files, 10 GB, /p, {BY_A_JOB}, in about 19 h of processor time"),
    ((1, 2_300_000_000_000, 0.01), False, f"2.3 TB, /p, {BY_NODE}"),
]  # fmt: skip


@pytest.mark.parametrize(("amount", "shared", "said"), THINGS)
def test_what_is_to_be_made_is_said_with_its_amount_who_makes_it_and_how_long_that_takes(amount, shared, said):
    thing = MissingData("x", "/p", *amount, shared=shared, cells={"a"})
    by_job = {"a"} if BY_A_JOB in said else set()

    data = placement.DataPlan([thing], SITE)

    assert (data.lines, data.cells_with_data_by_job, data.needs_consent) == (
        [f"to make: x: {said}"],
        by_job,
        bool(by_job),
    )


@pytest.mark.parametrize(
    ("make_data", "limit", "by_job", "needs_a_yes"),
    [("ask", 10, False, False), ("ask", 0.01, True, True), ("job", 0.01, True, False), ("login", 0.01, False, False)],
)
def test_more_data_than_the_site_lets_a_login_node_make_are_made_where_it_says(
    make_data, limit, by_job, needs_a_yes, planned
):
    data = _made(planned(), make_data=make_data, login_data_gb=limit)

    assert (bool(data.cells_with_data_by_job), data.needs_consent) == (by_job, needs_a_yes)
    assert (BY_A_JOB if by_job else "by 2 processes of nice 19") in "\n".join(data.lines)


@pytest.mark.parametrize("files", [1, 50])
def test_a_workstation_makes_its_data_itself_with_as_many_processors_as_it_has(files, planned):
    seconds = 58.0 * min(CORES, files)
    found = placement.plan_data(planned("benchmark=baseline,micro").entries, None)

    assert (found.cells_with_data_by_job, found.needs_consent) == (set(), False)
    assert [line.split(":")[1].strip() for line in found.lines] == ["file of a baseline", "data set demo"]
    (line,) = placement.DataPlan([MissingData("x", "/p", files, 10**6, seconds)], None).lines
    assert line.endswith("1.0 MB, /p, in about 58 s")


def test_of_data_that_are_half_made_the_rest_is_counted(planned, tmp_path):
    cell = planned("dataset.files=24", "dataset.classes=3", "batch_size=8").entries[0].cell
    spec = specs.dataset_spec(cell.settings["dataset"])
    place = tmp_path / "data" / "datasets" / specs.dataset_id("demo", spec)

    def cut(done, _total):
        if done >= 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make.make_dataset(place, spec, name="demo", processes=1, progress=cut)
    left = make.missing_files(Folder(place), spec, "demo")
    whole = make.missing_files_of_spec(spec)

    assert 0 < len(left.indices) < 24
    assert left.bytes == pytest.approx(whole.bytes * len(left.indices) / 24, rel=0.5)
    make.make_dataset(place, spec, name="demo", processes=1)
    assert make.missing_files(Folder(place), spec, "demo") == ([], 0)
    assert (
        placement.plan_data(planned("dataset.files=24", "dataset.classes=3", "batch_size=8").entries, None).data_sets
        == []
    )


def test_who_makes_data_politely_has_the_least_priority_with_all_that_it_starts_and_nobody_else():
    asks = [sys.executable, "-c", "import os; print(os.getpriority(os.PRIO_PROCESS, 0))"]

    def make_data(_progress):
        return os.getpriority(os.PRIO_PROCESS, 0), int(subprocess.check_output(asks))

    assert placement.call_with_least_priority(make_data, lambda *_: None) == (19, 19)
    assert os.getpriority(os.PRIO_PROCESS, 0) < 19


def test_the_job_that_makes_data_comes_first_on_one_node_in_the_longest_job_that_the_site_allows(planned, folder):
    cells = planned("nodes=1,2", "site.timeout_max_min=1440", "sync=barrier")
    data = _made(cells, login_data_gb=0)
    request = CampaignCall(folder, cells.conduct, "0a1b2c3d", UTC, ())

    first, *others = submission.make_arrays(cells.entries, request, 1000, data.cells_with_data_by_job)

    assert (first.makes_data, first.nodes, first.timeout_min, first.make_batch().cells) == (True, 1, 1440, [[]])
    assert [len(task) for task in first.tasks] == [1]  # cells of one data set
    assert [(array.data_array, array.nodes, array.timeout_min) for array in others] == [(first, 1, 60), (first, 2, 60)]
