import pytest

from campaign.cells import cell_plan, record
from campaign.cells.verdicts import Verdicts
from jobs.judging import judge
from jobs.model.record import terms_of_conduct
from tests.campaign.fake_template import figures, invalid
from tests.campaign.on_disk import leave_record
from tests.jobs.jobs_factory import device_use


def _recorded(folder, cell, status, runs):
    leave_record(folder, cell, *({**figures(), "status": each} for each in runs), status=status)


def test_only_what_is_missing_is_to_do_unless_redo_asks_for_everything(cells, folder):
    made, conduct = cells
    _recorded(folder, made[0], "done", ["valid"] * 5)
    _recorded(folder, made[1], "running", ["valid"] * 2)

    planned = cell_plan.make_plan(made, conduct, folder)

    assert [(entry.state, entry.missing) for entry in planned.entries] == [("done", 0), ("running", 3), ("planned", 5)]
    assert planned.done == 1
    assert {entry.cell.id for entry in planned.to_do} == {made[1].id, made[2].id}
    assert [entry.missing for entry in cell_plan.make_plan(made, {**conduct, "redo": True}, folder).entries] == [
        5,
        5,
        5,
    ]


def test_a_damaged_record_is_to_do_again_and_a_newer_one_stops_the_plan(cells, folder):
    made, conduct = cells
    leave_record(folder, made[0], {**figures(), "wall_s": "x"})
    leave_record(folder, made[1])
    folder.record(made[1].id).write_text("{")

    entries = cell_plan.make_plan(made[:2], conduct, folder).entries

    assert [(entry.state, entry.missing) for entry in entries] == [("damaged", 5)] * 2
    folder.record(made[0].id).write_text('{"schema": 99}')
    with pytest.raises(record.NewerRecordError):
        cell_plan.make_plan(made, conduct, folder)


def test_the_order_is_a_permutation_that_its_seed_decides(cells, folder):
    made, conduct = cells

    def order(seed):
        return [entry.cell for entry in cell_plan.make_plan(made, {**conduct, "order_seed": seed}, folder).to_do]

    orders = [order(seed) for seed in range(20)]

    assert orders == [order(seed) for seed in range(20)]
    assert all(sorted(each, key=made.index) == made for each in orders)
    assert orders.count(orders[0]) < len(orders)


def test_a_cell_whose_worker_was_killed_after_its_last_run_is_judged_by_the_next_plan(cells, folder):
    made, conduct = cells
    _recorded(folder, made[0], "running", ["valid"] * 5)
    before = folder.record(made[0].id).read_bytes()

    planned = cell_plan.make_plan(made[:1], conduct, folder)

    assert (planned.entries[0].state, planned.entries[0].missing, planned.to_do) == ("done", 0, [])
    assert folder.record(made[0].id).read_bytes() == before


def test_what_was_valid_under_looser_thresholds_is_judged_by_those_asked_for_now(cells, folder):
    made, conduct = cells
    loose = {**conduct, "checks": {**conduct["checks"], "resident_max": 1.0}}
    recorded = leave_record(folder, made[0], *[invalid()] * 5, status="done")

    loosely, strictly = (cell_plan.make_plan(made[:1], each, folder).entries[0] for each in (loose, conduct))
    by_loose, by_strict = (Verdicts(folder, terms_of_conduct(each)).judge(recorded) for each in (loose, conduct))

    assert (loosely.state, loosely.missing) == ("done", 0)
    assert (strictly.state, strictly.missing) == ("invalid", 5)
    assert by_strict["runs"][0]["reason"].startswith("cold: 100.00% of the pages")
    assert by_loose["looser_checks"] == ["checks.resident_max=1 (the site's: 0.01)"]
    assert "looser_checks" not in by_strict


def test_runs_under_other_conditions_than_the_first_one_that_counts_do_not_count(cells, folder):
    made, conduct = cells
    one, other = ({"process": {"nice": nice}, "machine": {}, "storages": {}} for nice in (0, 5))
    runs = [{**invalid(), "conditions": other}, *[figures(conditions=each) for each in (one, other, one, one)]]

    found = Verdicts(folder, terms_of_conduct(conduct)).judge(leave_record(folder, made[0], *runs, status="done"))

    assert [run["status"] for run in found["runs"]] == ["invalid", "valid", "invalid", "valid", "valid"]
    assert found["runs"][2]["reason"] == "same_conditions: nice was 0, and is 5 in this run"
    assert judge.first_conditions(found) == one


@pytest.mark.parametrize("name", ["spread_max", "throttled_max"])
def test_a_threshold_of_the_sites_own_is_not_looser_than_it(cells, name):
    conduct = {**cells[1], "checks": {**cells[1]["checks"], name: 0.5}}
    of_site = {**conduct, "site": {**conduct["site"], name: 0.5}}

    assert judge.looser_checks(terms_of_conduct(of_site)) == []
    assert [words.partition("=")[0] for words in judge.looser_checks(terms_of_conduct(conduct))] == [f"checks.{name}"]


def test_a_refreshed_plan_reads_the_records_that_changed_and_no_others(cells, folder, monkeypatch):
    made, conduct = cells
    for cell in made[:2]:
        _recorded(folder, cell, "running", ["valid"] * 2)
    before = cell_plan.make_plan(made, conduct, folder)
    for cell in made[1:]:
        _recorded(folder, cell, "running", ["valid"] * 4)
    read, seen = record.read_record, []
    monkeypatch.setattr(record, "read_record", lambda path: seen.append(path) or read(path))

    after = before.refresh()

    assert seen == [folder.record(cell.id) for cell in made[1:]]
    assert [entry.missing for entry in after.entries] == [3, 1, 1]
    assert after == cell_plan.make_plan(made, conduct, folder)


@pytest.mark.parametrize(
    ("changed", "disturbed"),
    [
        ({"other_cpu": 8.93}, True),
        ({"device_use": [device_use(other_reads=125)], "elapsed_s": 1.0, "other_cpu": 0.1}, True),
        ({"resident_fraction": 1.0}, False),
    ],
)
def test_a_plan_tells_where_others_made_runs_invalid(changed, disturbed, cells, folder):
    made, conduct = cells
    leave_record(folder, made[0], figures(**changed))

    assert cell_plan.make_plan(made[:1], conduct, folder).entries[0].disturbed is disturbed
