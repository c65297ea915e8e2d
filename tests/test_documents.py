"""The documents for people: what they link to is there."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

import pytest
import yaml

from analysis.claims import chien2018
from tests import pages

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PAGES = sorted((ROOT / "docs").rglob("*.md"))
NOW = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]  # the change log also tells of what was
_LINK = re.compile(r"\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"")
_MEASURED = re.compile(r"<!-- bench: (\w+) -->\n(.+?)\n\n", re.DOTALL)
_PATH = re.compile(r"(?<![\w/.<>-])(?:analysis|campaign|conf|docs|jobs|tests)/[\w./-]*\w|(?<![\w/])\.ci/\w+")
_MODULE = re.compile(r"python3? -m ((?:analysis|campaign|jobs|tests)[\w.]*\w)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def _anchors(document):
    """The names that GitHub gives to the headings of a document."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in _HEADING.findall(document.read_text(encoding="utf-8"))
    }


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_links_to_is_there(document):
    for found in _LINK.findall(document.read_text(encoding="utf-8")):
        target, _, anchor = "".join(found).partition("#")
        if target.startswith("http"):
            continue
        linked = (document.parent / target).resolve() if target else document

        assert linked.exists(), target
        assert not anchor or anchor in _anchors(linked), anchor


@pytest.mark.parametrize("document", [*NOW, *PAGES], ids=lambda path: path.name)
def test_the_files_and_modules_that_a_document_names_are_there(document):
    text = document.read_text(encoding="utf-8")
    modules = [ROOT / module.replace(".", "/") for module in _MODULE.findall(text)]

    assert [name for name in _PATH.findall(text) if not (ROOT / name).exists()] == []
    assert [
        path for path in modules if not (path / "__main__.py").exists() and not path.with_suffix(".py").exists()
    ] == []


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_every_page_is_in_the_navigation_once():
    def names(entry):
        if isinstance(entry, str):
            return [entry]
        return [name for part in (entry.values() if isinstance(entry, dict) else entry) for name in names(part)]

    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]

    assert sorted(names(navigation)) == [str(page.relative_to(ROOT / "docs")) for page in PAGES]


@pytest.mark.parametrize("name", pages.PAGES)
def test_a_page_that_follows_from_the_code_is_what_it_says(name):
    if name == "commands.md" and sys.version_info[:2] != (3, 11):
        pytest.skip("argparse words its help otherwise in each version of Python")
    written = (pages.FOLDER / name).read_text(encoding="utf-8")

    assert written == "\n".join(pages.PAGES[name]()) + "\n", "python -m tests.pages"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_figures_that_a_bench_measured_are_those_of_its_table(document):
    with (ROOT / "docs" / "reference" / "performance.csv").open(encoding="utf-8", newline="") as file:
        measured = [(row["bench"], f"{row['measured']} {row['unit']}".strip()) for row in csv.DictReader(file)]
    for bench, text in _MEASURED.findall(document.read_text(encoding="utf-8")):
        assert {(bench, figure) for figure in re.findall(r"\d+\.\d\d(?: s)?", text)} - {*measured} == set()


@pytest.mark.parametrize("name", ["README.md", "docs/papers/chien2018.md"])
def test_a_document_counts_the_claims_that_are_declared(name):
    counts = re.findall(r"\b(\d+)\s+claims\b", (ROOT / name).read_text(encoding="utf-8"))

    assert str(len(chien2018.CLAIMS)) in counts
