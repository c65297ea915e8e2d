"""`python -m analysis timelog`: what it prints, writes and warns of."""

import json

import pytest

from analysis.__main__ import main
from analysis.cli import timelog
from analysis.text import DASH
from tests.jobs.events.logs import REALTIME, event, stream

MS = 1_000_000
PLACES = [(0, -1, -1), (1, 0, 0), (2, 0, 0), (1, 1, 0)]


@pytest.fixture
def files(tmp_path):
    """Two ranks, each with a read of a second in both epochs, half of it behind a compute."""
    return [
        str(stream(
            tmp_path / f"{rank}.timelog",
            [event("read", at * MS, (at + 1000) * MS, place=place, size=5 * MS, file=1) for at, place in
             ((500 * rank, 1), (2000, 2), (4000, 3))] + [event("compute", 4500 * MS, 5500 * MS, thread=2, place=3)],
            at=6000 * MS, places=PLACES, files=["/data/\x1b[2Ja"], rank=rank, ranks=2,
        ))
        for rank in (0, 1)
    ]  # fmt: skip


@pytest.fixture
def told(files, capsys):
    """Return what gives the JSON of the command with these words."""

    def json_of(*words):
        assert main(["timelog", *files, "--json", *words]) == 0
        return json.loads(capsys.readouterr().out)

    return json_of


@pytest.mark.parametrize(("key", "value"), [("rank", "1"), ("phase", "train"), ("epoch", "0")])
def test_a_part_alone_is_what_it_is_in_the_whole(key, value, told):
    whole = told()["read"]["by"][key][value]

    part = told(f"--{key}", value)["read"]

    by = part.pop("by")
    assert part == {name: figure for name, figure in whole.items() if name != "epoch"}
    assert by[key] == {value: whole}
    if key == "rank":
        both = {name: figure for name, figure in by["phase"]["train"].items() if name != "epoch"}
        assert both["union_per_rank"] == {"mean": both["sum_per_rank"], "max": 2.0}
        assert by["phase"]["train"]["epoch"]["1"]["sum_per_rank"] == by["epoch"]["1"]["sum_per_rank"] == 1.0


def test_what_is_missing_or_uncertain_is_said(tmp_path, capsys):
    of = [{"rank": rank, "ranks": 40, "clock": str(rank), "realtime_ns": REALTIME - rank * 5 * MS} for rank in (0, 1)]
    files = [str(stream(tmp_path / f"{rank}", [event("read", 0, 9)], **of[rank])) for rank in (0, 1)]

    assert timelog.main(files) == 0

    said = capsys.readouterr().err
    assert "the logs of 38 of 40 ranks are missing (2, 3, 4, 5, 6, 7, 8, 9, 10, 11)" in said
    assert "rank 1, process 10: the system clock moved by +0.005 s relative to the monotonic clock of the log" in said
    assert "no barrier limits how much the clocks of nodes differ" in said


def test_what_is_shorter_than_a_millisecond_is_written_with_its_power_and_a_log_of_no_sizes_with_dashes(
    tmp_path, capsys
):
    taken = [event("read", 0, 999_999), event("wait", 0, MS), event("open", 0, 0, size=7)]

    assert timelog.main([str(stream(tmp_path / "log", taken, at=2 * MS))]) == 0

    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["read", "1", *["1.0e-03"] * 7] in rows
    assert ["wait", "1", *["0.00100"] * 7] in rows
    assert ["open", "0", "0", "0", "7.00", DASH, DASH, "0.00350"] in rows
