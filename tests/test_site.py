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


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def test_no_page_fetches_from_a_network(site):
    pages = sorted(site.rglob("*.html"))

    fetched = ["".join(found) for page in pages for found in _FETCHED.findall(page.read_text(encoding="utf-8"))]
    assert len(fetched) > len(pages) > 30  # the styles of each, at least
    assert [name for name in fetched if re.match(r"(?:https?:)?//", name)] == []
    styles = [style.read_text("utf-8") for style in site.rglob("*.css")]
    assert [found for style in styles for found in re.findall(r"(?:url\(|@import)\s*[\"']?https?:", style)] == []


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("keys", ["batch_size", "cluster.partition", "checks.spread_max", "storage=hdd"]),
        ("columns", ["images_per_s", "verdict", "METRIC_min"]),
        ("commands", ["python -m campaign stage", "python -m analysis timelog"]),
        ("checks", ["same_conditions", "checks.spread_max"]),
        ("claims", ["+paper=table1", "+paper=fig4"]),
        ("record", ["RecordedRun", "device_read_bytes"]),
    ],
)
def test_a_page_that_follows_from_the_code_is_filled(page, words, site):
    html = (site / "reference" / f"{page}.html").read_text(encoding="utf-8")

    assert [word for word in words if word not in html] == []
    assert "The site of these docs has" not in html
