"""What `python -m campaign advise` predicted of cells, and what came of it when it was tested."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.output.page.results import MOST_LINES, some
from analysis.records.shape import count, each_of, flag, keyed, line, maybe, number, text
from analysis.records.versioned import AbsentError, UnreadableError, load
from analysis.text.html import joined, scrolling, table, tag
from analysis.text.plain import NONE, significant, span

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from analysis.text.html import Markup

FILE = "advice.json"
_MEASURED = keyed({"median": number, "min": number, "max": number, "runs": count})
_TEST = keyed(
    {"rule": line, "cell": line, "tested": line, "figure": line, "unit": line, "before": number, "predicted": number,
     "low": number, "high": number},
    {"measured": maybe(_MEASURED), "holds": maybe(flag), "why_not": maybe(text), "known": flag},
)  # fmt: skip
_SHAPE = keyed({"schema": count, "tests": each_of(_TEST)})
_HEADINGS = ("rule", "cell", "tested by", "unit", "before", "predicted", "interval", "measured", "runs", "prediction")


def advice(folder: Path) -> Markup | None:
    """Return each prediction that was put to the test, as it came; None where there is none."""
    try:
        tests = load(folder / FILE, _SHAPE)["tests"]
    except AbsentError:
        return None
    except UnreadableError as error:
        return tag("p", f"{FILE} cannot be read: it {error}.")
    decided = [each for each in tests if each.get("holds") is not None]
    failed = [each for each in decided if not each["holds"]]
    told = f"{len(decided)} predictions were tested, and {len(failed)} failed"
    rules = ", ".join(sorted({each["rule"] for each in failed}))
    rows = [_row(each) for each in [*failed, *(each for each in tests if each not in failed)][:MOST_LINES]]
    return joined(
        [
            tag("p", f"{told}: {rules}." if failed else f"{told}."),
            scrolling(table(_HEADINGS, rows, [True, True, True, True, False, False, False, False, False, True])),
            tag("p", some(len(rows), len(tests), "tests", FILE)),
        ]
    )


def _row(test: Mapping[str, Any]) -> list[str]:
    found = test.get("measured")
    came = [significant(found["median"]), span(found["min"], found["max"])] if found else [NONE, NONE]
    outcome = "holds" if test.get("holds") else f"not measured: {test.get('why_not')}"
    return [
        *(test[name] for name in ("rule", "cell", "tested", "unit")),
        *(significant(test[name]) for name in ("before", "predicted")),
        span(test["low"], test["high"]),
        *came,
        ("FAILED" if test.get("holds") is False else outcome)
        + (" (measured before it was predicted)" if test.get("known") else ""),
    ]
