from __future__ import annotations

import pytest
from fake_template import figures, invalid

from campaign import record, talk, watch
from campaign.plan import Entry


@pytest.fixture
def entries(cells):
    return [Entry(cell, "planned", 2) for cell in cells[0]]


@pytest.fixture
def follower(folder, entries):
    return watch.Follower(folder, entries, warmup_runs=1, token="mine")


def _write(folder, entry, runs, status="running", token="mine"):
    made = record.new(entry.cell, {"token": token}, {})
    for figure in runs:
        run = record.begin_run(made, "measured", token)
        run.update(figure or {})
    made["status"] = status
    record.write(folder.record(entry.cell.id), made)


def test_nothing_is_known_before_the_first_record(follower):
    step = follower.look()

    assert (step.ended, step.current, step.runs_over, step.runs_total) == ([], None, 0, 9)


def test_each_run_is_told_once(follower, folder, entries):
    _write(folder, entries[0], [figures(1), figures(2), None])

    first, second = follower.look(), follower.look()

    assert [run["images_per_s"] for _, run in first.ended] == [1, 2]
    assert first.current == (entries[0].cell.id, first.current[1])
    assert first.current[1]["run"] == 2
    assert second.ended == []
    assert second.runs_over == 2


def test_it_moves_on_when_a_cell_is_over(follower, folder, entries):
    _write(folder, entries[0], [figures()] * 3, "done")
    _write(folder, entries[1], [None])

    step = follower.look()

    assert step.cells_over == 1
    assert step.current[0] == entries[1].cell.id
    assert (step.runs_over, step.runs_total) == (3, 9)


def test_a_cell_that_gave_up_takes_its_missing_runs_out_of_the_total(follower, folder, entries):
    _write(folder, entries[0], [invalid()], "failed")

    assert follower.look().runs_total == 7


def test_a_record_of_an_earlier_submission_is_no_news(follower, folder, entries):
    _write(folder, entries[0], [figures()] * 3, "done", token="theirs")

    step = follower.look()

    assert (step.cells_over, step.ended) == (0, [])


def test_a_damaged_record_is_waited_out(follower, folder, entries):
    folder.cell(entries[0].cell.id).mkdir(parents=True)
    folder.record(entries[0].cell.id).write_text("{")

    assert follower.look().cells_over == 0


def test_the_last_look_comes_after_the_worker_has_ended(follower, folder, entries, capsys, monkeypatch):
    monkeypatch.setattr(talk, "stderr", talk.Console(stderr=True, width=200))

    def alive():
        for entry in entries:
            _write(folder, entry, [figures(123.4)] * 3, "done")
        return False

    watch.until_over(follower, alive)

    said = capsys.readouterr().err
    assert said.count("123.4 images/s") == 9
    assert "[9/9]" in said


def test_on_a_terminal_the_cell_the_run_and_the_rate_are_shown(follower, folder, entries, monkeypatch):
    import io  # noqa: PLC0415

    screen = io.StringIO()
    monkeypatch.setattr(talk, "stderr", talk.Console(file=screen, force_terminal=True, width=160, no_color=True))
    _write(folder, entries[0], [figures(321.0), invalid(), None])
    answers = iter([True, False])
    monkeypatch.setattr(watch, "_TICK_S", 0)

    watch.until_over(follower, lambda: next(answers))

    shown = screen.getvalue()
    assert "cell 1/3 micro-demo-local-t1-b64-p0 run 2 (measured)" in shown
    assert "2/9" in shown
    assert "invalid: cold" in shown
    assert "ETA" in shown


def test_an_invalid_run_is_told_with_its_reason():
    line = watch.describe("cell", {"run": 3, "role": "warmup", **invalid("quiet: others moved 99 MB/s")})

    assert line == "cell run 3 (warm-up): 400.0 images/s, invalid: quiet: others moved 99 MB/s"
