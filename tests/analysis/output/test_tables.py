"""What the tables say beside their numbers, and which names they give to cells."""

import re
from html import unescape
from pathlib import Path

import pytest

from analysis.errors import AnalysisError
from analysis.output import notes, tables, terminal
from analysis.page import cells
from analysis.page.part import Results
from analysis.records.read_records import FoundRecords, SkippedRecord
from analysis.text import PLUS_MINUS
from jobs.judging.judge import CURE_OF_LOOSER
from tests.analysis.baseline_records import baseline
from tests.analysis.claims_factory import checklist
from tests.analysis.figures.test_swept_settings import toy
from tests.analysis.record_factory import disturbed, failed, id_of, parse, record, run, scattered, unstable
from tests.analysis.saving_factory import saved
from tests.analysis.training_factory import frames, grid, step, training

COLD = [run(n, 9e3, fails=["cold"]) for n in (4, 5)]
LESS = ("training", "files_per_s", "s/file", "lower")
SPENT = [step(n, wall, load_s=load) for n, wall, load in ((1, 140.0, 7.0), (2, 199.0, 23.0), (3, 150.0, 12.0))]
SAVES = saved("optane to hdd", scattered(160.0), (1.4, 1.6, 5.5), mode="async", in_flight=2, seed=1)
for place, each in enumerate(SAVES["runs"]):
    each["checkpoint_s"] = 16.0 * (place + 1)
EVERY = [
    record(scattered(97.0), threads=1), record([171.0, 180.0, 193.0, 160.0], threads=2),
    unstable(record([*scattered(50.0), *COLD, failed(6, "killed")], threads=4)),
    disturbed(151.25, 171.75, threads=16), record([], threads=32),
    training(SPENT, storage="ssd"), training(scattered(180.0), prefetch=0, batch_size=16, storage="ssd"),
    training(scattered(61.0), control="no_io", storage="ssd"),
    training(scattered(37.0), control="no_compute", storage="ssd"),
    SAVES,
    saved("none", [151.0, 152.5], seed=1),
    baseline(scattered(41.0)), baseline([130.0, 120.0, 133.0, 133.0], "write"), baseline([7.0] * 3, "random_read"),
    *(toy(scattered(5.0 * size), size=size, benchmark__way=way) for size, way in ((1, None), (2, "a"))),
    toy(scattered(9.0), size=3, storage="hdd", merit=LESS, benchmark__way="a"),
]  # fmt: skip

# Below each heading its rows: of three runs around 97 those are 97, 0.99 and 1.02 times as much, of four the median is
# the mean of the middle two; what runs gave that do not count stands nowhere but where others alone spoiled all.
QUIET = "quiet: others kept 3.00 cores busy (at most 0.5) and took 0.0% of the time of vda (at most 5%)"
WARM = "cold: 100.00% of the pages were in memory before the start (100%, at most 1%)"


def results_of(*made, skipped=(), folder=Path("home"), drawn=()):
    """Return what the parts of the page need of these records."""
    table, runs, _ = frames(*made)
    found = FoundRecords(tuple(parse(each, folder) for each in made), tuple(skipped), folder)
    return Results(found, table, runs, checklist(*made), drawn, {}, folder)


def rows_of_page(markup):
    """Return the rows of all tables in HTML, as texts."""
    rows = (re.findall("<t[hd][^>]*>(.*?)</t[hd]>", line) for line in markup.split("<tr>"))
    return [[unescape(re.sub("<[^>]*>", "", cell)) for cell in row] for row in rows if row]


def shown(capsys, *what):
    """Return what is printed on a terminal; ids are as long as the heading."""
    terminal.print_text(*what)
    return re.sub(r"\w+-[\w-]+-[0-9a-f]{10}", "ID", capsys.readouterr().out)


