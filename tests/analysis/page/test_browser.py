"""The report in a real browser, at the widths of a phone and of a desk."""

import pytest

from analysis.__main__ import main
from tests.analysis.page.browser import Browser, found
from tests.analysis.record_factory import record, run, store, unstable
from tests.analysis.saving_factory import paper_like
from tests.analysis.training_factory import grid

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(found() is None, reason="no Chromium on this machine (apt-get install chromium)"),
]
PIXELS_PER_MM = 96 / 25.4
# What sticks out of the page on the right and does not scroll in a box of its own.
STICKING_OUT = """
[...document.querySelectorAll('main *')].filter(each => !each.closest('.scroll') && !each.closest('svg')
  && each.getBoundingClientRect().right > document.documentElement.clientWidth + 1).map(each => each.outerHTML)
"""
SMALLEST_LETTER = """
Math.min(...[...document.querySelectorAll('svg text')].map(each => {
  const svg = each.ownerSVGElement
  return parseFloat(getComputedStyle(each).fontSize) * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width
}))
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Return the page of a campaign with Figs 4, 6 and 7, verdicts and every kind of trouble."""
    folder = tmp_path_factory.mktemp("campaign")
    bad = run(2, 5e4, fails=["cold"])
    made = [
        record([99.0 * n, 100.0 * n, 101.0 * n], threads=n, storage=s) for n in (1, 2, 4) for s in ("hdd", "lustre")
    ]
    made += [unstable(record([50.0, bad, 90.0], threads=8)), record([], threads=16)]
    store(folder, *made, *grid(("hdd", "ssd", "lustre"), (1, 8)), *grid(("hdd",), (1,), batch_size=32))
    main([str(folder), "--quiet"])
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.parametrize("width", [390, 1280])
def test_it_is_read_without_complaint_and_without_scrolling_sideways(browser, page, width):
    browser.open(page, width)
    browser.value("document.querySelectorAll('details').forEach(each => { each.open = true })")

    assert browser.complaints == []
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value(STICKING_OUT) == []
    assert browser.value("document.querySelectorAll('svg').length") >= 3
    # Six points of print are what a reader of a journal must put up with.
    assert browser.value(SMALLEST_LETTER) >= 6.5 * 4 / 3 - 0.1


def test_every_column_of_a_training_with_snapshots_is_on_a_page_of_1280(browser, tmp_path):
    made = paper_like()
    for each in made:
        each["provenance"]["emulated"] = {"storage": {"name": "ssd"}}
        for one in each["runs"][1:]:
            one["device_bytes"] = None
            for target in one.get("targets", ()):
                target["written_bytes"] = None
    main([str(store(tmp_path, *made)), "--quiet"])

    browser.open(tmp_path / "report.html", 1280)

    boxes = "[...document.querySelectorAll('#medians .scroll')]"
    assert browser.value(f"{boxes}.map(each => each.scrollWidth - each.clientWidth)") == [0]


def test_folded_parts_open_without_a_script(browser, page):
    browser.open(page, 1280)

    closed = browser.value("document.querySelector('#cells details p').getBoundingClientRect().height")
    browser.value("document.querySelector('#cells summary').click()")
    opened = browser.value("document.querySelector('#cells details .settings').getBoundingClientRect().height")

    assert (closed, opened > 10) == (0, True)


def test_what_was_found_with_a_chart_the_proofs_and_the_machines_is_the_first_page_on_paper(browser, page):
    browser.ask("Emulation.setEmulatedMedia", media="print")
    browser.open(page, round((210 - 2 * 12) * PIXELS_PER_MM))

    shown = "[...document.querySelectorAll('section, figure')].filter(each => each.checkVisibility())"
    tops = f"Object.fromEntries({shown}.map(each => [each.id, each.getBoundingClientRect().top]))"
    parts = sorted(browser.value(tops).items(), key=lambda part: part[1])
    printed = browser.printed()
    browser.ask("Emulation.setEmulatedMedia", media="")

    assert [name for name, _ in parts] == ["summary", "fig4", "proofs", "machines", "medians"]
    assert parts[-1][1] <= (297 - 2 * 12) * PIXELS_PER_MM
    assert printed.startswith(b"%PDF-")
