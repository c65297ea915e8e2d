# ruff: noqa: RUF001 - a dash and a sign of times are what is shown
"""One small campaign of each kind of table: what stands in Markdown, on the page and on a terminal, cell by cell."""

import re
from html import unescape
from itertools import pairwise
from pathlib import Path

import pytest
from pandas import DataFrame
from rich.text import Text

from analysis.errors import AnalysisError
from analysis.figures.kit.figure_spec import FigureSpec
from analysis.frames import frames_of_records as measured_tables
from analysis.output import notes, tables, terminal
from analysis.page import cells
from analysis.page.part import Results
from analysis.records.read_records import FoundRecords, SkippedRecord
from analysis.records.record import record_of
from analysis.text import PLUS_MINUS
from jobs.judging.bound import bound_of_cell
from jobs.judging.judge import CURE_OF_LOOSER, judge_record
from tests.analysis.baseline_records import baseline
from tests.analysis.claims_factory import checklist
from tests.analysis.figures.test_swept_settings import toy
from tests.analysis.record_factory import disturbed, failed, id_of, parse, record, run, scattered, unstable
from tests.analysis.saving_factory import saved
from tests.analysis.training_factory import drawn, frames, grid, step, training

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
TABLES = """
storage;threads;images/s;MB/s;of baseline;s;vs 1 thread;n;remarks
local;1;97.0 ± 2.0 %;10.9;26 %;5.28;1.00×;3;
local;2;176 ± 10 %;19.7;48 %;2.92;1.81×;4;
local;4;50.0 ± 2.0 % †;5.60;80 %;10.2;0.52×†;3/6;cold failed 2x
local;16;162 ± 6.3 % ‡;18.1;–;3.18;–;0/2;INVALID; quiet failed 2x
local;32;–;–;–;–;–;0;UNFINISHED
storage;benchmark.size;benchmark.way;files/s or s/file;n
hdd;3;a;9.00 ± 2.0 %;3
local;1;–;5.00 ± 2.0 %;3
local;2;a;10.0 ± 2.0 %;3
storage;threads;batch;prefetch;control;runtime s;images/s;input share;compute share;between;n
ssd;4;16;0;none;180 ± 2.0 %;50.5;1 %;99 %;–;3
ssd;4;64;1;no_compute;37.0 ± 2.0 %;246;3 %;96 %;–;3
ssd;4;64;1;no_io;61.0 ± 2.0 %;149;2 %;98 %;–;3
ssd;4;64;1;none;150 ± 33 %;60.6;8 %;92 %;241 %;3
storage;threads;checkpoint;runtime s;one checkpoint, s;images/s;input share;compute share;checkpoint share;n
ssd;8;none;152 ± 0.5 %;–;59.9;1 %;99 %;0 %;2
ssd;8;burst buffer, optane to hdd, async, 2 in flight;160 ± 2.0 %;1.40;56.8;1 %;99 %;30 %;3
storage;access;threads;MB/s;s;engine;n
local;random_read;4;7.00;717;fio-3.33;3
local;read;–;41.0 ± 2.0 %;122;fio-3.33;3
local;write;–;132 ± 8.7 %;38.1;fio-3.33;4
""".strip().splitlines()
TERMINAL = """\
micro: dataset demo (512 files), batch 64, prefetch 0, cold cache, preprocess
                                             of
storage  threads       images/s  MB/s  baseline    n  remarks                   cell
local          1   97.0 ± 2.0 %  10.9      26 %    3                            ID
local          2     176 ± 10 %  19.7      48 %    4                            ID
local          4  50.0 ± 2.0 %†  5.60      80 %  3/6  cold failed 2x            ID
local         16   162 ± 6.3 %‡  18.1         –  0/2  INVALID; quiet failed 2x  ID
local         32              –     –         –    0  UNFINISHED                ID

vs 1 thread   local  paper's hdd  paper's lustre
          2   1.81×        1.65×               –
          4  0.52×†        1.95×               –
paper: Chien et al. 2018, Sec. VII

toy: dataset demo (512 files), threads 4, batch 64, prefetch 0, cold cache, preprocess; 3 runs of each
                         files/s
                              or
storage  size  way        s/file  cell
hdd         3    a  9.00 ± 2.0 %  ID
local       1    –  5.00 ± 2.0 %  ID
local       2    a  10.0 ± 2.0 %  ID
"""
QUIET = "quiet: others kept 3.00 cores busy (at most 0.5) and took 0.0% of the time of vda (at most 5%)"
WARM = "cold: 100.00% of the pages were in memory before the start (100%, at most 1%)"
COMPLAINTS = [
    f"cell invalid: 0 of 2 measured runs valid, 1 needed; {QUIET} (2 measured runs invalid)",
    "cell unfinished: 0 of 0 measured runs valid, 1 needed; 1 more to be measured",
    f"2 measured runs invalid: {WARM}", "1 measured run failed: killed",
]  # fmt: skip


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


