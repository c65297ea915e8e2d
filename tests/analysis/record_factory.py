"""Records as the campaign writes them, made from the example that holds the contract."""

import copy
import csv
import hashlib
import json
from pathlib import Path

from markupsafe import Markup

from analysis import processes
from analysis.figures.kit import save
from analysis.records.record import record_of
from jobs.judging.judge import judge_record

CONTRACT = json.loads((Path(__file__).parents[1] / "acceptance" / "stored" / "record.json").read_text(encoding="utf-8"))
_HOUR = "2026-11-21T09"
_RECORD, _RUN = json.dumps(CONTRACT), json.dumps(CONTRACT["runs"][0])  # read anew in a third of the time of a copy
BYTES_PER_IMAGE = 112_000


# Raw figures by which a run fails a rule, or by which no machine can tell whether it holds.
FAILED = {"cold": {"resident_fraction": 1.0}, "quiet": {"other_cpu": 3.0}, "complete": {"image_errors": 1}}
UNKNOWN = {"cold": {"resident_fraction": None}, "device_bytes": {"device_bytes": None}, "quiet": {"device_use": None}}
# The spread is judged by a figure of its own, so that rates may differ in records that are stable.
JUDGED = "elapsed_s_with_fork"


def parse(value, folder=Path()):
    """Return the record as the analysis has it, judged by its own terms."""
    return record_of(judge_record(value, value["terms"]), folder)


def scattered(value):
    """Return three values around this median, which no mean, range or other place of theirs equals."""
    return [value, 0.99 * value, 1.02 * value]


def run(number, images_per_s, *, size=BYTES_PER_IMAGE, fails=(), unknown=(), **keys):
    """Return a measured run of this rate, valid unless it `fails` a rule; any key of a run may be given instead.

    Of the rules that are `unknown` nobody can tell whether they hold.
    """
    figures = {
        "images_per_s": images_per_s,
        "read_mb_per_s": images_per_s * size / 1e6,
        "bytes_read": 512 * size,
        "wall_s": 512 / images_per_s,
        "rate": {"key": JUDGED, "unit": "s"},
        "wall_parts": ["wall_s"],
    }
    for rule in fails:
        figures |= FAILED[rule]
    for rule in unknown:
        figures |= UNKNOWN[rule]
    started = f"{_HOUR}:{number // 60:02}:{number % 60:02}.000Z"
    made = json.loads(_RUN) | figures | {"run": number, "role": "measured", "started_utc": started} | keys
    if made.get("profile"):
        made |= _profiled(made)
    return made if "device_bytes" in {*keys, *unknown} else made | {"device_bytes": made["bytes_read"]}


def _profiled(made):
    """Return a whole profile of a run, which read no more than the profile has seen."""
    profile = {"mode": "trace", "dropped": 0, "blind_spot": None, "bytes_read": made["bytes_read"], **made["profile"]}
    size = min(made["bytes_read"], profile["bytes_read"])
    rate = {"read_mb_per_s": size / 1e6 / made["wall_s"]} if "read_mb_per_s" in made else {}
    return {"profile": profile | {"seen_read_bytes": size, "kernel_read_bytes": size}, "bytes_read": size, **rate}


def failed(number, words, code="no_data", **keys):
    """Return a run that failed, with this code and these words."""
    return run(number, 1.0, status="failed", end={"code": code, "words": words}, **keys)


def disturbed(*rates, **settings):
    """Return an invalid record whose measured runs of these rates failed `quiet` alone."""
    return record([run(n, rate, fails=["quiet"]) for n, rate in enumerate(rates, 1)], **settings)


def record(rates, *, threads=4, storage="local", host="node1", device=None, limit=0.04, **settings):  # noqa: PLR0913 - what a cell is
    """Return a record, done if one run is valid, with an absurdly fast warm-up and measured runs of these rates.

    In place of a rate a run may stand. The device has the storage's name, unless it is given. `limit` is that of the
    spread. A setting within a group is named like `benchmark__preprocess`.
    """
    made = json.loads(_RECORD)
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
    made["terms"] |= {"runs": 2, "min_valid_runs": 1}
    made["terms"]["checks"]["spread_max"] = made["terms"]["of_site"]["spread_max"] = limit
    return made | {"status": "ended"}


def left(made, status):
    """Return a record that lacks valid runs: `failed` or `invalid`, by one more run that is so, or `running`."""
    made = copy.deepcopy(made)
    made["terms"] |= {"runs": 100, "min_valid_runs": 99}
    number = len(made["runs"])
    made["runs"] += {"failed": [failed(number, "x")], "invalid": [run(number, 9e9, fails=["cold"])]}.get(status, [])
    return made | {"status": "running" if status == "running" else "ended"}


MERITS = {
    "alexnet": {"kind": "training", "figure": "wall_s", "unit": "s", "better": "lower"},
    "baseline": {"kind": "storage", "figure": "read_mb_per_s", "unit": "MB/s", "better": "higher"},
}


def of_benchmark(made, benchmark, name):
    """Make a record one of another benchmark."""
    made["cell"] |= {"benchmark": benchmark, "id": name, **MERITS.get(benchmark, {})}
    return made


def unstable(made):
    """Return a record whose measured runs disagree."""
    made = copy.deepcopy(made)
    for each in made["runs"]:
        each[JUDGED] = 1.0 + each["run"]
    return made


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
    patch.setattr(save, "render_figure", lambda *_: b"")
    patch.setattr(save, "inline_svg", lambda *_: Markup())
    patch.setattr(processes, "processor_count", lambda: 1)
