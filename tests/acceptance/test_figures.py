"""What an analysis writes of stored campaigns: each number, each picture, the page; equal records give equal bytes.

`measured` was measured once (22 cells of four benchmarks, with traces and profiles); `claims` and `others` were made up
for the charts that it lacks. The goldens are made by `python -m tests.acceptance.goldens`.
"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from tests.acceptance import door, goldens

# The columns of ids and of sentences, and of what bounds a cell, of which two answers are given today.
UNHELD = {"cell", "baseline", "reason", "bound", "bound_by", "bound_share", "checks", "why"}


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Return the folder of a stored campaign of this name, analysed; each is analysed once."""
    made = {}

    def of(name):
        if name not in made:
            made[name] = goldens.report(name, tmp_path_factory.mktemp(name) / "results", PYTHONHASHSEED=1)
        return made[name]

    return of


def read(path):
    """Read a table as it is written, so that a number and a word stay what they are."""
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def number(text):
    """Return the number that a text is, or None."""
    try:
        return float(text)
    except ValueError:
        return None


def rows(table, columns):
    """Return the words and the numbers of each row, in an order that depends on them alone, and on no id."""
    found = []
    for row in table[columns].itertuples(index=False):
        numbers = [number(text) for text in row]
        words = [
            re.sub(r"-[0-9a-f]{10}\b", "", text) if n is None else "0" for text, n in zip(row, numbers, strict=True)
        ]
        found.append((words, [0.0 if n is None else n for n in numbers]))
    return sorted(found, key=lambda row: (row[0], [f"{n:.5e}" for n in row[1]]))


def differences(found, golden):
    """List how a table differs from its golden: columns by name, rows by what they hold; others may have been added."""
    lost = [name for name in golden if name not in found]
    columns = [name for name in golden if name not in {*lost, *UNHELD}]
    ours, theirs = rows(found, columns), rows(golden, columns)
    told = [f"column {name} is lost" for name in lost] + [f"{len(ours)} rows"] * (len(ours) != len(theirs))
    for (words, numbers), (as_words, as_numbers) in zip(ours, theirs, strict=False):
        alike = np.isclose(numbers, as_numbers, rtol=1e-9, atol=0, equal_nan=True)
        told += [
            f"{name}: {words[n]} {numbers[n]}, golden {as_words[n]} {as_numbers[n]}"
            for n, name in enumerate(columns) if words[n] != as_words[n] or not alike[n]
        ]  # fmt: skip
    return told


@pytest.mark.parametrize("name", goldens.CAMPAIGNS)
def test_each_number_of_each_table_and_chart_is_the_golden_one(name, reports):
    found = goldens.tables(reports(name))

    expected = {path.stem: path for path in (door.GOLDENS / name).glob("*.csv")}
    assert found.keys() == expected.keys()
    told = {stem: differences(read(found[stem]), read(path)) for stem, path in expected.items()}
    assert {stem: lines[:5] for stem, lines in told.items() if lines} == {}


@pytest.mark.parametrize("stem", ["medians", "fig8"])
def test_the_comparison_sees_each_number_and_word_and_neither_ids_nor_order(stem):
    golden = read(door.GOLDENS / "measured" / f"{stem}.csv")
    other = golden.iloc[::-1, ::-1].assign(more="x", cell=[f"c{n}" for n in range(len(golden))])
    assert differences(other, golden) == []

    for name in [each for each in golden if each not in UNHELD]:
        value = golden[name][0]
        wrong = str((float(value) or 1.0) * (1 + 1e-6)) if number(value) is not None else f"{value}?"
        assert differences(golden.assign(**{name: [wrong, *golden[name][1:]]}), golden), name
    assert differences(golden.drop(columns="host"), golden) == ["column host is lost"]
    assert "rows" in differences(golden.iloc[1:], golden)[0]


@pytest.mark.parametrize("name", goldens.CAMPAIGNS)
def test_each_picture_has_the_golden_pixels(name, reports):
    golden = json.loads((door.GOLDENS / "pictures.json").read_text("utf-8"))
    if golden["matplotlib"] != mpl.__version__:
        pytest.skip(f"the pictures are of matplotlib {golden['matplotlib']}, and this is {mpl.__version__}")

    found = goldens.pictures(reports(name))

    assert found.keys() == golden[name].keys()
    assert [stem for stem in found if found[stem] != golden[name][stem]] == []