def test_every_form_of_the_tables_has_what_the_runs_of_the_records_gave(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "150")
    table, runs, _ = frames(*EVERY)

    lines = [
        re.split(r" ?\| ?", line)[1:-1] for line in tables.medians_markdown(table, runs).splitlines() if line[:1] == "|"
    ]
    page = rows_of_page(cells.median_tables(results_of(*EVERY)))

    assert [";".join(line[:-1]) for line in lines if line[0] != "---"] == TABLES
    assert [";".join(row[:-1]) for row in page] == TABLES
    assert all(len(line) == len(below) for line, below in pairwise(lines) if "---" in below)
    assert shown(capsys, *terminal.summary_tables(table, runs)).startswith(TERMINAL)
    assert [text for _, text in tables.not_counted(table, runs)] == COMPLAINTS


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


@pytest.mark.parametrize(("most", "more"), [(4, ""), (3, "… and 1 more, in tables/medians.csv")])
def test_of_very_many_cells_as_many_are_printed_as_can_be_read_and_all_are_told_of(capsys, monkeypatch, most, more):
    monkeypatch.setattr(terminal, "MOST_ROWS", most)
    bad = [record([failed(1, f"no {n}")], threads=2**n) for n in range(4)]
    table, runs, _ = frames(*bad)

    text = shown(capsys, *terminal.summary_tables(table, runs))

    assert text.count(" FAILED ") == most
    assert text.count("cell failed: 0 of 1 measured runs valid, 1 needed; no ") == most
    assert (more in text) == (more.replace("medians.csv", "medians.md") in text) == (not more or most == 3)
    assert text.count("and 1 more") == 2 * bool(more)


def test_a_metric_without_a_unit_is_named_in_the_heading_and_on_the_axis(capsys):
    unitless = toy(scattered(5.0), size=1, merit=("pipeline", "files_per_s", "", "higher"))
    table, runs, _ = frames(unitless)
    (spec,) = drawn("sweep-", unitless)

    assert shown(capsys, *terminal.summary_tables(table, runs)).splitlines()[1].split() == [
        "storage",
        "files_per_s",
        "cell",
    ]
    assert spec.drawn().axes[0].get_ylabel() == "files_per_s\nhigher is better"


def test_what_is_piped_is_120_wide_and_columns_keep_their_sides(capsys):
    table = terminal.empty_table(("a", "left"), ("b", "right"))
    table.add_row("1", "22")

    assert shown(capsys, Text("x " * 99), table).splitlines() == ["x " * 59 + "x", "x " * 38 + "x", "a   b", "1  22"]


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


