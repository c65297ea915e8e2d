"""What `python -m campaign advise` predicted of cells, and what came of it when it was tested."""

from pathlib import Path

from analysis.output.page.results import MOST_LINES, some
from analysis.records.readable import AbsentError, UnreadableError, load
from analysis.text.html import Markup, joined, scrolling, table, tag
from analysis.text.plain import NONE, significant, span
from jobs.model.predictions import Account, Tested

FILE = "advice.json"
_HEADINGS = ("rule", "prediction", "before", "predicted", "interval", "measured", "runs", "unit", "cell", "tested by")
_LEFT = (True, True, *[False] * 5, True, True, True)


def advice(folder: Path) -> Markup:
    """Return each prediction that was put to the test, as it came; empty where there is none."""
    try:
        tests = load(folder / FILE, Account)["tests"]
    except AbsentError:
        return Markup()
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
            scrolling(table(_HEADINGS, rows, _LEFT)),
            tag("p", some(len(rows), len(tests), "tests", FILE)),
        ]
    )


def _row(test: Tested) -> list[str]:
    found, holds = test.get("measured"), test.get("holds")
    outcome = f"not measured: {test.get('why_not')}" if holds is None else "holds" if holds else "FAILED"
    return [
        test["rule"],
        outcome + (" (measured before)" if test.get("known") else ""),
        *(significant(test[name]) for name in ("before", "predicted")),
        span(test["low"], test["high"]),
        *((significant(found["median"]), span(found["min"], found["max"])) if found else (NONE, NONE)),
        *(test[name] for name in ("unit", "cell", "tested")),
    ]
