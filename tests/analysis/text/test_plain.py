"""Numbers and words as a reader gets them."""

import math

import pytest

from analysis.text import plain
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
    ],
)  # fmt: skip
def test_what_is_written_is_what_a_reader_expects(written, text):
    assert written == text
    assert MINUS not in text  # a sign that stands in sentences alone
