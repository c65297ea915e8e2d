"""The timeline of a run's steps and the table of where their time went, from tables as a run leaves them."""

import pytest

from analysis.__main__ import main
from analysis.figures import step_timeline
from jobs.events import step_times
from tests.analysis.record_factory import id_of, record, run, store
from tests.analysis.training_factory import figures_of, words
from tests.jobs.events.spaces import table, traced

STEPS = [("campaign step", 0, 100, 1), ("campaign input", 0, 60), ("campaign compute", 60, 95)]
POOL = [("ReadFile:ReadFile", 5, 40), ("DecodeJpeg:DecodeJpeg", 40, 50)]
LINES = [("python", STEPS), ("tf_data_private_threadpool/123456789", POOL)]


def cell(folder, lines=LINES, ranks=1, **settings):
    """Return the record of a cell of which each run left a table of these threads."""
    told = {"error": None, **step_times.record_metrics(traced(lines))}
    runs = [run(n, 100.0 + n, tensorflow={"file": f"tensorflow-{n}.npz", **told}) for n in (1, 2, 3)]
    made = record(runs, profile={"posix": "none", "tensorflow": "1-1"}, **settings)
    home = folder / "records" / id_of(made)
    home.mkdir(parents=True)
    for n in (1, 2, 3):
        for rank in range(ranks):
            table(home / f"tensorflow-{n}{f'-rank{rank}' if rank else ''}.npz", lines)
    return made


def test_threads_of_all_ranks_are_drawn_with_what_they_did(tmp_path):
    spec = figures_of(cell(tmp_path, ranks=2), folder=tmp_path)["steps"]

    drawn = spec.frame.dropna(subset="line").groupby(["line", "category"])[["start_s", "end_s"]].agg(["min", "max"])
    assert drawn.loc["rank 1 2 private_threadpool", "read"]["start_s"]["min"] == pytest.approx(5e-6, abs=4e-7)
    assert drawn.loc["rank 0 1 python", "compute"]["end_s"]["max"] == pytest.approx(95e-6, abs=4e-7)
    assert "local, 4 threads, prefetch 0" in words(spec.drawn())


def test_a_million_events_make_a_small_picture(tmp_path):
    many = [("ReadFile:ReadFile", at, at + 1) for at in range(0, 20_000, 2)]
    lines = [
        ("python", [("campaign step", 0, 20_000, 1), ("campaign compute", 0, 9)]),
        *((f"tf_data/{n}", many) for n in range(12)),
    ]

    spec = figures_of(cell(tmp_path, lines), folder=tmp_path)["steps"]

    assert len(spec.frame) <= step_timeline.MOST_THREADS * (step_timeline.COLUMNS + 1) * len(step_timeline.COLORS)
    assert spec.frame["line"].nunique() == step_timeline.MOST_THREADS


@pytest.mark.parametrize("spoil", [lambda path: path.write_bytes(b"PK"), lambda path: path.unlink()])
def test_a_table_that_cannot_be_read_is_no_picture_and_nothing_worse(tmp_path, spoil):
    made = cell(tmp_path)
    for path in (tmp_path / "records" / id_of(made)).glob("tensorflow-*"):
        spoil(path)

    assert "steps" not in figures_of(made, folder=tmp_path)


@pytest.mark.usefixtures("unrendered")
def test_the_report_has_a_line_a_cell_that_adds_up_to_its_steps_and_of_other_cells_no_such_part(tmp_path):
    plain = record([100.0, 101.0, 102.0])
    folders = store(tmp_path / "a", cell(tmp_path / "a"), plain), store(tmp_path / "b", plain)

    assert [main([str(folder), "--quiet"]) for folder in folders] == [0, 0]
    page, without = ((folder / "report.html").read_text(encoding="utf-8") for folder in folders)
    assert 'id="steps"' not in without
    part = page.partition('id="steps"')[2].partition("</section>")[0]
    assert "yes, 60.0 %" in part
    assert ">prefetch 0.0000350, read 0.0000350, input wait 0.0000150, decode 0.0000100<" in part
    for shown in ("0.000100", "0.0000350", "0.0000100", "0.0000150", "0.00000500"):  # steps = compute, read too + …
        assert f">{shown}<" in part
