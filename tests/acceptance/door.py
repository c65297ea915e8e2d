"""The doors of the tool that an acceptance test may use: its commands and the files that it writes.

No module of the tool is imported here or in a test of this folder, but what the documentation tells users to import.
A door that will change (a verb, a file's name) is named here alone, so that the tests stand still.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import psutil
import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
STORED, GOLDENS = HERE / "stored", HERE / "goldens"

# The machine is shared with other tests: what neighbours do is no fault here. The checks have tests of their own.
SHARED = (
    "storage.exclusive=none",
    "checks.other_cpu_max=1000",
    "checks.other_device_max=1",
    "checks.stolen_max=1000",
    "checks.delayed_max=1",
    "checks.time_error_max=0.6",
    "checks.spread_max=100",
)
# Two dozen images of 3 kB: a cell of three runs takes 3 s.
TINY = (
    "dataset.files=24",
    "dataset.median_bytes=3000",
    "dataset.width=64",
    "dataset.height=64",
    "dataset.classes=3",
    "batch_size=8",
    "runs=3",
    *SHARED,
)


@dataclass(frozen=True)
class Done:
    """A command that has ended: its exit code, and what it wrote to stdout and stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        """The one document on stdout."""
        return json.loads(self.out)


def words_of(program: str, *words: object) -> list[str]:
    """Return the command line of a program of the tool: `campaign`, `analysis`, `jobs`, `jobs.burst_buffer`."""
    return [sys.executable, "-m", program, *map(str, words)]


