"""From a folder of records to the verdicts on a terminal, as JSON and as JUnit's XML."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.console import Group

from analysis.cli import report
from analysis.figures.kit import save
from analysis.output import terminal
from analysis.output.junit import document
from analysis.records.frame import rows_of
from analysis.verdicts.judge import DIFFERS, HOLDS

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

EXIT_DIFFERS = 1
EXIT_UNREAD = 2


def tell(folder: Path, junit: Path | None, *, as_json: bool, strict: bool) -> int:
    """Print the verdicts and write them where asked; return the exit code.

    Raises
    ------
    AnalysisError
        If there is nothing to read, or no place to write.
    """
    measured = report.measured(folder)
    tested = measured.tested
    if junit:
        save.write(junit, document(tested))
    if as_json:
        print(json.dumps(listed(tested), indent=1))
    else:
        terminal.put(Group(*terminal.verdicts(tested, whole=True)))
    if not well(tested, strict=strict):
        return EXIT_DIFFERS
    return EXIT_UNREAD if measured.found.skipped else 0


def well(tested: pd.DataFrame, *, strict: bool) -> bool:
    """Say whether no claim differs; `strict`: whether each holds. Of pairs the claim that they belong to tells."""
    told = tested["verdict"][tested["pair"] == ""]
    return bool((told == HOLDS).all() if strict else (told != DIFFERS).all())


def listed(tested: pd.DataFrame) -> list[dict[str, object]]:
    """Return the rows as JSON has them: an interval as two numbers, cells as a list, null where there is none."""
    rows = rows_of(tested.astype(object).where(tested.notna(), None))
    return [row | {"interval": json.loads(row["interval"] or "null"), "cells": row["cells"].split()} for row in rows]
