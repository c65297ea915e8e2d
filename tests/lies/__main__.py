"""`python -m tests.lies [NAME …]`: run the tool against each lie, and print what it answers."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from tests.lies import proofs, workspace
from tests.lies.lie import MissingError, NotStagedError
from tests.lies.registry import ALL


def main() -> int:
    """Run the lies; 0: every answer was as expected, 1: one was not, 3: all were, but some lies could not be staged."""
    asked = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what is staged is undone on the way out
    rows = []
    for name in asked.names or ALL:
        rows.append(row(name))
        print(rows[-1].line, flush=True)
    if asked.write:
        asked.write.write_text(proofs.page(rows), encoding="utf-8")
        print(asked.write)
    return 1 if any(each.problem for each in rows) else 3 if any(each.missing for each in rows) else 0


def row(name: str) -> proofs.Row:
    """Run one lie."""
    lie = ALL[name]
    try:
        truth, answer = workspace.run(lie)
    except (MissingError, NotStagedError) as error:
        return proofs.Row(lie, missing=str(error))
    return proofs.Row(lie, truth, answer, lie.expected.problem(answer) or "")


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.lies", description=__doc__)
    made.add_argument("names", nargs="*", metavar="NAME", choices=[[], *ALL], help="lies to run; without any, all")
    made.add_argument("--write", metavar="FILE", type=Path, help="write the table as Markdown: docs/proofs.md")
    return made


if __name__ == "__main__":
    raise SystemExit(main())
