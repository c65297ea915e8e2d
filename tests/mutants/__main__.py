"""`python -m tests.mutants`: make mistakes in copies of this checkout, and write which of them its tests catch.

As root: what is tried writes to its copy alone, and ends with its namespace. `build/mutants` keeps what was tried: the
same command goes on, and tries again what survived where the tests of its room are others now.
"""

import argparse
import ast
import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
import tomllib
import zlib
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.mistakes import mistakes

ROOT, HERE = Path(__file__).parents[2], Path(__file__).parent
WORK, PAGE = ROOT / "build" / "mutants", ROOT / "docs" / "mutants.md"
EQUIVALENT = tomllib.loads((HERE / "equivalent.toml").read_text(encoding="utf-8"))
BOX = """while read -r _ at kind _; do
  case $kind in ext*|xfs|btrfs|overlay|zfs|nfs*) mount -o remount,bind,ro "$at";; esac
done </proc/self/mounts
mount --bind "$0" "$0" && mount -o remount,bind,rw "$0" && mount --bind "$0/tmp" /tmp && cd "$0" && exec "$@" """
TOPS = ("analysis", "campaign", "jobs")
COPIES, TRIED = SimpleQueue(), {}


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--room", help="a folder of modules, such as analysis/claims; unless given all of them")
    parser.add_argument("--number", type=int, default=400, help="of mistakes, as many in each room")
    parser.add_argument("--seed", type=int, default=0)
    asked, rooms = parser.parse_args(), defaultdict(list)
    for path in sorted(path for top in TOPS for path in (ROOT / top).rglob("*.py")):
        rooms["/".join(path.relative_to(ROOT).parts[:-1][:2])].append(str(path.relative_to(ROOT)))
    names = [asked.room] if asked.room else list(rooms)
    shutil.rmtree(WORK / "copies", ignore_errors=True)
    for number in range(len(os.sched_getaffinity(0))):
        copy = WORK / "copies" / str(number)
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "build", "__pycache__"))
        COPIES.put(copy)
    log = WORK / "tried.jsonl"
    TRIED.update((row["what"], row) for row in map(json.loads, log.read_text().splitlines() if log.exists() else ()))
    chosen = [_chosen(name, rooms[name], -(-asked.number // len(names)), asked.seed) for name in names]
    with ThreadPoolExecutor(COPIES.qsize()) as pool:
        clean = {row["room"]: row for row in pool.map(lambda name: _tried(name, rooms[name]), names)}
        jobs = [(job, clean[job[0]]) for turn in zip_longest(*chosen) for job in turn if job]
        for row in pool.map(lambda job: _tried(*job[0], clean=job[1]), jobs):
            print(row["outcome"], row["what"], flush=True)
    rows = [row for row in TRIED.values() if row["kind"] and row["sums"][0] == _sum(row["modules"])]
    head = PAGE.read_text(encoding="utf-8").partition("\n| ")[0].rstrip()
    PAGE.write_text(_page(head, sorted(rows, key=lambda row: row["what"])), encoding="utf-8")


def _chosen(room, modules, number, seed):
    """Choose mistakes in a room, one of each kind in turn; a larger number begins with the same ones."""
    chance, kinds, picked = random.Random(f"{seed} {room}"), defaultdict(list), []  # noqa: S311 - no secret
    for module in modules:
        for mistake in mistakes(ast.parse((ROOT / module).read_text(encoding="utf-8"))):
            kinds[mistake[0]].append((module, *mistake))
    orders = [chance.sample(kinds[kind], len(kinds[kind])) for kind in chance.sample(sorted(kinds), len(kinds))]
    for module, *mistake, source in (each for turn in zip_longest(*orders) for each in turn if each):
        if len(picked) < number:
            with contextlib.suppress(SyntaxError):
                picked.append((room, [module], *mistake, source()))
    return picked


def _sum(paths):
    return zlib.crc32(b"".join((ROOT / path).read_bytes() for path in paths if (ROOT / path).is_file()))


def _tests(room, module):
    """Return the tests of a module: of its name, else those that name it; then those of its room."""
    dotted, stem, texts = module[:-3].replace("/", "."), Path(module).stem, {}
    for top in TOPS:
        texts |= {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests" / top).rglob("test_*.py"))}
    of_room = sorted((ROOT / "tests" / room).glob("**/test_*.py" if "/" in room else "test_*.py"))
    named = re.compile(rf"{dotted}\b|from {dotted.rpartition('.')[0]} import [\w, (\n]*\b{stem}\b")
    own = [path for path in of_room if path.stem == f"test_{stem}"]
    own = own or [path for path, text in texts.items() if named.search(text)]
    return [str(path.relative_to(ROOT)) for path in dict.fromkeys([*own, *of_room])]


def _tried(room, modules, kind="", line=0, function="", change="", source="", *, clean=None):  # noqa: PLR0913, PLR0917
    """Return what tests say of a mistake; without one, which of them fail all the same, and how long they take."""
    what = f"{modules[0]} {function}: {change}" if kind else room
    tests = list(dict.fromkeys(test for module in modules for test in _tests(room, module)))
    sums, row = [_sum(modules), _sum(sorted(tests))], TRIED.get(what)
    if row and (row["sums"] == sums or (row["outcome"] == "caught" and row["sums"][0] == sums[0])):
        return row
    left_out = [f"--deselect={test}" for test in clean["failed"]] if clean else []
    copy, began = COPIES.get(), time.monotonic()
    if source:
        (copy / modules[0]).write_text(source, encoding="utf-8")
    outcome, said = _run(copy, [*tests, *left_out, *["-x"] * bool(clean)], 60 + 4 * clean["seconds"] if clean else None)
    shutil.copy2(ROOT / modules[0], copy / modules[0])
    COPIES.put(copy)
    failed, seconds = re.findall(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE), round(time.monotonic() - began)
    TRIED[what] = {"what": what, "room": room, "modules": modules, "kind": kind, "line": line, "sums": sums,
                   "outcome": outcome, "failed": failed, "seconds": seconds}  # fmt: skip
    with (WORK / "tried.jsonl").open("a", encoding="utf-8") as log:
        log.write(json.dumps(TRIED[what]) + "\n")
    return TRIED[what]


def _run(copy, words, limit_s):
    """Run pytest in a copy, alone there; returns what became of it, and what it printed."""
    shutil.rmtree(copy / "tmp", ignore_errors=True)
    (copy / "tmp").mkdir()
    apart = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    box = ["setpriv", "--pdeathsig", "KILL", "unshare", *apart, "sh", "-c", BOX, str(copy)]
    box += [sys.executable, "-m", "pytest", "-q", "-n", "0", "--hypothesis-seed=0", *words]
    own = {**os.environ, "PYTHONPATH": str(copy), "HOME": "/tmp"}  # noqa: S108 - the copy's
    try:
        done = subprocess.run(box, env=own, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return "late", ""
    if limit_s is None and " passed" not in done.stdout:
        raise SystemExit(f"{copy}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return "caught" if done.returncode else "survived", done.stdout


def _page(head, rows):
    """Return docs/mutants.md: its words as they were, then the table and the survivors."""
    groups, survivors = defaultdict(Counter), ["", "## Survivors", ""]
    for row in rows:
        reason = EQUIVALENT.get(row["what"])
        place, _, change = row["what"].partition(" ")
        for group in ("**all**", row["room"], f"*{row['kind']}*"):
            groups[group]["equivalent" if reason else row["outcome"]] += 1
        if row["outcome"] == "survived":
            survivors.append(f"- {place}:{row['line']} {change}" + f"; equivalent: {reason}" * bool(reason))
    table = ["| room, *kind* | tried | caught | late | equivalent | survived | caught, % |", "| --- |" + " ---: |" * 6]
    for group, counts in sorted(groups.items()):
        caught, left = counts["caught"] + counts["late"], counts["survived"]
        numbers = counts.total(), counts["caught"], counts["late"], counts["equivalent"], left
        share = f"{100 * caught / (caught + left):.0f}" if caught + left else "-"
        table.append(f"| {group} | {' | '.join(map(str, numbers))} | {share} |")
    return "\n".join([head, "", *table, *survivors, ""])


if __name__ == "__main__":
    main()
