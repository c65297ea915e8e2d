"""Jobs that ask for far more than their runs take are packed, by what earlier runs took."""

import pytest

from campaign.cells import cell_plan
from campaign.cluster import packing, slurm, submission
from campaign.config.points import cells_of
from campaign.slurm.client import Facts
from campaign.worker.work_list import Request
from tests.campaign.fake_template import failed
from tests.campaign.on_disk import leave_record
from tests.campaign.work_lists import grid

NOTHING = Facts("")


@pytest.fixture
def asked(folder):
    """What is to do for these words, and the request; a run of another cell of the same kind took `took` seconds."""

    def made(*words, took=None):
        cells, conduct = cells_of(grid("cluster=slurm", *words))
        if took:
            (other,), _ = cells_of(grid("seed=999"))
            leave_record(folder, other, {**failed(), "elapsed_s_with_fork": took})
        return cell_plan.make(cells, conduct, folder).to_do, Request(folder, conduct, "0a1b2c3d", "2026-11-21", words)

    return made


@pytest.mark.parametrize(
    ("words", "took", "sizes", "minutes"),
    [
        # 128 cells of 14 s are half an hour; the same number in each. Twice 15 s and 1,400 s, 90 s to save, 5 min more.
        ([], 14 / 6, [100, 100], 54),
        ([], 14 / 6, [101, 100], 55),
        (["cluster.timeout_min=20"], 25.0, [4, 3], 20),  # of 150 s each: 10 min of runs in a job of 20
        (["cluster.timeout_min=20"], 25.0, [4, 4], 20),
        (["cluster.timeout_min=40"], 12.5, [7], 25),
    ],
)
def test_many_cells_in_jobs_of_an_hour_are_a_few_short_jobs(words, took, sizes, minutes, asked):
    number = sum(sizes)
    todo, request = asked(f"seed={','.join(map(str, range(number)))}", *words, took=took)

    packed = packing.cheaper(todo, request, NOTHING)

    cluster, before = packed.request.conduct["cluster"], request.conduct["cluster"]["timeout_min"]
    tasks = [task for array in submission.arrays(todo, packed.request, 1001) for task in array.tasks]
    assert [len(task) for task in tasks] == sizes
    assert (packed.jobs, cluster["cells_per_job"], cluster["timeout_min"]) == (len(sizes), sizes[0], minutes)
    assert packed.job_s == pytest.approx(15 + 6 * took * sizes[0])
    assert (packed.hours, packed.hours_before) == pytest.approx((len(sizes) * minutes / 60, number * before / 60))


@pytest.mark.shows("cluster.pack")
def test_cluster_pack_submits_the_packing(asked, capsys):
    todo, request = asked("seed=0,1,2", "cluster.pack=true", took=10.0)

    packed = packing.applied(todo, request, NOTHING)
    (array,) = submission.arrays(todo, packed, 1001)

    assert [len(task) for task in array.tasks] == [3]
    assert packed.conduct["cluster"]["timeout_min"] == 13
    assert (
        "cluster.pack=true: 1 job of 3 cells and at most 13 min (about 4 min expected): 0.22" in capsys.readouterr().err
    )
    assert packing.applied(*(plain := asked("seed=0,1,2")), NOTHING) is plain[1]
    (record,) = request.folder.records.glob("*/record.json")
    record.unlink()
    assert packing.applied(todo, request, NOTHING) is request
    assert "no earlier run is recorded" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "took"),
    [
        ("", None),
        ("", 300.0),  # six runs: half an hour of the hour
        ("cluster.timeout_min=2 cluster.cells_per_job=4", 5.0),
        ("cluster.pack=true", 1.0),
    ],
)
def test_where_little_would_be_saved_nothing_is_proposed(words, took, asked, capsys):
    packing.propose(*asked("seed=0,1,2,3", *words.split(), took=took), NOTHING)

    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("where", ["dry run", "question"])
def test_what_is_far_too_much_is_said_with_the_word_that_asks_for_less(where, asked, programs, monkeypatch, capsys):
    programs("srun")
    todo, request = asked("seed=0,1,2", took=10.0)
    monkeypatch.setattr(slurm.console, "agreed", lambda _: True)

    if where == "question":
        slurm._Offer(todo, request, NOTHING).ask()  # noqa: SLF001 - the question
    else:
        slurm.preview(cell_plan.make([entry.cell for entry in todo], request.conduct, request.folder), request)

    said = capsys.readouterr().err
    assert "3.0 node-hours, at most 12 after requeues" in said
    assert "cluster.pack=true submits 1 job of 3 cells and at most 13 min" in said
    assert "0.22 node-hours at most instead of 3.0" in said


@pytest.mark.parametrize("seconds", [0.01, 1.0, 299.0, 4000.0])
@pytest.mark.parametrize("words", ["nodes=1,2", "seed=0,1,2,3,4,5,6", "cluster.timeout_min=2 cluster.cells_per_job=3"])
def test_a_packing_always_asks_for_less_and_for_no_longer_jobs(words, seconds, asked):
    todo, request = asked(*words.split(), took=seconds)

    packed = packing.cheaper(todo, request, NOTHING)

    if packed:
        cluster = packed.request.conduct["cluster"]
        assert packed.hours < packed.hours_before
        assert 60 * cluster["timeout_min"] > cluster["signal_delay_s"]
        assert cluster["timeout_min"] <= request.conduct["cluster"]["timeout_min"]
