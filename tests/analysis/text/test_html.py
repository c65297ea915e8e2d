"""HTML: what is no markup is escaped."""

from pathlib import Path

import pytest

from analysis.text import html


def test_a_tag_escapes_all_that_is_no_markup_and_has_no_attribute_of_none():
    made = html.tag("p", "a<b", html.tag("i", "\x00\ud800"), class_="x", aria_label='"', title=None)

    assert html.address(Path("/a/b c:#"), Path("/a/d")) == "../b%20c%3A%23"
    bad = 2 * "\N{REPLACEMENT CHARACTER}"
    assert made == f'<p class="x" aria-label="&quot;">a&lt;b<i>{bad}</i></p>'
    assert html.folded("s", html.link("#a", "b"), id="c") == (
        '<details id="c"><summary>s</summary><a href="#a">b</a></details>'
    )


@pytest.mark.parametrize(("left", "side"), [([False], ' class="n"'), ([True], ""), (None, "")])
def test_a_table_scrolls_and_puts_numbers_on_the_right(left, side):
    assert html.table(["h"], [["1"]], left) == (
        f'<div class="scroll" tabindex="0"><table><thead><tr><th{side} scope="col">h</th></tr></thead>'
        f"<tbody><tr><td{side}>1</td></tr></tbody></table></div>"
    )


@pytest.mark.parametrize(
    ("headings", "row", "left"), [("a", "12", None), ("ab", "1", None), ("a", "1", [True] * 2), ("ab", "12", [True])]
)
def test_a_row_that_does_not_fit_its_headings_is_refused(headings, row, left):
    with pytest.raises(ValueError, match="zip"):
        html.table([*headings], [[*row]], left)


@pytest.mark.parametrize(
    ("text", "broken"),
    [("x " * 20, False), ("x " * 20 + "x", True), ("x" * 41, False), (html.Markup("x " * 30), False)],
)
def test_words_of_more_than_40_letters_are_broken_into_lines(text, broken):
    assert ('<td class="prose">' in html.table(["h"], [[text]])) is broken
