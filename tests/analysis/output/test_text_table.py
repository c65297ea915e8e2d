"""A table of texts in Markdown: it escapes what others wrote."""

from analysis.output.text_table import Code, TextTable


def test_in_markdown_each_text_stays_in_its_column_and_acts_as_nothing_else():
    table = TextTable(["who", "MB/s"], [["a|b\n<b>", "12"], [Code("x`y|z"), "[l](u)"]], [True, False])

    assert table.markdown().splitlines() == [
        "| who | MB/s |", "| --- | ---: |", r"| a\|b &lt;b> | 12 |", r"| `x'y\|z` | [l]\(u) |",
    ]  # fmt: skip