@pytest.mark.parametrize("width", [60, 80])
def test_on_a_narrow_terminal_a_cell_is_one_line_with_its_whole_id_and_headings_are_whole(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    hdd = baseline([163.0] * 3, "read", storage="hdd")
    made = [*(record([90.0 * n, 99.0 * n], threads=n, storage="hdd") for n in (1, 8)), record([9.0], storage="lustre")]
    short = {id_of(each): id_of(each)[-10:] for each in made}
    table = frames(hdd, *made)[0]

    terminal.print_text(terminal.medians_table(table[table["cell"].isin(short)], short))

    *headings, first, second, third = capsys.readouterr().out.splitlines()
    assert {"storage", "threads", "images/s", "cell"} <= set(headings[-1].split())
    assert [line.split()[0] for line in (first, second, third)] == ["hdd", "hdd", "lustre"]
    assert {line.split()[-1] for line in (first, second, third)} == set(short.values())


@pytest.mark.parametrize(("width", "has_numbers"), [(120, True), (52, False)])
def test_what_bounds_a_cell_is_said_in_every_form_with_the_numbers_that_decide(width, has_numbers, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    busy = {"elapsed_s": 10.0, "wall_s": 10.0, "load_s": 9.9, "other_s": 0.1, "cpu_s": 2.0, "steal_s": 0.0}
    many = record([run(n, 51.2, other_cpu=0.0, **busy | {"cpu_s": 39.0}) for n in (1, 2, 3)], threads=4)
    few = record([run(n, 51.2, other_cpu=0.0, **busy) for n in (1, 2, 3)], threads=2)
    for made in (many, few):
        made["provenance"]["affinity"] = [0, 1, 2, 3]
    both = [
        record_of(value, Path(), bound_of_cell(value)) for value in (judge_record(m, m["terms"]) for m in (many, few))
    ]
    table, runs = measured_tables(both)

    page = rows_of_page(
        cells.median_tables(Results(FoundRecords(tuple(both), (), Path()), table, runs, None, (), {}, Path()))
    )
    texts = [[*map(" ".join, page)], tables.medians_markdown(table, runs).splitlines()]
    printed = " ".join(shown(capsys, *terminal.summary_tables(table, runs)).split())

    for lines in texts:
        assert [("decoding" in line, "3.9 of 4 processors busy" in line) for line in lines if "51.2" in line] == [
            (False, False), (True, True),
        ]  # fmt: skip
    assert ("decoding" in printed, "undecided" in printed) == (True, True)
    assert ("3.9 of 4" in printed) is has_numbers
    assert table["bound"].tolist() == ["decoding", "undecided"]
    assert table["bound_share"].tolist() == [pytest.approx(0.975), pytest.approx(0.1)]


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


@pytest.mark.parametrize(("left", "more"), [(2, 0), (3, 1)])
def test_as_many_cells_that_figures_lack_are_named_as_can_be_read(capsys, monkeypatch, left, more):
    monkeypatch.setattr(notes, "MOST_NOTES", 2)
    frame = DataFrame(
        {"cell": ["done", "", *(f"c{n}" for n in range(left))], "status": ["done", *["failed"] * (left + 1)]}
    )
    spec = FigureSpec("fig4", "", "", frame, None)

    notes.print_notes([spec], [Path("b"), Path("a")], ["micro"], quiet=True)
    notes.print_notes([spec], [Path("b"), Path("a")], ["micro"], quiet=False)
    notes.print_notes([], [], ["micro", "toy", "micro"], quiet=False)

    assert capsys.readouterr().err.splitlines() == [
        "note: fig4 does not show c0: failed", "note: fig4 does not show c1: failed",
        *["note: 1 more cells are in no figure; tables/medians.md lists all cells"] * more,
        "note: removed old figures, which are not made from the present records: a, b",
        "note: no figure is drawn: Figs 4 and 5 need a done cell of micro; the chart of toy needs a done cell",
    ]  # fmt: skip


def test_only_figures_of_an_earlier_analysis_are_removed(tmp_path):
    for name in ("a.csv", "b.csv", "mine.csv"):
        (tmp_path / name).write_text(name)
    notes.remove_old_figures(tmp_path, [tmp_path / "a.csv", tmp_path / "b.csv"])

    assert notes.remove_old_figures(tmp_path, [tmp_path / "a.csv", tmp_path.parent / "c"]) == [tmp_path / "b.csv"]
    assert {path.name for path in tmp_path.glob("*.csv")} == {"a.csv", "mine.csv"}
    assert notes.remove_old_figures(tmp_path, []) == [tmp_path / "a.csv"]
