"""The documents for people: what they link to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from analysis.claims import chien2018

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PAGES = sorted((ROOT / "docs").rglob("*.md"))
NOW = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]  # the change log also tells of what was
_LINK = re.compile(r"\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"")
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


@pytest.mark.parametrize("name", ["README.md", "docs/papers/chien2018.md"])
def test_a_document_counts_the_claims_that_are_declared(name):
    counts = re.findall(r"\b(\d+)\s+claims\b", (ROOT / name).read_text(encoding="utf-8"))

    assert str(len(chien2018.CLAIMS)) in counts
