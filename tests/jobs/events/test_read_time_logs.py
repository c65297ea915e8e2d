"""Our own streams: those that are whole, and every way in which one is not."""

import json

import pytest

from jobs.events import read_time_logs
from jobs.events.read_time_logs import read_logs
from jobs.events.table import EventsError
from tests.jobs.events.logs import REALTIME, STARTED, block, end, event, head, stream, write

READ = event("read", 10, 30, size=5, file=1)
GOOD = (
    json.dumps(head(), separators=(",", ":")),
    block([READ], places=[[1, 2, 3]], files=["/data/a"]),
    block([event("compute", 40, 90)], first=1, written_ns=STARTED + 2000),
    end(2, 2000),
)


def changed(line, **keys):
    return [json.dumps({**(json.loads(GOOD[0]) if line == 0 else GOOD[line]), **keys}, separators=(",", ":"))
            if place == line else each for place, each in enumerate(GOOD)]  # fmt: skip


def one(start=10, stop=30, **keys):
    return changed(1, events=block([event("read", start, stop, **keys)])["events"])


def test_a_whole_stream_is_read_in_unix_time(tmp_path):
    log, _ = read_logs([write(tmp_path / "log", *GOOD)])

    assert [log.actions[code] for code in log.events["kind"]] == ["read", "compute"]
    assert (log.events["start"] - REALTIME).tolist() == [10, 40]
    assert (log.events["phase"][0], log.events["epoch"][0], log.events["step"][0]) == (1, 2, 3)
    assert (log.events.words["file"], log.events["file"].tolist(), log.events["bytes"].tolist()) == (
        ["/data/a"],
        [0, -1],
        [5, -1],
    )
    assert (log.streams[0].start_ns - REALTIME, log.streams[0].end_ns - REALTIME) == (0, 2000)


BAD = {
    "line 1: it is no time log": ["{}"],
    "line 1: it is damaged: id is missing": ['{"timelog":1}'],
    "line 1: it was written by a newer version": changed(0, timelog=2),
    "line 1: it is damaged: actions[0] is 'sleep'": changed(0, actions=["sleep"]),
    "line 1: it is damaged: rank is -1": changed(0, rank=-1),
    "line 1: it is no head": changed(0, rank=1),
    "line 2: it is no JSON": [GOOD[0], "{", *GOOD[2:]],
    "line 2: it is no JSON ": [GOOD[0], "[" * 100_000],
    "line 2: it is damaged: written_ns is missing": [GOOD[0], head(), *GOOD[2:]],
    "line 2: it is damaged: places[0][0] is 3": changed(1, places=[[3, 0, 0]]),
    "line 2: it is damaged: places[0] is [1, 0]": changed(1, places=[[1, 0]]),
    "line 2: it has events that are cut off": changed(1, events="QUJD"),
    "line 2: it has events that are cut off or damaged": changed(1, events="!"),
    "line 2: event 0 has no place": one(place=7),
    "line 2: event 0 has no file": one(file=2),
    "line 2: event 0 begins before its log": one(start=-5),
    "line 2: event 0 ends before it begins": one(stop=3),
    "line 2: event 0 ends after it was": one(stop=1001),
    "line 2: it was written earlier than the previous one": changed(1, written_ns=STARTED - 1),
    "line 3: it begins at event 1, and 0 were before it": [*GOOD[:1], block(), *GOOD[2:]],
    "line 3: it begins at event 0, and 1 were before it": [*GOOD[:2], GOOD[1], *GOOD[3:]],
    "line 3: has no end: its process was killed, or still runs": GOOD[:3],
    "line 3: it is cut off": [*GOOD[:2], json.dumps(GOOD[2])[:-9] + "\0"],
    "line 4: it announces 3 events, but the log has 2": changed(3, count=3),
    "line 5: it goes on after its end": [*GOOD, GOOD[0]],
}  # fmt: skip


@pytest.mark.parametrize("why", BAD)
def test_a_stream_that_is_none_is_refused_by_its_line(why, tmp_path):
    file = write(tmp_path / "log", *BAD[why])
    file.write_bytes(file.read_bytes().replace(b"\0\n", b""))

    with pytest.raises(EventsError) as error:
        read_logs([file])

    assert f"{file}, {why.strip()}" in str(error.value)
    assert error.value.hint


def test_of_a_stream_without_an_end_its_whole_lines_are_taken_when_asked_for(tmp_path):
    file = write(tmp_path / "log", *GOOD[:2])
    file.write_bytes(file.read_bytes() + b'{"written_ns":12')

    log, _ = read_logs([file], unfinished=True)

    assert (len(log.events), log.streams[0].end_ns - REALTIME, log.streams[0].moved_ns) == (1, 1000, None)


@pytest.mark.parametrize(
    ("limit", "why"), [("LONGEST_LINE", "more than 100 bytes"), ("MOST_EVENTS", "more than 0 events")]
)
def test_a_stream_beyond_the_bounds_is_refused(limit, why, tmp_path, monkeypatch):
    monkeypatch.setattr(read_time_logs, limit, {"LONGEST_LINE": 100, "MOST_EVENTS": 0}[limit])

    with pytest.raises(EventsError, match=why):
        read_logs([write(tmp_path / "log", *GOOD)])


def test_the_logs_of_one_run_are_told_from_others(tmp_path):
    first = stream(tmp_path / "a", [READ], files=["x"], ranks=2, run="one")

    with pytest.raises(EventsError, match="this log was given twice"):
        read_logs([first, first])
    with pytest.raises(EventsError, match=r"b, line 1: its run is 'two', and that of the first file 'one'"):
        read_logs([first, stream(tmp_path / "b", [], rank=1, ranks=2, run="two")])


def test_two_runs_without_a_name_are_told_by_a_rank_that_begins_again(tmp_path):
    """A rank's processes may come one after the other while another of them goes on."""

    def one(name, at, until, **other):
        return stream(tmp_path / name, [], at=until, started_ns=STARTED + at, **other)

    apart = [one("again", 2000, 3000), one("first", 0, 1000)]
    with pytest.raises(EventsError, match="again: it begins after the other logs of rank 0 have ended") as error:
        read_logs(apart)
    assert "run=NAME" in error.value.hint

    assert len(read_logs([*apart, one("main", 0, 3000)])[0].streams) == 3
    named = [one("a", 0, 1000, run="long"), one("b", 2000, 3000, run="long")]
    assert len(read_logs(named)[0].streams) == 2
    assert len(read_logs([one("c", 0, 1000, ranks=2), one("d", 2000, 3000, rank=1, ranks=2)])[0].streams) == 2