def environment(**more: object) -> dict[str, str]:
    """Return the environment of a command of this checkout, with more variables."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **{key: str(value) for key, value in more.items()}}


def cli(*words: object, cwd: Path, program: str = "campaign", limit_s: float = 580, text: str = "", **more) -> Done:
    """Give a command, with `text` as its stdin and more variables of environment, and wait for its end."""
    done = subprocess.run(
        words_of(program, *words),
        cwd=cwd,
        env=environment(**more),
        input=text,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def script(text: str, *words: object, cwd: Path, limit_s: float = 300) -> Done:
    """Run a Python script of a user's own, and wait for its end."""
    done = subprocess.run(
        [sys.executable, "-c", text, *map(str, words)],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def blocks(page: str, language: str) -> list[str]:
    """Return the code blocks of a language on a page of docs/."""
    return re.findall(
        rf"^```{language}\n(.+?)^```", (ROOT / "docs" / page).read_text("utf-8"), re.DOTALL | re.MULTILINE
    )


def many(*lines: Sequence[object], cwd: Path, program: str = "campaign", **more) -> list[Done]:
    """Give many commands one after another, each in a fork of one process (`many.py`): quicker than `cli` for each."""
    done = subprocess.run(
        [sys.executable, str(HERE / "many.py"), program],
        cwd=cwd,
        env=environment(**more),
        input=json.dumps([[str(word) for word in words] for words in lines]),
        capture_output=True,
        text=True,
        check=True,
    )
    return [Done(*each) for each in json.loads(done.stdout)]


def traced(kind: str, *lines: Sequence[object], cwd: Path) -> list[Done]:
    """Let the analysis read traces, once for each line of words: `calls` of POSIX, `steps`, `actions` of a time log."""
    verb = {"calls": "profile", "steps": "trace", "actions": "timelog"}[kind]
    return many(*((verb, *words) for words in lines), cwd=cwd, program="analysis")


def start(*words: object, cwd: Path, program: str = "campaign", **more) -> subprocess.Popen[str]:
    """Start a command as the leader of a process group of its own, as a shell does."""
    return subprocess.Popen(
        words_of(program, *words),
        cwd=cwd,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def end(front: subprocess.Popen[str], limit_s: float = 240) -> Done:
    """Wait for the end of what `start` started."""
    out, err = front.communicate(timeout=limit_s)
    return Done(front.returncode, out, err)


def interrupt(front: subprocess.Popen[str]) -> None:
    """Press Ctrl-C: a terminal sends SIGINT to the whole group."""
    os.killpg(front.pid, signal.SIGINT)


def wait(condition, limit_s: float = 240) -> None:
    """Wait until something is so; raises TimeoutError."""
    end_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end_s:
            raise TimeoutError(f"not so after {limit_s} s: {condition}")
        time.sleep(0.1)


def processes_in(folder: Path) -> list[psutil.Process]:
    """List the processes whose working folder is this one, but zombies."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def worker(front: subprocess.Popen[str]) -> psutil.Process:
    """Find the process that measures for a front: of its children the one with the most processes below it."""
    return max(psutil.Process(front.pid).children(), key=lambda child: len(child.children(recursive=True)))


def set_aside(results: Path) -> list[str]:
    """Return the texts of the records that were kept beside newer ones of the same cell."""
    return [path.read_text("utf-8") for path in sorted(results.glob("records/*/*/record.json"))]


def records(results: Path, cells: str = "*") -> list[dict]:
    """Read the records of a campaign folder as they lie there: raw, without verdicts."""
    return [json.loads(path.read_text("utf-8")) for path in sorted(results.glob(f"records/{cells}/record.json"))]


def judged(results: Path, cells: str = "*") -> list[dict]:
    """Read the records with the tool's verdict on each run, by `show CELL --json`."""
    return [cli("show", each["cell"]["id"], results, "--json", cwd=results).json for each in records(results, cells)]


def valid_runs(results: Path, cells: str = "*") -> list[dict]:
    """List the measured runs that the tool judges valid."""
    runs = (run for record in judged(results, cells) for run in record["runs"])
    return [run for run in runs if run["role"] == "measured" and run["status"] == "valid"]


def status(results: Path) -> dict[str, dict]:
    """Ask for the state of each cell, by `status --json`."""
    return cli("status", results, "--json", cwd=results.parent).json["cells"]


def table(results: Path, name: str) -> pd.DataFrame:
    """Read a CSV of `tables/` or `figures/` by its name without ending."""
    return pd.read_csv(next(results.glob(f"*/{name}.csv")))


def files(folder: Path) -> dict[str, bytes]:
    """Return the content of each file below a folder, by its path there."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def is_one_cure(err: str) -> bool:
    """Say whether an error is told as one: what is wrong, a hint that is not empty, no traceback."""
    wrong, _, cure = err.partition("hint: ")
    return "error: " in wrong and bool(cure.strip()) and "Traceback" not in err


# Records that nobody measured.

_TEMPLATE = (STORED / "record.json").read_text("utf-8")


def run(number: int, images_per_s: float, **keys: object) -> dict:
    """Return a measured run of this rate that passes all checks, or with other values of its keys."""
    made = json.loads(_TEMPLATE)["runs"][0]
    bytes_read = 512 * 112_000
    made |= {
        "run": number,
        "role": "measured",
        "started_utc": f"2026-11-21T09:{number // 60:02}:{number % 60:02}.000Z",
        "images_per_s": images_per_s,
        "read_mb_per_s": images_per_s * 0.112,
        "bytes_read": bytes_read,
        "device_bytes": bytes_read,
        "wall_s": 512 / images_per_s,
        "wall_parts": ["wall_s"],
    }
    return made | keys


def record(*rates: object, **keys: object) -> dict:
    """Return a record of `micro`: a warm-up, then a run of each rate, or the runs that stand in their place.

    A key sets a setting of the cell, within a group by two underscores: `threads=2`, `storage__name="hdd"`.
    """
    made = json.loads(_TEMPLATE)
    settings = made["cell"]["settings"]
    for key, value in keys.items():
        group, _, name = key.rpartition("__")
        (settings[group] if group else settings)[name] = value
    storage = settings["storage"]["name"]
    tail = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:10]
    made["cell"]["id"] = f"micro-demo-{storage}-t{settings['threads']}-b64-{tail}"
    made["provenance"]["mount"]["source"] = f"/dev/{storage}"
    made["provenance"]["device"]["name"] = storage
    runs = [each if isinstance(each, dict) else run(number, each) for number, each in enumerate(rates, 1)]
    made["runs"] = [run(0, 99_999.0, role="warmup"), *runs]
    made["terms"] |= {"runs": 2, "min_valid_runs": 1}
    return made | {"status": "ended"}


def stored(folder: Path, *made: dict) -> Path:
    """Write records as a campaign folder of one request, which every verb reads; return it."""
    for each in copy.deepcopy(made):
        path = folder / "records" / each["cell"]["id"] / "record.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(each), "utf-8")
    request = {
        "token": made[0]["campaign"]["token"],
        "utc": made[0]["campaign"]["submitted_utc"],
        "words": made[0]["campaign"]["words"],
        "order_seed": 0,
        "cells": [each["cell"]["id"] for each in made],
        "terms": made[0]["terms"],
    }
    campaign = {"schema": 1, "tool": "tfio-campaign", "requests": [request]}
    (folder / "campaign.json").write_text(json.dumps(campaign), "utf-8")
    return folder


def verdicts(folder: Path) -> list[dict]:
    """Ask for the verdicts on the papers' claims by the records of a campaign folder."""
    return cli("verdicts", folder, "--json", cwd=folder).json


def planned(folder: Path, *words: object) -> list[str]:
    """List the cells that words ask for, by a dry run: name without hash, runs to go, what tells it from the others."""
    out = cli(*words, "--dry-run", cwd=folder).out
    rows = re.findall(r"^(\S+)-[0-9a-f]{10} +\w+ +(\d+) measured runs to go *(.*)$", out, re.MULTILINE)
    return sorted(" ".join(row).strip() for row in rows)


def configuration(folder: Path, *words: object) -> dict:
    """Ask for the whole configuration that words make; no campaign is started."""
    return yaml.safe_load(cli(*words, "--cfg", "job", "--resolve", cwd=folder).out)
