"""Numbers, words and HTML as a reader gets them."""

import math
from pathlib import Path

import pytest

from analysis.text import html, plain
from analysis.text.plain import DASH, MINUS, NONE, TIMES


@pytest.mark.parametrize(
    ("written", "text"),
    [
        *((plain.significant(value), text) for value, text in {
            20481.4: "20481", 999.6: "1000", 512.0: "512", 99.94: "99.9", 48.12: "48.1", 10.04: "10.0", 9.876: "9.88",
            0.5123: "0.512", 0.00012345: "0.000123", -4.567: "-4.57", 0: "0",
        }.items()),
        (plain.number(3.14159), "3.14"), (plain.number(math.nan), NONE),
        (plain.span(0.5, 20481.4), f"0.500{DASH}20481"), (plain.span(math.nan, 1.0), NONE),
        (plain.share(0.1256), "13 %"), (plain.share(0.1256, 1), "12.6 %"), (plain.share(math.nan), NONE),
        (plain.times(1.6549), f"1.65{TIMES}"),
        (plain.typed("a b"), "a b"), (plain.typed(True), "true"), (plain.typed(None), "null"),  # noqa: FBT003
        (plain.listed([2, 1, 2]), "2, 1"), (plain.line(["a", "b"]), "| a | b |"),
        (plain.visible("a\tb\N{NO-BREAK SPACE}c\x1b\n\u202e"), "a\tb\N{NO-BREAK SPACE}c\\x1b\\n\\u202e"),
        (plain.one_line(" a\n b\x1b "), "a b\\x1b"),
        (plain.escaped("a|b < c <b> [x](y)"), "a\\|b < c &lt;b> [x]\\(y)"), (plain.code("`a`"), "`'a'`"),
        (html.address(Path("/a/b c:#"), Path("/a/d")), "../b%20c%3A%23"),
    ],
)  # fmt: skip
def test_what_is_written_is_what_a_reader_expects(written, text):
    assert written == text
    assert MINUS not in text  # a sign that stands in sentences alone


def test_a_tag_escapes_all_that_is_no_markup_and_has_no_attribute_of_none():
    made = html.tag("p", "a<b", html.tag("i", "\x00\ud800"), class_="x", aria_label='"', title=None)

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
