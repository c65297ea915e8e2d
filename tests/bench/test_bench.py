"""Every bench runs at its smallest size: what it builds on changes, and a bench is not asked for every day."""

import csv
import re

import pytest

from tests.bench import __main__ as bench
from tests.bench.bench import Figure
from tests.slurm.lab import missing

SHORT = ("start", "report")  # the others need a cluster, or TensorFlow several times


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name not in SHORT)) for name in bench.BENCHES]
)
def test_a_bench_gives_its_figures_as_lines(name, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    if name == "thousands" and (lacks := missing()):
        pytest.skip(lacks)

    assert bench.main([name, "--size", "smoke"]) == 0

    said = capfd.readouterr()
    title, *figures = said.out.splitlines()
    assert title == name
    assert len(figures) >= 2
    assert all(re.search(r" {2}\S.* [\d,.]+( |$)", line) for line in figures), said.out
    assert not re.search("oneDNN|absl|tensorflow", said.err)


def test_a_goal_is_met_at_its_limit_and_missed_beyond():
    limits = [("at most 1,000", 1000, 1000.1), ("at least 0.9", 0.9, 0.89), ("within 3 % of 1", 0.971, 0.969)]
    for goal, met, missed in limits:
        assert (Figure("", met, "", goal).outcome, Figure("", missed, "", goal).outcome) == ("met", "missed")


def test_the_page_shows_the_rows_of_the_table_that_have_a_goal():
    with bench.TABLE.open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]

    assert bench.HEAD + "".join(map(bench.page_line, filter(lambda row: row["goal"], rows))) in bench.PAGE.read_text()
    assert {row["bench"] for row in rows} == {*bench.BENCHES}
