"""Records as a campaign writes them, made from the contract's example; each agrees with itself."""

from __future__ import annotations

import copy
import hashlib
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.lies.lie import INVALID, REFUSED, VALID, Answer

if TYPE_CHECKING:
    from tests.lies.workspace import Workspace

Record = dict[str, Any]
_EXAMPLE = json.loads((Path(__file__).parents[2] / "contract" / "record.json").read_text(encoding="utf-8"))
_IMAGES, _BYTES, _OTHER_SHARE = 512, 57_344_000, 0.0001
_ALEXNET = {
    "name": "alexnet", "image_size": 224, "ignore_errors": True, "autotune": False, "map_and_batch_fusion": False,
    "deterministic": True, "private_threads": None, "prefetch_to_device": False, "control": "none", "width": 1.0,
    "learning_rate": 1e-4, "dropout": 0.5,
}  # fmt: skip


def record(  # noqa: PLR0913 - what a record says
    storage: str,
    threads: int,
    rates: Sequence[float],
    *,
    host: str = "node1",
    device: str = "",
    limit: float = 0.04,
    benchmark: str = "micro",
) -> Record:
    """Return a done record of cold runs of these images/s; the device has the storage's name, unless it is given."""
    made: Record = copy.deepcopy(_EXAMPLE)
    digest = hashlib.sha256(f"{benchmark} {storage} {threads}".encode()).hexdigest()[:10]
    made["cell"] |= {"id": f"{benchmark}-demo-{storage}-t{threads}-b64-{digest}", "benchmark": benchmark}
    made["cell"]["settings"] |= {"threads": threads, "storage": {"name": storage, "root": f"/{storage}"}}
    if benchmark == "alexnet":
        made["cell"] |= {"kind": "training", "figure": "wall_s", "unit": "s", "better": "lower"}
        made["cell"]["settings"] |= {"benchmark": _ALEXNET, "prefetch": 1, "iterations": 8}
    made["provenance"] |= {"host": host, "device": made["provenance"]["device"] | {"name": device or storage}}
    made["provenance"]["mount"] |= {"source": f"/dev/{device or storage}", "point": f"/{storage}"}
    made["runs"] = [_run(number, rate, host, benchmark) for number, rate in enumerate([rates[0], *rates])]
    merits = [run["wall_s" if benchmark == "alexnet" else "images_per_s"] for run in made["runs"][1:]]
    spread = (max(merits) - min(merits)) / statistics.median(merits)
    made["checks"] = [_check("spread") | {"limit": limit, "observed": spread}]
    return made | {"status": "done", "reason": None}


def store(workspace: Workspace, *records: Record) -> Path:
    """Write records as a campaign folder."""
    for each in records:
        path = workspace.folder / "results" / "records" / each["cell"]["id"] / "record.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(each), encoding="utf-8")
    return workspace.folder / "results"


def reported(workspace: Workspace, *records: Record) -> Answer:
    """Make the report of these records: `REFUSED` where some are named and not read, `INVALID` after a traceback."""
    done = workspace.analysis(str(store(workspace, *records)), "--out", "out")
    lines = tuple(line for line in (done.stdout + done.stderr).splitlines() if line)
    if "Traceback" in done.stderr:
        return Answer(INVALID, (f"a traceback: {lines[-1]}",), lines)
    complaints = tuple(line for line in done.stderr.splitlines() if line.startswith("warning: "))
    return Answer(REFUSED if complaints else VALID, complaints, lines)


def judged(workspace: Workspace, claim: str, *records: Record) -> Answer:
    """Hold a claim against these records: `VALID` where it holds or differs, `REFUSED` where it cannot be told."""
    done = workspace.analysis("verdicts", str(store(workspace, *records)), "--json")
    found = next(each for each in json.loads(done.stdout) if claim in each["claim"] and not each["pair"])
    words = f"{found['verdict']}: {found['why']}"
    return Answer(VALID if found["verdict"] in {"holds", "differs"} else REFUSED, (words,), (words,))


def _run(number: int, rate: float, host: str, benchmark: str) -> dict[str, Any]:
    wall_s = _IMAGES / rate
    rest_s = wall_s * (1 - _OTHER_SHARE)
    run: dict[str, Any] = copy.deepcopy(_EXAMPLE["runs"][0]) | {
        "run": number, "role": "measured" if number else "warmup", "started_utc": f"2026-11-21T09:00:{number:02d}.000Z",
        "log": f"run-{number}.log", "host": host, "wall_s": wall_s, "load_s": rest_s, "other_s": wall_s * _OTHER_SHARE,
        "elapsed_s": wall_s * 1.01, "elapsed_s_with_fork": wall_s * 1.1, "images": _IMAGES, "images_asked": _IMAGES,
        "images_per_s": rate, "bytes_read": _BYTES, "read_mb_per_s": _BYTES / 1e6 / wall_s,
        "step_load_s": [rest_s / 2] * 2, "trace": None,
        "checks": [_check("cold"), _check("device_bytes"), _check("complete"), _check("time_adds_up")],
    }  # fmt: skip
    if benchmark == "alexnet":
        run |= {
            "accelerator": "cpu", "parameters": 58_000_000, "state_bytes": 7, "build_s": 0.3, "step_loss": [4.6, 4.5],
            "wall_parts": ["startup_s", "load_s", "compute_s", "checkpoint_s", "other_s"], "startup_s": 0.0,
            "load_s": 0.0, "step_load_s": [0.0] * 2, "compute_s": rest_s, "step_compute_s": [rest_s / 2] * 2,
        }  # fmt: skip
    return run


def _check(rule: str) -> dict[str, Any]:
    value = 1.0 if rule == "device_bytes" else 0.0
    return {"rule": rule, "passed": True, "observed": value, "limit": 0.04, "message": "as it must be"}
