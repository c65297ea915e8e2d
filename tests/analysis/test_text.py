"""Numbers and words as a reader gets them."""

import math
from pathlib import Path

import pytest

from analysis import text as words
from analysis.text import MINUS, NONE, TIMES


@pytest.mark.parametrize(
    ("written", "text"),
    [
        *((words.three_digits(value), text) for value, text in {
            20481.4: "20481", 999.6: "1000", 512.0: "512", 99.94: "99.9", 48.12: "48.1", 10.04: "10.0", 9.876: "9.88",
            0.5123: "0.512", 0.00012345: "0.000123", -4.567: "-4.57", 0: "0",
        }.items()),
        (words.number(3.14159), "3.14"), (words.number(math.nan), NONE),
        (words.percentage(0.1256), "13 %"), (words.percentage(0.1256, 1), "12.6 %"), (words.percentage(math.nan), NONE),
        (words.ratio_text(1.6549), f"1.65{TIMES}"),
        (words.as_typed_by_user("a b"), "a b"), (words.as_typed_by_user(True), "true"),  # noqa: FBT003
        (words.as_typed_by_user(None), "null"),
        (words.join_values([2, 1, 2]), "2, 1"),
        (words.visible("a\tb\N{NO-BREAK SPACE}c\x1b\n\u202e"), "a\tb\N{NO-BREAK SPACE}c\\x1b\\n\\u202e"),
        (words.one_line(" a\n b\x1b "), "a b\\x1b"),
        (words.escape_markdown("a|b < c <b> [x](y)"), "a\\|b < c &lt;b> [x]\\(y)"), (words.code("`a`"), "`'a'`"),
    ],
)  # fmt: skip
def test_what_is_written_is_what_a_reader_expects(written, text):
    assert written == text
    assert MINUS not in text  # a sign that stands in sentences alone


def test_a_link_is_relative_and_quoted_and_a_text_loses_letters_that_no_page_may_hold():
    assert words.link_to_file(Path("/a/b c:#"), Path("/a/d")) == "../b%20c%3A%23"
    assert words.without_illegal_html("a\x00\ud800b\u202e") == f"a{2 * chr(0xFFFD)}b{chr(0xFFFD)}"
