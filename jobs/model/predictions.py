"""The file ``advice.json``: the predictions of ``python -m campaign advise``, and their outcomes.

Annotations are evaluated here: `jobs.model.reading` holds what was read against them.
"""

from typing import TypedDict

from jobs.model.values import Count, Line, Number


class Measured(TypedDict):
    """The measured value of the predicted metric: median, minimum and maximum of the runs."""

    median: Number
    min: Number
    max: Number
    runs: Count


class Tested(TypedDict):
    """One prediction; ``measured`` is None until its cell is done, and ``why_not`` is the reason."""

    utc: str
    rules: int  # their version
    rule: Line
    cell: Line
    tested: Line  # the cell that tests it
    command: str
    figure: Line
    unit: Line
    before: Number  # of the cell itself
    predicted: Number
    low: Number
    high: Number
    known: bool  # that cell had been measured before
    measured: Measured | None
    holds: bool | None
    why_not: str | None


class Account(TypedDict):
    """The file."""

    schema: int
    tests: list[Tested]
