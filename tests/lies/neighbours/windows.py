"""Two counts of one run, which must be over the same time."""

import csv

from tests.lies import setup
from tests.lies.lie import INVALID, VALID, Answer, Expected, lie

_ERROR_S, _ERROR_BYTES = 2e-5, 4096  # two accounts of one reading are equal, but a trace is rounded to 1e-6


@lie(
    "A neighbour reads from the same device all the time, and counters and trace both count it.",
    Expected((VALID,)),
)
def counters_and_trace(workspace):
    disk = workspace.disk(mib=192)
    paths = workspace.images(disk.point / "images", number=16)
    other = disk.point / "other"
    other.write_bytes(bytes(96 << 20))
    setup.call("sync", other)
    setup.repeat(workspace.stack, "dd", f"if={other}", "of=/dev/null", "bs=64k", "iflag=direct")
    answer = workspace.campaign(paths[0].parent, "runs=6")
    counted = [(run["elapsed_s"], run["device_read_bytes"]) for run in workspace.measured()]
    traced = [_traced(workspace, run) for run in workspace.measured()]
    pairs = list(zip(counted, traced, strict=True))
    (count_s, count), (trace_s, trace) = max(pairs, key=lambda pair: abs(pair[0][0] - pair[1][0]))
    agree = all(abs(one[0] - other[0]) <= _ERROR_S and abs(one[1] - other[1]) <= _ERROR_BYTES for one, other in pairs)
    # Whether the runs count beside such a neighbour is not the question here.
    status, complaints = (VALID, ()) if agree else (INVALID, ("counters and trace disagree",))
    answer = Answer(status, complaints, answer.remarks, answer.passed)
    told = (
        f"{count / 1e6:.3f} MB in {count_s:.6f} s by its counters, {trace / 1e6:.3f} MB in {trace_s:.6f} s by its trace"
    )
    return f"the worst run read {told}", answer


def _traced(workspace, run):
    """Return the seconds that the trace of a run covers, and the bytes read from its device meanwhile."""
    file = next(workspace.folder.glob(f"results/records/*/{run['trace']['file']}"))
    groups, columns, *rows = csv.reader(file.read_text().splitlines())
    read, elapsed = groups.index(f"dsk/{run['device']}"), columns.index("s")
    at_s = [float(row[elapsed]) for row in rows]
    return at_s[-1], sum(
        float(row[read]) * (now - then) for row, then, now in zip(rows[1:], at_s, at_s[1:], strict=False)
    )