@pytest.mark.parametrize("name", goldens.CAMPAIGNS)
def test_each_chart_has_a_pdf_a_png_and_a_csv_and_is_on_the_page(name, reports):
    out = reports(name)

    made = {ending: {path.stem for path in out.glob(f"figures/*.{ending}")} for ending in ("csv", "pdf", "png")}
    assert made["csv"] == made["pdf"] == made["png"]
    assert all(path.read_bytes().startswith(b"%PDF-") for path in out.glob("figures/*.pdf"))
    page = (out / "report.html").read_text("utf-8")
    assert [stem for stem in goldens.pictures(out) if stem not in page] == []


def test_equal_records_give_equal_bytes_whatever_the_seed_of_hashes(reports, tmp_path):
    first = reports("measured")

    second = goldens.report("measured", tmp_path / "results", PYTHONHASHSEED=2)

    one, two = ({
        path: content.replace(str(out.parent).encode(), b"HOME") for path, content in door.files(out).items()
    } for out in (first, second))  # fmt: skip
    assert one.keys() == two.keys()
    assert [path for path in one if one[path] != two[path]] == []


class Loads(HTMLParser):
    """Lists what a browser fetches to show a page: all but the links that a reader may follow."""

    def __init__(self, page):
        super().__init__()
        self.found, self.tags = [], set()
        self.feed(page)
        self.found += re.findall(r"(?:url\(|@import)\s*[\"']?([^\"')]+)", page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        names = ("src", "srcset", "data", "poster", "action", "background", *(("href", "xlink:href") * (tag != "a")))
        self.found += [value for name, value in attrs if name in names and value]


@pytest.mark.parametrize("name", goldens.CAMPAIGNS)
def test_the_page_loads_nothing_but_what_is_in_it(name, reports):
    page = Loads((reports(name) / "report.html").read_text("utf-8"))

    assert [each for each in page.found if not each.startswith(("data:", "#"))] == []
    assert {"svg", "img"} & page.tags
    assert not {"script", "iframe", "object", "embed", "base"} & page.tags


def test_the_report_tells_the_verdicts_of_all_claims(reports):
    told = door.table(reports("claims"), "verdicts")

    golden = json.loads((door.GOLDENS / "verdicts.json").read_text("utf-8"))["as measured"]
    found = {claim: sorted({*rows["verdict"]} - {"not measured"}) for claim, rows in told.groupby("claim")}
    expected = {claim: sorted({row[0] for row in rows} - {"not measured"}) for claim, rows in golden.items()}
    assert found == expected


def test_a_chart_of_what_is_no_longer_there_is_removed_and_foreign_files_stay(tmp_path):
    made = [door.record(rate, rate, rate, storage__name=name) for name, rate in (("hdd", 90.0), ("ssd", 120.0))]
    swept = [door.record(80.0, 81.0, 82.0, benchmark__preprocess=False)]
    folder = door.stored(tmp_path / "results", *made, *swept)
    door.cli("report", folder, cwd=tmp_path)
    before = {path.name for path in (folder / "figures").glob("fig*")}
    foreign = [folder / "figures" / name for name in ("fig5-mine.csv", "mine.png")]
    for path in foreign:
        path.write_text("mine")
    (folder / "records" / swept[0]["cell"]["id"] / "record.json").unlink()

    assert door.cli("report", folder, cwd=tmp_path).code == 0

    after = {path.name for path in (folder / "figures").glob("fig*")} - {"fig5-mine.csv"}
    assert before - after == {f"fig5.{ending}" for ending in ("csv", "pdf", "png")}
    assert after == {f"fig4.{ending}" for ending in ("csv", "pdf", "png")}
    assert [path.read_text() for path in foreign] == ["mine", "mine"]


def test_the_terminal_shows_the_golden_words(tmp_path):
    golden = json.loads((door.GOLDENS / "stdout.json").read_text("utf-8"))

    found = goldens.stdout(tmp_path / "results")

    for what, lines in golden.items():
        assert [line.split() for line in found[what]] == [line.split() for line in lines]


@pytest.mark.long
def test_the_words_of_a_campaign_ask_for_its_cells(tmp_path):
    requests = json.loads((door.STORED / "measured" / "campaign.json").read_text("utf-8"))["requests"]

    asked = [line.split()[0] for each in requests for line in door.planned(tmp_path, *each["words"])]

    measured = [path.name[:-11] for path in (door.STORED / "measured" / "records").iterdir()]
    assert sorted(asked) == sorted(measured)
    assert len(asked) == 22
