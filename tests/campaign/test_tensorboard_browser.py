"""The real TensorBoard in a real browser: our lines in Trace Viewer, a campaign's cells in HParams."""

import importlib.util
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from campaign.cells.folder import open_or_create
from campaign.cli import tensorboard
from campaign.config.collect import make_cells
from jobs.profiler import Profile, tensorboard_files
from tests.analysis.page.browser import Browser, found
from tests.campaign.on_disk import leave_record
from tests.campaign.work_lists import compose

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(found() is None, reason="no Chromium on this machine (apt-get install chromium)"),
]
ODD = "<img src=x onerror=alert(1)>"
PATIENCE_S = 300
FRAME = "document.querySelector('iframe')?.contentDocument"
VIEWER = f"{FRAME}?.querySelector('iframe')?.contentDocument"
# HParams is made of elements with trees of their own.
WHOLE_TEXT = """
(function text(root) {
  const below = [...root.querySelectorAll('*')].map(each => each.shadowRoot ? text(each.shadowRoot) : '')
  return root.textContent + below.join()
})(document.body)
"""


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    """Profile reads of 30 files, one of them with an odd name; and a campaign of two cells, in the same folder."""
    top = tmp_path_factory.mktemp("board")
    data, folder = top / "data", top / "logs" / "plugins" / "profile" / "2026"
    data.mkdir()
    folder.mkdir(parents=True)
    names = [ODD, *(f"{place:02}.jpg" for place in range(29))]
    for name in names:
        (data / name).write_bytes(bytes(50_000))
    with Profile(only=[data]) as profile:
        for name in names:
            (data / name).read_bytes()
    (folder / "vm.xplane.pb").write_bytes(
        tensorboard_files.serialised_planes(profile.window, profile.window.started_ns)
    )
    campaign = open_or_create(top / "results")[0]
    for cell, rate in zip(make_cells([{**compose(), "threads": n} for n in (3, 5)])[0], (123.25, 234.5), strict=True):
        leave_record(campaign, cell, {"status": "valid", "images_per_s": rate}, status="done")
    tensorboard.main([str(campaign.root), "--out", str(top / "logs")])
    return top / "logs"


@pytest.fixture(scope="module")
def address(logdir):
    """Start TensorBoard on a free port of this machine; it ends with the module."""
    words = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--host", "127.0.0.1", "--port", "0"]
    log = logdir.parent / "log"
    with log.open("wb") as out, subprocess.Popen([*words, "--load_fast=false"], stdout=out, stderr=out) as server:
        yield _until(lambda: re.search(r"http://127\.0\.0\.1:\d+", log.read_text()))[0]
        server.terminate()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as opened_one:
        yield opened_one


def _until(look):
    """Return what is found, at last."""
    end = time.monotonic() + PATIENCE_S
    while not (seen := look()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.2)
    return seen


def _text(browser, pattern, where):
    """Wait until a text of the page has what is asked for; return it."""
    return _until(lambda: (seen := browser.value(where)) and re.search(pattern, seen) and seen)


def _picture(browser, name):
    """Keep what is seen, for whoever wants to look at it."""
    if folder := os.environ.get("TFIO_PICTURES"):
        browser.picture(Path(folder, name), whole=False)


def test_the_cells_of_a_campaign_are_trials(address, browser):
    browser.open("about:blank", 1280)
    browser.open(f"{address}/#hparams", 1280)
    seen = _text(browser, r"123\.25", WHOLE_TEXT)
    _picture(browser, "hparams.png")

    assert "234.5" in seen
    assert "threads" in seen


@pytest.mark.skipif(not importlib.util.find_spec("xprof"), reason="the extra `xprof` is not installed")
def test_trace_viewer_has_a_line_for_each_file(address, browser):
    browser.open(f"{address}/data/plugin/profile/data?run=2026&tag=trace_viewer@&host=vm", 1280)
    events = _text(browser, "traceEvents", "document.body.innerText")
    browser.open(f"{address}/#profile", 1280)
    _choose(browser, "mat-select", "Overview")
    _choose(browser, "mat-option", "Trace Viewer")
    _text(browser, "TF I/O", f"{VIEWER}?.body?.innerText")
    browser.value(f"{VIEWER}.querySelector('#expand_all_button').click()")
    seen = _text(browser, "28.jpg", f"{VIEWER}?.body?.innerText")
    _picture(browser, "trace_viewer.png")

    assert events.count('"name":"thread_name"') == 30
    assert "/device:CUSTOM:TF I/O" in seen


def _choose(browser, kind, words):
    there = f"[...({FRAME}?.querySelectorAll('{kind}') ?? [])].find(each => /{words}/.test(each.innerText))"
    _until(lambda: browser.value(f"!!{there}"))
    browser.value(f"{there}.click()")
