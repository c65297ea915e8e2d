"""The site of docs/ as mkdocs builds it: strictly, and it asks no network for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="the extra docs is not installed")

ROOT = Path(__file__).parents[1]
# What a browser fetches by itself; a link that a reader follows is none of it.
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?([^\"'\s>]+)|<link\b[^>]*\bhref=[\"']?([^\"'\s>]+)"
)
_OF_STYLES = re.compile(r"url\([\"']?(https?:[^)\"']+)|@import\s+[\"'](https?:[^\"']+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def test_every_page_is_built_and_none_fetches_from_a_network(site):
    pages = sorted(site.rglob("*.html"))

    assert {str(page.relative_to(ROOT / "docs").with_suffix(".html")) for page in (ROOT / "docs").rglob("*.md")} <= {
        str(page.relative_to(site)) for page in pages
    }
    fetched = ["".join(found) for page in pages for found in _FETCHED.findall(page.read_text(encoding="utf-8"))]
    assert len(fetched) > len(pages)  # the styles of each, at least
    assert [name for name in fetched if re.match(r"(?:https?:)?//", name)] == []
    assert [found for style in site.rglob("*.css") for found in _OF_STYLES.findall(style.read_text("utf-8"))] == []


def test_what_the_search_looks_through_is_part_of_the_site(site):
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")

    assert "same_conditions" in index
