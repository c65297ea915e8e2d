"""Which baseline judges which cell, and when."""

import copy

import numpy as np
import pytest

from campaign.cells import cell_plan, record
from campaign.cells.cell import make_cell
from campaign.cells.verdicts import Verdicts
from campaign.config.collect import make_cells
from campaign.storage import emulation
from jobs.model.record import terms_of_conduct
from tests.campaign.fake_template import TERMS, figures
from tests.campaign.on_disk import leave_record
from tests.campaign.work_lists import compose, walk, work_list

HOST = "n1"
CONDITIONS = {"process": {"nice": 19}, "machine": {}, "storages": {}}
ANY = TERMS | {"min_valid_runs": 1}


def peaks_of(folder):
    """What the baselines of a folder say of which one run counts."""
    return Verdicts(folder, ANY).peaks


def leave(folder, words, rates, *, data=None, status="done", **provenance):
    """Leave a record of the cell of these words with measured runs of these MB/s; of numbers, figures of the runs."""
    counts = {key: provenance.pop(key) for key in ("requests", "images", "images_asked") if key in provenance}
    runs = [{**figures(), **counts, "status": "valid", "read_mb_per_s": rate} for rate in rates]
    at, data, cell = {"host": HOST, **provenance}, data or {"checksum": "c"}, make_cell(compose(*words))
    at = emulation.add_expected_rates(at, data, cell.settings.get("threads"))
    return leave_record(folder, cell, *runs, data=data, status=status, provenance=at, terms=ANY)


READ = ("benchmark=baseline",)
RANDOM = ("benchmark=baseline", "benchmark.access=random_read")


@pytest.fixture
def micro(folder):
    """A cell that was measured; a function that says by what it is judged."""
    made = leave(folder, [], [50.0])
    return lambda: peaks_of(folder).peak_of(made)


def test_a_cell_is_judged_by_random_reads_of_its_data_by_as_many_readers_or_else_by_the_read(micro, folder):
    leave(folder, ["benchmark=baseline", "benchmark.access=write"], [900.0])
    assert micro() is None
    read = leave(folder, READ, [160.0, 163.0])
    assert micro() == {"by": read["cell"]["id"], "mb_per_s": 163.0, "ceiling_mb_per_s": None, "reads": None}
    random = leave(folder, RANDOM, [70.0, 60.0], requests=140)
    assert micro() == {"by": random["cell"]["id"], "mb_per_s": 70.0, "ceiling_mb_per_s": 140.0, "reads": 140}


RATES = {1: [21.0, 20.0, 30.0], 4: [50.0, 61.0, 40.0, 90.0], 8: [45.0, 47.0, 80.0]}


def test_what_readers_get_is_numpy_s_median_of_the_runs_by_their_number(folder):
    cell = leave(folder, [], [50.0])
    for threads, rates in RATES.items():
        leave(folder, [*RANDOM, f"threads={threads}"], rates)
    leave(folder, [*RANDOM, "threads=2", "dataset=caltech101"], [300.0])
    leave(folder, [*READ, "benchmark.engine=fio"], [150.0, 100.0, 120.0, 190.0])
    leave(folder, [*READ, "benchmark.engine=ior"], [110.0, 100.0, 190.0])

    found = peaks_of(folder).rates_by_reader_count(cell)

    assert found == {threads: np.median(rates) for threads, rates in RATES.items()}
    assert [*found.values()] == sorted(found.values())


def test_a_baseline_of_other_conditions_judges_nothing(micro, folder):
    leave(folder, RANDOM, [70.0], conditions=CONDITIONS)
    assert micro() is None

    same = leave(folder, [], [50.0], conditions=CONDITIONS)
    assert peaks_of(folder).peak_of(same)["mb_per_s"] == 70.0


def played(most):
    """Return a storage that is emulated, and so fast at most."""
    return {"emulated": {"storage": {"name": "hdd", "read_mb_per_s": most}}}


