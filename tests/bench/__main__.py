"""What this project itself costs, measured by benches: each is a module here, with its sizes and its figures.

    python -m tests.bench [NAME …]           all of them that can run here, or these
    python -m tests.bench NAME --size smoke  in seconds; --write puts the rows into the tables

All rows go to docs/reference/performance.csv, those with a goal to docs/performance.md. Every figure is a line.
The machine should have nothing else to do.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import signal
import sys
from collections.abc import Iterator, Sequence

from jobs.observe.conditions import describe_node
from tests.bench.bench import ROOT, said
from tests.slurm.lab import missing

BENCHES = ("start", "overhead", "harness", "report", "thousands")
TABLE, PAGE = ROOT / "docs" / "reference" / "performance.csv", ROOT / "docs" / "performance.md"
COLUMNS = ("bench", "what", "measured", "unit", "goal", "outcome", "commit", "machine")
HEAD = "| bench | what | measured | goal | outcome | commit |\n| --- | --- | ---: | --- | --- | --- |\n"


def main(words: Sequence[str]) -> int:
    """Run the benches that are named, or all; returns the exit code."""
    parser = argparse.ArgumentParser("python -m tests.bench", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHES))
    parser.add_argument("--size", choices=("smoke", "full"), default="full")
    parser.add_argument("--write", action="store_true", help="write the rows of the benches into the tables")
    asked = parser.parse_args(words)
    if unknown := {*asked.names} - {*BENCHES}:
        parser.error(f"no such bench: {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    where = _where()  # before the tables are written, which is a change, too
    for name in asked.names or BENCHES:
        if name == "thousands" and (lacks := missing()):
            print(f"{name}: {lacks}")
            continue
        rows = [row | where for row in measure(name, asked.size)]
        if asked.write:
            write(name, rows)
    return 0


def measure(name: str, size: str) -> Iterator[dict[str, str]]:
    """Measure a bench, and print a line for each figure as it comes; yields its row."""
    bench = importlib.import_module(f"tests.bench.{name}")
    print(name, flush=True)
    for figure in bench.measure(**bench.SIZES[size]):
        shown = f"{figure.measured} {figure.unit}".strip()
        print(f"  {figure.what:64} {shown}" + (f"  ({figure.goal})" if figure.goal else ""), flush=True)
        row = {"measured": figure.measured, "unit": figure.unit, "goal": figure.goal, "outcome": figure.outcome}
        yield {"bench": name, "what": figure.what, **row}


def _where() -> dict[str, str]:
    """Name the commit and the machine."""
    facts = describe_node(ROOT)
    commit = said(["git", "rev-parse", "--short", "HEAD"], cwd=str(ROOT)).strip()
    changed = said(["git", "diff", "--name-only", "HEAD", "--", ".", ":!docs"], cwd=str(ROOT)).strip()
    return {
        "commit": f"{commit}-dirty" if changed else commit,
        "machine": f"{facts['cores']} cores, {facts['cpu']}, Linux {facts['kernel']}",
    }


def write(name: str, new: Sequence[dict[str, str]]) -> None:
    """Put the rows of a bench in the place of those it had; what stands around the table of the page stays."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        kept = [row for row in csv.DictReader(file) if row["bench"] != name]
    rows = sorted([*kept, *new], key=lambda row: row["bench"])
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(HEAD)
    after = rest[len("".join(line for line in rest.splitlines(keepends=True) if line.startswith("| "))) :]
    PAGE.write_text(before + HEAD + "".join(page_line(row) for row in rows if row["goal"]) + after, encoding="utf-8")


def page_line(row: dict[str, str]) -> str:
    """Return a row of the page."""
    shown = row | {"measured": f"{row['measured']} {row['unit']}".strip()}
    return f"| {' | '.join(shown[key] for key in COLUMNS if key not in ('unit', 'machine'))} |\n"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a `kill` removes jobs, as Ctrl-C does
    sys.exit(main(sys.argv[1:]))
