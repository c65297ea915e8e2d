"""What this project itself costs, measured by benches: each is a module here, with its sizes and its figures.

    python -m tests.bench                     all of them that can run here; writes the tables
    python -m tests.bench NAME [NAME …]       these, and prints; --write puts their rows there, too
    python -m tests.bench NAME --size smoke   in seconds; each of its sizes is a word too: --runs 5

All rows go to docs/reference/performance.csv, the twelve that matter to docs/performance.md. Every figure is a line;
the last line of a bench is all of it as JSON. The machine should have nothing else to do.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from jobs.observe.conditions import describe_node
from tests.bench.bench import ROOT, Figure, said

BENCHES = (
    "start", "planning", "overhead", "harness", "trace_cost", "report", "overlap", "checkpoints", "packing",
    "thousands", "photographs", "profiler", "time_log", "hdf5", "objects", "sums",
    "waits_cost",
)  # fmt: skip
TABLE, PAGE = ROOT / "docs" / "reference" / "performance.csv", ROOT / "docs" / "performance.md"
COLUMNS = ("bench", "what", "measured", "unit", "goal", "outcome", "commit", "machine")
SHOWN = (
    ("start", "`python -m campaign status`"),
    ("planning", "a plan of 10,000 cells"),
    ("overhead", "a run beyond its work"),
    ("harness", "ratio of the two"),
    ("trace_cost", "a sample each 1 s"),
    ("thousands", "2,000 cells of 1 s: `squeue`"),
    ("report", "analysis of 10,000 cells"),
    ("report", "status of 10,000 cells"),
    ("overlap", "of the input hidden by prefetch 1"),
    ("profiler", "trace: wall of a pass of TensorFlow, 8 threads"),
    ("hdf5", "`offsets` over raw files, cold"),
    ("objects", "engine `threads` over plain threads, 112 kB, shared processors"),
)
"""The rows of the page, by bench and figure."""
HEAD = "| bench | what | measured | goal | outcome | commit |\n| --- | --- | ---: | --- | --- | --- |\n"


def main(words: Sequence[str]) -> int:
    """Run the benches that are named, or all; returns the exit code."""
    asked, sizes = _parsed(words)
    where = _where()  # before the tables are written, which is a change, too
    for name in asked.names or BENCHES:
        bench = importlib.import_module(f"tests.bench.{name}")
        size = {**bench.SIZES[asked.size], **sizes}
        why_not = lacking(bench, size)
        print(f"{name}: {why_not}" if why_not else name, flush=True)
        if why_not and asked.names:
            return 1
        if not why_not:
            answer = {**run(name, bench, size), **where}
            print(json.dumps(answer), flush=True)
            if asked.write or (asked.size == "full" and not asked.names):
                write(answer)
    return 0


def run(name: str, bench: ModuleType, size: dict[str, Any]) -> dict[str, Any]:
    """Measure, a line for each figure as it comes; returns what the JSON line says."""
    figures: list[Figure] = []
    for figure in bench.measure(**size):
        print(f"  {figure.what:64} {figure}" + (f"  ({figure.goal})" if figure.goal else ""), flush=True)
        figures.append(figure)
    rows = [
        figure._asdict() | {"measured": figure.number, "text": str(figure), "outcome": figure.outcome}
        for figure in figures
    ]
    return {"bench": name, "size": size, "figures": rows}


def _where() -> dict[str, str]:
    """Name the commit and the machine."""
    facts = describe_node(ROOT)
    commit = said(["git", "rev-parse", "--short", "HEAD"], cwd=str(ROOT)).strip()
    written = [f":!{file.relative_to(ROOT)}" for file in (TABLE, PAGE)]
    changed = said(["git", "diff", "--name-only", "HEAD", "--", ".", *written], cwd=str(ROOT)).strip()
    return {
        "commit": f"{commit}-dirty" if changed else commit,
        "machine": f"{facts['cores']} cores, {facts['cpu']}, Linux {facts['kernel']}",
    }


def write(answer: dict[str, Any]) -> None:
    """Put the rows of a bench in the place of those it had."""
    new = [{**answer, **figure} for figure in answer["figures"]]
    with TABLE.open(encoding="utf-8", newline="") as file:
        kept = [row for row in csv.DictReader(file) if row["bench"] != answer["bench"]]
    write_rows([*kept, *new])


def write_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Write all rows as CSV, and those of the page as Markdown; what stands around that table stays."""
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda row: BENCHES.index(row["bench"])))
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(HEAD)
    after = rest[len("".join(line for line in rest.splitlines(keepends=True) if line.startswith("| "))) :]
    by_name = {(row["bench"], row["what"]): row for row in rows}
    PAGE.write_text(
        before + HEAD + "".join(page_line(name, by_name.get(name)) for name in SHOWN) + after, encoding="utf-8"
    )


def page_line(name: tuple[str, str], row: dict[str, Any] | None) -> str:
    """Return a row of the page."""
    cells = ["not measured", "", "", ""]
    if row:
        cells = [f"{row['measured']} {row['unit']}".strip(), row["goal"], row["outcome"], row["commit"]]
    return f"| {' | '.join([*name, *cells])} |\n"


def lacking(bench: ModuleType, size: dict[str, Any]) -> str | None:
    """Say what a bench lacks here; None where it can run."""
    needs = getattr(bench, "NEEDS", None)
    if needs == "photos" and not size["photos"]:
        return "needs --photos FOLDER"
    if needs == "root" and os.geteuid() != 0:
        return "throttled devices need root"
    if needs == "lab":
        from tests.slurm.lab import missing  # noqa: PLC0415

        return missing()
    if needs == "ceph":
        from tests.ceph.lab import missing_for_gateway as lacks_ceph  # noqa: PLC0415

        return lacks_ceph()
    return None


def _parsed(words: Sequence[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Read the words; the sizes of the bench that is named, if it is one, can be given one by one."""
    parser = argparse.ArgumentParser(
        "python -m tests.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHES))
    parser.add_argument("--size", choices=("smoke", "full"), default="full")
    parser.add_argument("--write", action="store_true", help="write the rows of the benches that are named")
    asked, more = parser.parse_known_args(words)
    unknown = set(asked.names) - set(BENCHES)
    if unknown:
        parser.error(f"no such bench: {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    if not more:
        return asked, {}
    if len(asked.names) != 1:
        parser.error(f"{' '.join(more)}: name one bench")
    sizes = importlib.import_module(f"tests.bench.{asked.names[0]}").SIZES["full"]
    for key, value in sizes.items():
        parser.add_argument(f"--{key}", type=type(value), default=argparse.SUPPRESS)
    given = vars(parser.parse_args(words))
    return asked, {key: given[key] for key in sizes if key in given}


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a `kill` removes devices and jobs, as Ctrl-C does
    sys.exit(main(sys.argv[1:]))
