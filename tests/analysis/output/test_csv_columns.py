import csv
import re
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from analysis.output.csv_columns import FILES
from analysis.traces.posix import AGREEMENT
from jobs.model.declared import declared_settings
from jobs.model.results import METRICS, Run
from jobs.model.settings import Common

ROOT = Path(__file__).parents[3]
SETTINGS = {*declared_settings(Common)}
PATTERN = re.compile(r".*[.].*|posix_.*|snapshot_.*_s|.*_(cold|warm)_(loads|read_s)")


@pytest.mark.parametrize("file", ["medians.csv", "runs.csv"])
def test_each_column_of_a_measured_campaign_is_on_the_page(file):
    path = ROOT / "tests" / "acceptance" / "goldens" / "measured" / file
    with path.open(encoding="utf-8") as lines:
        (header, *_) = csv.reader(lines)

    columns = {name.removesuffix("_min").removesuffix("_max") for name in header}
    names = {column.name for column in FILES[file]}
    assert columns - names - SETTINGS - {name for name in columns if PATTERN.fullmatch(name)} == set()


@pytest.mark.parametrize("file", ["medians.csv", "runs.csv"])
def test_each_declared_metric_has_a_meaning_and_no_column_has_two(file):
    names = [column.name for column in FILES[file]]

    assert set(METRICS) <= set(names)
    assert len(names) == len(set(names))
    assert all(column.meaning for column in FILES[file])


def test_each_number_of_a_run_has_a_meaning():
    numbers = {int, float, type(None)}
    types = {name: get_args(kind) or (kind,) for name, kind in get_type_hints(Run).items()}

    of_run = {name for name, kinds in types.items() if {*kinds} <= numbers}
    assert {"io_pressure_s", "start_skew_s"} <= of_run
    assert {*of_run, AGREEMENT} - {column.name for column in FILES["runs.csv"]} == set()