@pytest.mark.parametrize(("words", "seen"), [(None, None), (READ, 150.0), (READ, 375.0), (RANDOM, 375.0)])
def test_an_emulated_storage_is_as_fast_as_its_bound_at_most_whatever_was_seen(words, seen, folder):
    cell = leave(folder, [], [50.0], **played(163.0))
    if words:
        leave(folder, words, [seen], **played(163.0))

    assert peaks_of(folder).peak_of(cell) == {
        "by": "hdd, emulated",
        "mb_per_s": 163.0,
        "ceiling_mb_per_s": 326.0,
        "reads": None,
    }


@pytest.mark.parametrize(("threads", "words"), [("threads=4", RANDOM), ("threads=1", READ)])
def test_an_emulated_storage_that_was_seen_to_give_as_many_readers_less_judges_by_that(threads, words, folder):
    cell = leave(folder, [threads], [50.0], **played(163.0))
    seen = leave(folder, words, [150.0], **played(163.0))

    peak = peaks_of(folder).peak_of(cell)
    assert (peak["by"], peak["mb_per_s"], peak["ceiling_mb_per_s"]) == (seen["cell"]["id"], 150.0, 300.0)


@pytest.mark.parametrize(
    ("words", "emulated"),
    [
        (READ, None), (READ, {"name": "hdd", "read_mb_per_s": 163.0}),  # what a storage gave, whatever else is known
        ([], {"name": "unknown"}), ([], {"name": "hdd", "read_mb_per_s": None}),  # no bound is known
    ],
)  # fmt: skip
def test_what_no_peak_bounds_is_judged_by_none(words, emulated, folder):
    leave(folder, RANDOM, [70.0])

    assert peaks_of(folder).peak_of(leave(folder, words, [300.0], emulated=emulated and {"storage": emulated})) is None


@pytest.mark.parametrize(
    ("words", "more"),
    [
        ([*READ, "storage.name=other"], {}),
        ([*READ, "storage.root=/elsewhere"], {}),
        ([*READ, "storage.stripe_count=4"], {}),
        (READ, {"host": "n2"}),
        (READ, {"mount": {"source": "/dev/sdb"}}),
        (READ, {"emulated": {"storage": {"name": "hdd", "read_mb_per_s": 300.0}}}),
        (READ, {"status": "running"}),
        ([*RANDOM, "threads=8"], {}),
        ([*RANDOM, "dataset=caltech101"], {}),
        (RANDOM, {"data": {"checksum": "of other bytes"}}),
    ],
)
def test_what_is_another_storage_machine_or_way_to_read_judges_nothing(words, more, micro, folder):
    leave(folder, words, [160.0], **more)

    assert micro() is None


def test_a_cell_that_was_measured_before_its_baseline_is_judged_when_it_is_there(folder, point):
    cells, conduct = make_cells([{**point, "threads": 1}])
    walk(folder, work_list(folder, cells, conduct))
    done = record.read_record(folder.record(cells[0].id))
    assert cell_plan.make_plan(cells, conduct, folder).entries[0].state == "done"

    rate = done["runs"][1]["read_mb_per_s"]
    at = done["provenance"]
    same = {key: at[key] for key in ("host", "mount", "conditions")}
    baseline = leave(folder, READ, [rate / 5] * 3, **same)
    path = folder.record(cells[0].id)
    before = path.read_bytes()
    planned = cell_plan.make_plan(cells, conduct, folder)

    recorded, _ = Verdicts(folder, terms_of_conduct(conduct)).read(path)
    assert (planned.entries[0].state, recorded["status"]) == ("invalid", "invalid")
    assert path.read_bytes() == before
    assert "below_peak" in recorded["reason"]
    assert baseline["cell"]["id"] in recorded["reason"]
    folder.record(baseline["cell"]["id"]).unlink()
    assert cell_plan.make_plan(cells, conduct, folder).entries[0].state == "done"


@pytest.mark.parametrize("seed", range(5))
def test_baselines_come_before_what_they_judge(seed, folder, point):
    points = [{**copy.deepcopy(point), "threads": threads} for threads in (1, 2, 4)]
    points += [compose(*words) for words in (READ, RANDOM)]
    cells, conduct = make_cells([{**each, "order_seed": seed} for each in points])

    order = [entry.cell.benchmark for entry in cell_plan.make_plan(cells, conduct, folder).to_do]

    assert order == ["baseline"] * 2 + ["micro"] * 3
