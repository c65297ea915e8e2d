"""What `why` says of runs that have less than others."""

from __future__ import annotations

import pytest

from campaign import record
from campaign.verbs import why


@pytest.mark.parametrize(
    ("trace", "told"),
    [
        (None, []),
        ({"error": None, "sources": {"dsk/vda": "ok"}}, []),
        ({"error": "No space left on device", "sources": {}}, ["not written: No space left on device"]),
        ({"error": None, "sources": {"llite/x": "not readable"}}, ["llite/x: not readable"]),
    ],
)
def test_a_run_is_told_whatever_its_trace_lacks(trace, told, cells, folder, capsys):
    made = record.new(cells[0][0], {"token": "t", "words": ["threads=1"]}, {"path": "/d", "files": 1, "bytes": 2})
    run = record.begin_run(made, "measured", "t")
    run |= {"status": "failed", "reason": "because", "trace": trace}
    made["status"] = "failed"
    record.write(folder.record(made["cell"]["id"]), made)

    why.main([made["cell"]["id"], str(folder.root)])

    out = capsys.readouterr().out
    assert "  reason       because" in out
    assert [line.split(None, 1)[1] for line in out.splitlines() if line.startswith("  trace ")] == told