def test_a_reason_that_a_cell_shares_with_its_runs_or_with_other_cells_is_listed_once():
    made = record([run(n, 1.0, fails=["quiet"]) for n in (1, 2)] + [run(3, 1.0, fails=["cold"])])
    made["runs"][0] = failed(0, "", role="warmup")
    table, runs, _ = frames(made)

    told = tables.not_counted(table, runs)

    assert [text for _, text in told] == [
        f"cell invalid: 0 of 3 measured runs valid, 1 needed; {QUIET} (2 measured runs invalid)",
        "1 warm-up run failed: no reason recorded", f"1 measured run invalid: {WARM}",
    ]  # fmt: skip
    short = {each: each * 2 for each in "abcd"}
    summed_up = terminal.sum_up_complaints([("a", "x"), ("b", "y"), ("c", "x"), ("d", "x")], short)
    assert summed_up == [("aa and 2 more", "x"), ("bb", "y")]


@pytest.mark.parametrize(("ids", "short"), [(("x-abcdef", "y-abcdeg"), True), (("x-abcde", "y-abcdeg"), False),
                                            (("x-abcdef", "y-abcdef"), False)])  # fmt: skip
def test_a_cell_is_named_by_its_hash_where_that_names_it(ids, short):
    assert terminal.short_ids(ids) == {each: each[2:] if short else each for each in ids}


@pytest.mark.parametrize("width", [80, 90])
def test_no_figure_or_cell_is_cut_at_any_usual_width(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    made = [record([20481.5, 20590.5, 20700.5], storage="optane (scratch)"), record([5e4, *COLD], storage="ssd")]
    made += [*grid(("nvme-scratch",), (1, 8)), training([60.0] * 3, control="no_io", storage="nvme-scratch")]

    terminal.print_text(*terminal.summary_tables(*frames(*made)[:2]))

    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    assert all(id_of(each)[-10:] in out for each in made)
    told = (f"20590 {PLUS_MINUS} 0.5 %", "2 measured runs invalid", "runtime", *["optane (scratch)"] * (width == 90))
    assert [text for text in told if text not in out] == []
    assert "…" not in out


def test_looser_checks_and_one_device_of_two_names_are_said_below_the_medians(capsys):
    loose = record(scattered(99.0), device="sda")
    loose["terms"]["checks"]["resident_max"] = 1.0
    made = [loose, record(scattered(50.0), storage="ssd", device="sda")]
    table, runs, _ = frames(*made)
    said = (
        "1 of 2 cells judged by looser checks than the site's: checks.resident_max=1 (the site's: 0.01); not compared"
    )

    printed = " ".join(shown(capsys, *terminal.summary_tables(table, runs)).split())

    page = unescape(str(cells.median_tables(results_of(*made))))
    texts = (printed, tables.medians_markdown(table, runs), page)
    assert [text.count(f"{said} with others; {CURE_OF_LOOSER}") for text in texts] == [1] * 3
    one_device = "local, ssd are one device, dsk/sda: differences between these cells are not caused by the storage"
    assert one_device in printed


def test_what_is_set_aside_is_named_with_its_cure_and_without_any_record_left_it_ends(capsys):
    skipped = (
        SkippedRecord(Path("a"), "is no JSON", "copy it anew"),
        SkippedRecord(Path("b"), "is too large", "cut it"),
    )

    notes.warn_of_skipped(FoundRecords((parse(EVERY[0]),), skipped, Path()), Path())
    assert capsys.readouterr().err == (
        "warning: a is no JSON; skipped\nhint: copy it anew\nwarning: b is too large; skipped\nhint: cut it\n"
    )
    with pytest.raises(AnalysisError, match="none of the 2 records in x can be read"):
        notes.warn_of_skipped(FoundRecords((), skipped, Path()), Path("x"))


def test_only_figures_of_an_earlier_analysis_are_removed(tmp_path):
    for name in ("a.csv", "b.csv", "mine.csv"):
        (tmp_path / name).write_text(name)
    notes.remove_old_figures(tmp_path, [tmp_path / "a.csv", tmp_path / "b.csv"])

    assert notes.remove_old_figures(tmp_path, [tmp_path / "a.csv", tmp_path.parent / "c"]) == [tmp_path / "b.csv"]
    assert {path.name for path in tmp_path.glob("*.csv")} == {"a.csv", "mine.csv"}
    assert notes.remove_old_figures(tmp_path, []) == [tmp_path / "a.csv"]
