"""Every bench runs at its smallest size: what it builds on changes, and a bench is not asked for every day."""

import csv
import importlib
import json
import re
from types import SimpleNamespace

import pytest

from jobs.data.synthetic_images import ImageSpec
from tests.bench import __main__ as bench
from tests.bench.bench import Figure

# The others need devices, a cluster, TensorFlow several times.
SHORT = ("start", "planning", "trace_cost", "report", "time_log")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name not in SHORT)) for name in bench.BENCHES]
)
def test_a_bench_gives_its_figures_as_lines_and_as_json(name, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(f"tests.bench.{name}")
    asked = {"photos": str(_photos(tmp_path))} if "photos" in module.SIZES["smoke"] else {}
    if lacking := bench.lacking(module, asked):
        pytest.skip(lacking)
    words = [word for key, value in asked.items() for word in (f"--{key}", value)]

    assert bench.main([name, "--size", "smoke", *words]) == 0

    said = capfd.readouterr()
    answer = json.loads(said.out.splitlines()[-1])
    assert answer["bench"] == name
    assert all(f"{figure['what']} " in said.out for figure in answer["figures"])
    assert not re.search("oneDNN|absl|tensorflow", said.err)


def _photos(folder):
    spec = ImageSpec(files=2, median_bytes=30_000, sigma=0.3, width=320, height=240, classes=1, seed=3)
    (folder / "photos").mkdir()
    for index, size in enumerate(spec.sizes()):
        (folder / "photos" / f"{index}.jpg").write_bytes(spec.content(index, int(size)))
    return folder / "photos"


@pytest.fixture
def tables(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "TABLE", tmp_path / "performance.csv")
    monkeypatch.setattr(bench, "PAGE", tmp_path / "performance.md")
    monkeypatch.setattr(bench, "SHOWN", (("start", "a thing"), ("report", "a thing"), ("sums", "a sum")))
    bench.PAGE.write_text(f"before\n\n{bench.HEAD}\nafter\n")
    bench.TABLE.write_text(",".join(bench.COLUMNS) + "\n")


def test_the_rows_of_a_bench_take_the_place_of_those_before(tables):
    for name, value in (("report", 1.0), ("start", 2.0), ("report", 1234.5)):
        measured = [Figure("a thing", value, "s", "at most 2"), Figure("another, thing", value, "")]
        answer = bench.run(name, SimpleNamespace(measure=lambda measured=measured: measured), {})
        bench.write({**answer, "commit": "c", "machine": "m"})

    assert bench.TABLE.read_text().splitlines()[1:] == [
        "start,a thing,2.00,s,at most 2,met,c,m",
        'start,"another, thing",2.00,,,,c,m',
        'report,a thing,"1,234",s,at most 2,missed,c,m',
        'report,"another, thing","1,234",,,,c,m',
    ]
    rows = [
        "| start | a thing | 2.00 s | at most 2 | met | c |\n",
        "| report | a thing | 1,234 s | at most 2 | missed | c |\n",
        "| sums | a sum | not measured |  |  |  |\n",
    ]
    assert bench.PAGE.read_text() == "before\n\n" + bench.HEAD + "".join(rows) + "\nafter\n"


@pytest.mark.parametrize(
    ("goal", "at_the_limit", "beyond"),
    [
        ("at most 1,000", 1000, 1000.1),
        ("at least 0.9", 0.9, 0.89),
        ("below 1", 0.99, 1),
        ("0.8 to 1.25", 1.25, 1.26),
        ("0.8 to 1.25", 0.8, 0.79),
        ("within 3 % of 1", 1.03, 1.031),
        ("within 3 % of 1", 0.97, 0.969),
    ],
)
def test_a_goal_is_met_at_its_limit_and_missed_beyond(goal, at_the_limit, beyond):
    assert Figure("", at_the_limit, "", goal).outcome == "met"
    assert Figure("", beyond, "", goal).outcome == "missed"


def test_the_page_shows_rows_of_the_table():
    with bench.TABLE.open(encoding="utf-8", newline="") as file:
        rows = {(row["bench"], row["what"]): row for row in csv.DictReader(file)}

    page = bench.PAGE.read_text(encoding="utf-8")
    assert all(bench.page_line(name, rows.get(name)) in page for name in bench.SHOWN)


def test_a_bench_that_cannot_run_here_says_what_it_lacks(capsys):
    assert bench.main(["photographs", "--size", "smoke"]) == 1
    assert capsys.readouterr().out == "photographs: needs --photos FOLDER\n"
