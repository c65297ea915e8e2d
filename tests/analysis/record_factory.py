"""Records as the campaign writes them, made from the example that holds the contract."""

import copy
import csv
import hashlib
import json
from pathlib import Path

from analysis import processes
from analysis.figures.kit import draw, save
from analysis.text.html import Markup

CONTRACT = json.loads((Path(__file__).parents[1] / "contract" / "record.json").read_text(encoding="utf-8"))
BYTES_PER_IMAGE = 112_000


def check(rule, *, passed, limit=None):
    return {"rule": rule, "passed": passed, "observed": None, "limit": limit, "message": ""}


PASSED = [check("cold", passed=True), check("complete", passed=True), check("quiet", passed=True)]


def scattered(value):
    """Return three values around this median, which no mean, range or other place of theirs equals."""
    return [value, 0.99 * value, 1.02 * value]


def run(number, images_per_s, *, size=BYTES_PER_IMAGE, **keys):
    """Return a valid measured run of this rate; any key of a run may be given instead."""
    figures = {
        "images_per_s": images_per_s,
        "read_mb_per_s": images_per_s * size / 1e6,
        "bytes_read": 512 * size,
        "wall_s": 512 / images_per_s,
    }
    state = {"run": number, "role": "measured", "status": "valid", "reason": None, "checks": PASSED}
    return copy.deepcopy(CONTRACT["runs"][0]) | figures | state | keys


def disturbed(*rates, **settings):
    """Return an invalid record whose measured runs of these rates failed `quiet` alone."""
    checks = [check("cold", passed=True), check("quiet", passed=False)]
    loud = [run(n, rate, status="invalid", reason="quiet: others", checks=checks) for n, rate in enumerate(rates, 1)]
    return record(loud, **settings) | {"status": "invalid", "reason": f"0 of {len(rates)} measured runs valid; quiet"}


def record(rates, *, threads=4, storage="local", host="node1", device=None, **settings):
    """Return a done record with an absurdly fast warm-up and measured runs of these rates (or these runs).

    The device has the storage's name, unless it is given. A setting within a group is named like
    `benchmark__preprocess`.
    """
    made = copy.deepcopy(CONTRACT)
    words = made["cell"]["settings"]
    words |= {"threads": threads, "storage": {"name": storage, "root": f"/{storage}"}}
    for name, value in settings.items():
        group, _, part = name.rpartition("__")
        (words[group] if group else words)[part] = value
    tail = hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()[:10]
    made["cell"]["id"] = f"micro-demo-{storage}-t{threads}-b64-{tail}"
    made["provenance"]["host"] = host
    made["provenance"]["mount"]["source"] = f"/dev/{storage}"
    made["provenance"]["device"]["name"] = device or storage
    measured = [each if isinstance(each, dict) else run(n, each) for n, each in enumerate(rates, start=1)]
    made["runs"] = [run(0, 99_999.0, role="warmup"), *measured]
    return made | {"status": "done", "reason": None, "checks": [check("spread", passed=True)]}


def of_benchmark(made, benchmark, name):
    """Make a record one of another benchmark, as it was before a record said what its benchmark is there for."""
    for key in ("kind", "figure", "unit", "better"):
        made["cell"].pop(key, None)
    made["cell"] |= {"benchmark": benchmark, "id": name}
    return made


def unstable(made):
    return made | {"checks": [check("spread", passed=False)]}


def id_of(made):
    return made["cell"]["id"]


def store(folder, *records):
    """Write records as a campaign folder; return it."""
    for each in records:
        path = folder / "records" / id_of(each) / "record.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(each), encoding="utf-8")
    return folder


def rows_of(path):
    """Return the rows of a CSV that the analysis wrote."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def leave_unrendered(patch):
    """Let figures be made, in this process, and not be rendered: their PDF, PNG and SVG are empty."""
    patch.setattr(save, "rendered", lambda *_: b"")
    patch.setattr(draw, "inline", lambda *_: Markup())
    patch.setattr(processes, "processors", lambda: 1)
