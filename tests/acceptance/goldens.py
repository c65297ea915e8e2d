"""Makes the goldens anew from the tool: `python -m tests.acceptance.goldens`, and `git diff` shows what changed.

The rule of the freeze: a commit touches goldens or source, never both. A change of the source that changes a golden on
purpose is two commits, and the one with the goldens says why each number is right.
"""

import hashlib
import json
import re
import shutil
import tempfile
from pathlib import Path

import matplotlib as mpl
from PIL import Image

from tests.acceptance import door

CAMPAIGNS = ("measured", "claims", "others")
RECIPES = sorted(path.stem for path in (door.ROOT / "conf" / "paper").glob("*.yaml"))
GRIDS = [f"+paper={name} +size={size} site=twin" for size in ("smoke", "lab", "paper") for name in RECIPES]
GRIDS += ["reproduce paper=all +size=smoke site=twin", "reproduce paper=chien2018 site=none", "+paper=fig9 site=none"]
SETTINGS = [
    "benchmark", "dataset", "accelerator", "checkpoint", "profile", "trace", "threads", "batch_size", "prefetch",
    "iterations", "seed", "cache", "reader", "staging", "nodes", "sync", "runs", "warmup_runs", "size",
]  # fmt: skip


def exchanged(records: list[dict]) -> list[dict]:
    """Give the runs of the first cell of each benchmark to its last one, and so on."""
    alike = {}
    for each in records:
        alike.setdefault((each["cell"]["benchmark"], str(each["runs"][1].keys())), []).append(each)
    pairs = [pair for cells in alike.values() for pair in zip(cells, reversed(cells), strict=True)]
    return [mine | {"runs": other["runs"]} for mine, other in pairs]


def emulated(records: list[dict]) -> list[dict]:
    """Say of each second storage that it was emulated, and of each third cell that another machine measured it."""
    for each in records[1::2]:
        if storage := each["cell"]["settings"].get("storage"):
            each["provenance"]["emulated"] = {"storage": {"name": storage["name"], "read_mb_per_s": 163.0}}
    for each in records[::3]:
        each["provenance"]["host"] = "another"
    return records


CHANGES = {"as measured": lambda records: records, "exchanged": exchanged, "emulated": emulated}
GONE = re.compile("posix-(order|files|rates)|steps|verdicts")  # by shared/rooms/analysis.md, or judged elsewhere


def campaign(name: str, folder: Path, change=CHANGES["as measured"]) -> Path:
    """Lay a stored campaign into a folder: its records, which may be changed, and the files beside them."""
    if (records := door.STORED / f"{name}.json").exists():
        door.stored(folder, *change(json.loads(records.read_text("utf-8"))))
    if (door.STORED / name).exists():
        shutil.copytree(door.STORED / name, folder, dirs_exist_ok=True)
    return folder


def report(name: str, folder: Path, **environment: object) -> Path:
    """Analyse a stored campaign; return its folder with all that was written."""
    done = door.cli(campaign(name, folder), "--quiet", cwd=folder.parent, program="analysis", **environment)
    assert done.code == 0, done.err
    return folder


def tables(out: Path) -> dict[str, Path]:
    """Return the CSV of each chart and table by its stem; of a chart of several sets that of the largest."""
    found = sorted(out.glob("*/*.csv"), key=lambda path: (len(path.read_bytes().splitlines()), path.name))
    words = {"nersc": 3, "sweep": 2, "posix": 2, "tfdarshan": 2}
    named = [(path.stem.split("-"), path) for path in found]
    by_stem = {"-".join(parts[: words.get(parts[0], 1)]): path for parts, path in named}
    return {stem: path for stem, path in by_stem.items() if not GONE.fullmatch(stem)}


def pictures(out: Path) -> dict[str, str]:
    """Return the size of each chart's picture, and a hash of its pixels."""
    charts = {stem: path.with_suffix(".png") for stem, path in tables(out).items() if path.parent.name == "figures"}
    images = {stem: Image.open(path).convert("RGB") for stem, path in charts.items()}
    return {stem: f"{each.size} {hashlib.sha256(each.tobytes()).hexdigest()}" for stem, each in sorted(images.items())}


def verdicts(folder: Path) -> dict[str, list]:
    """Return of each claim verdict, ours, what is published, is it emulated; 'not measured' where that is all."""
    said = {}
    for row in door.verdicts(folder):
        said.setdefault(row["claim"], []).append([row["verdict"], row["ours"], row["published"], bool(row["emulated"])])
    measured = {claim: [row for row in rows if row[0] != "not measured"] for claim, rows in said.items()}
    return {claim: sorted(measured[claim] or rows[:1], key=str) for claim, rows in sorted(said.items())}


def grid(words: str, folder: Path) -> dict:
    """Return the cells that words ask for, and the settings that they have in common."""
    made = {} if words.startswith("reproduce") else door.configuration(folder, *words.split())
    return {"cells": door.planned(folder, *words.split()), "settings": {key: made[key] for key in SETTINGS if made}}


def stdout(folder: Path) -> dict[str, list[str]]:
    """Return what the terminal shows of a small campaign: the report to its files, a cell's runs with each check."""
    rates = {1: 100.0, 2: 165.0, 4: 190.0}
    made = [door.record(rate * 0.99, rate, rate * 1.03, threads=threads) for threads, rate in rates.items()]
    door.stored(folder, *made)
    report_out = door.cli("report", folder, cwd=folder).out.partition("/figures/")[0].rpartition("\n")[0]
    shown = door.cli("show", made[0]["cell"]["id"], folder, cwd=folder).out.splitlines()
    runs = next(place for place, line in enumerate(shown) if line.startswith("run 0"))
    checks = [line for line in shown[runs:] if re.match(r"run \d| +[a-z_]+ +(ok|FAILED|unknown)", line)]
    numbers = [" ".join([*line.split()[:2], *re.findall(r"\d[\d,.]*", line)]) for line in checks]
    return {"report": [re.sub(r"\b[0-9a-f]{10}\b", "", line) for line in report_out.splitlines()], "show": numbers}


def write(name: str, content: object) -> None:
    """Write a golden as JSON, an entry a line."""
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in content.items()]
    (door.GOLDENS / name).write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def main() -> None:
    """Write all goldens."""
    with tempfile.TemporaryDirectory() as name:
        home, drawn = Path(name), {}
        for each in CAMPAIGNS:
            out = report(each, home / each)
            drawn[each] = pictures(out)
            shutil.rmtree(door.GOLDENS / each, ignore_errors=True)
            (door.GOLDENS / each).mkdir()
            for stem, path in tables(out).items():
                shutil.copy(path, door.GOLDENS / each / f"{stem}.csv")
        write("pictures.json", {"matplotlib": mpl.__version__, **drawn})
        write("verdicts.json", {what: verdicts(campaign("claims", home / what, CHANGES[what])) for what in CHANGES})
        write("stdout.json", stdout(home / "small"))
        (home / "grids").mkdir()
        write("recipes.json", {words: grid(words, home / "grids") for words in GRIDS})


if __name__ == "__main__":
    main()
