"""The templates: text of others is escaped wherever it stands, and a table has its texts in their columns."""

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from analysis.output.text_table import TextTable
from analysis.page.part import FOLDER, paragraphs_and_tables, render_template

HOSTILE = "<script>\"'&\x00\ud800"
ESCAPED = "&lt;script&gt;&#34;&#39;&amp;" + 2 * chr(0xFFFD)


def test_text_is_escaped_as_text_and_as_attribute_and_only_markup_is_not():
    figure = {"stem": HOSTILE, "title": HOSTILE, "caption": HOSTILE, "csv": HOSTILE, "count": 1, "more": HOSTILE,
              "image": Markup("<svg></svg>"), "numbers": TextTable([HOSTILE], [[HOSTILE]], [True])}  # fmt: skip

    made = render_template("figures.html", figures=[figure], more=HOSTILE)

    assert "<script>" not in made
    assert f'<figure id="{ESCAPED}">' in made
    assert f"<td>{ESCAPED}</td>" in made
    assert "<svg></svg>" in made


def test_no_template_escapes_or_trusts_a_text_by_hand():
    templates = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.html")}
    assert len(templates) > 5
    assert [name for name, text in templates.items() if "safe" in text or "autoescape" in text or "|e" in text] == []


def test_data_that_lack_a_name_are_an_error():
    with pytest.raises(UndefinedError, match="more"):
        render_template("commands.html", commands=[])


@pytest.mark.parametrize(("left", "side"), [(False, ' class="n"'), (True, "")])
def test_a_table_scrolls_and_puts_numbers_on_the_right(left, side):
    made = "".join(paragraphs_and_tables("", TextTable(["h"], [["1"]], [left]), "end").splitlines())

    assert made == (
        f'<div class="scroll" tabindex="0"><table><thead><tr><th{side} scope="col">h</th></tr></thead>'
        f"<tbody><tr><td{side}>1</td></tr></tbody></table></div><p>end</p>"
    )


@pytest.mark.parametrize(
    ("headings", "row", "left"), [("a", "12", [True]), ("ab", "1", [True] * 2), ("a", "1", [True] * 2)]
)
def test_a_row_that_does_not_fit_its_headings_is_refused(headings, row, left):
    with pytest.raises(ValueError, match="a text for each of its headings"):
        TextTable([*headings], [[*row]], left)


@pytest.mark.parametrize(("text", "broken"), [("x " * 20, False), ("x " * 20 + "x", True), ("x" * 41, False)])
def test_words_of_more_than_40_letters_are_broken_into_lines(text, broken):
    assert ('<td class="prose">' in paragraphs_and_tables(TextTable(["h"], [[text]], [True]))) is broken
