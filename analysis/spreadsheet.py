"""Convert a pandas frame to CSV that a spreadsheet program can open.

Numbers have full precision, lines end with LF, and the encoding is UTF-8. A missing value becomes an empty field.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from numpy.typing import NDArray

from analysis.text import ACTIVE, visible

AT_ONCE = 4000  # rows per piece of CSV, so that the CSV of a large frame is never in memory as a whole


def frame_as_csv(frame: pd.DataFrame) -> bytes:
    r"""Return a frame as CSV.

    An unprintable character is written as an escape (`\x1b`). A byte of a file name that is not valid UTF-8 is written
    as `\udc80` to `\udcff`. A text that a spreadsheet program would read as a formula gets an apostrophe in front.
    """
    return b"".join(csv_parts(frame))


def csv_parts(frame: pd.DataFrame) -> Iterator[bytes]:
    """Yield the CSV of a frame in pieces: first the header line, then the lines of up to `AT_ONCE` rows."""
    yield _encoded([",".join(_field(str(name)) for name in frame)])
    for start in range(0, len(frame), AT_ONCE):
        rows = frame.iloc[start : start + AT_ONCE]
        yield _encoded(map(",".join, zip(*(_fields(rows[name]) for name in rows), strict=True)))


def _encoded(lines: Any) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode(errors="backslashreplace")


def _fields(column: pd.Series[Any]) -> list[str]:
    """Return the values of a column as CSV fields.

    Most values of a column are equal, so each distinct value is formatted only once.
    """
    places: NDArray[Any]
    if column.dtype == "float64":  # the bits of the numbers are compared, because 0.0 equals -0.0
        places, bits = pd.factorize(column.to_numpy().view("int64"))
        fields = ["" if text == "nan" else text for text in map(repr, bits.view("float64").tolist())]
    elif isinstance(column.dtype, pd.CategoricalDtype):
        places = column.cat.codes.to_numpy()
        fields = [*map(_field, column.cat.categories), ""]
    elif column.dtype == object and set(map(type, column)) - {str, type(None)}:
        # `pd.factorize` cannot distinguish 1 from True, and cannot hash a list: each value is formatted.
        return [*map(_field, column)]
    else:
        places, values = pd.factorize(column)
        fields = [*map(_field, values.tolist()), ""]  # a missing value has the index -1, the empty field
    return [fields[place] for place in places.tolist()]


def _field(value: Any) -> str:
    """Return a value as a CSV field."""
    if value is None or value is pd.NA or value != value:  # noqa: PLR0124 - NaN
        return ""
    text = _inert(value) if isinstance(value, str) else str(value)
    return '"{}"'.format(text.replace('"', '""')) if '"' in text or "," in text else text


def _inert(text: str) -> str:
    text = visible(text)
    return f"'{text}" if text.startswith(ACTIVE) else text
