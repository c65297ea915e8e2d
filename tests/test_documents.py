"""The documents for people: what they link to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
_LINK = re.compile(r"\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"")
_MEASURED = re.compile(r"<!-- bench: (\w+) -->\n(.+?)\n\n", re.DOTALL)
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


def test_every_document_is_linked_from_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    assert [path.name for path in ROOT.glob("docs/*.md") if f"docs/{path.name}" not in readme] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_figures_that_a_bench_measured_are_those_of_its_table(document):
    table = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    for bench, text in _MEASURED.findall(document.read_text(encoding="utf-8")):
        rows = "".join(row for row in table.splitlines(keepends=True) if row.startswith(f"| {bench} |"))

        assert [figure for figure in re.findall(r"\d+\.\d+ s", text) if f"| {figure} |" not in rows] == []
