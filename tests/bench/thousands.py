"""What thousands of cells cost, packed into four jobs on the four-node lab (tests/slurm/lab.py).

The run of each takes a second, in which the processors are free. They are submitted, taken up again by the same
command, run to their end and reported. A cell's cost beyond its run is the time from the start of its run to that of
the next one of its job, less the run.
"""

from __future__ import annotations

import datetime as dt
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from tests.bench.bench import Figure
from tests.bench.packing import TRIVIAL, command, of_front
from tests.judged import records_of
from tests.slurm import lab as laboratory

NEEDS = "lab"
SIZES = {"smoke": {"many": 4, "workers": 1}, "full": {"many": 2000, "workers": 4}}
OF_A_SECOND = ("trace.interval_s=0.2", "trace.tail_s=0.8", "cluster.timeout_min=60")


def measure(many: int, workers: int) -> Iterator[Figure]:
    """Run them, and ask for them afterwards."""
    with laboratory.lab(nodes=4, cpus=2) as cluster, tempfile.TemporaryDirectory() as folder:
        yield from _measured(cluster, folder, many, workers)


def _measured(cluster: laboratory.Lab, folder: str, many: int, workers: int) -> Iterator[Figure]:
    grid = (f"seed=range({many // 2})", "threads=1,2")
    jobs = (f"cluster.cells_per_job={-(-many // workers)}", f"cluster.parallel={workers}")
    words, what = (*TRIVIAL, *OF_A_SECOND, *grid, *jobs), f"{many:,} cells of 1 s"
    yield Figure(f"{what}: submit", command(cluster, folder, *words, "detach=true").cpu_s, "CPU s", "at most 5")
    to_end = command(cluster, folder, *words)
    yield Figure(f"{what}: to their end", to_end.wall_s, "s")
    yield from of_front(what, to_end)
    yield Figure(f"{what}: each beyond its run", beyond(Path(folder), many), "s", "at most 0.1")
    again = command(cluster, folder, *words)
    yield Figure(f"{what}: the same command again, its report included", again.wall_s, "s")
    submissions = [*Path(folder).glob("results/workers/*/batch.json")]
    assert len(submissions) == 1, f"something was submitted twice: {submissions}"
    for verb in ("status", "status --watch", "report"):
        yield Figure(f"{what}: `{verb}` afterwards", command(cluster, folder, *verb.split()).wall_s, "s")


def beyond(folder: Path, many: int) -> float:
    """Return the mean seconds of a cell beyond its run; each cell must be done, by one run."""
    records = records_of(folder / "results")
    ends = Counter((one["status"], *((run["status"], run["reason"]) for run in one["runs"])) for one in records)
    assert ends == {("done", ("valid", None)): many}, f"cells were lost or repeated: {ends}"
    runs = {one["cell"]["id"]: one["runs"][0] for one in records}
    begun = {cell: dt.datetime.fromisoformat(run["started_utc"]).timestamp() for cell, run in runs.items()}
    batches = [json.loads(path.read_text()) for path in folder.glob("results/workers/*/batch.json")]
    pairs = [pair for batch in batches for cells in batch["cells"] for pair in pairwise(cells)]
    return fmean(begun[later] - begun[cell] - runs[cell]["elapsed_s_with_fork"] for cell, later in pairs)
