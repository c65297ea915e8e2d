"""What barriers say of the clocks of nodes, and what that does to times."""

from hypothesis import given
from hypothesis import strategies as st

from jobs.events.read_time_logs import read_logs
from tests.jobs.events.logs import REALTIME, event, stream

# Of each barrier, how long after the last one each rank comes, and how long each takes to leave.
BARRIERS = st.lists(st.tuples(*[st.integers(1, 50)] * 3, *[st.integers(1, 9)] * 3), min_size=1, max_size=5)


def passed(barriers, ahead):
    """Return the events of three ranks, by clocks that are so far ahead."""
    now, events = 0, ([], [], [])
    for each in barriers:
        enters = [now + wait for wait in each[:3]]
        leaves = [max(enters) + wait for wait in each[3:]]
        for rank in range(3):
            events[rank].append(event("barrier", enters[rank] + ahead[rank], leaves[rank] + ahead[rank]))
        now = max(leaves)
    return events


def together(folder, events, clocks):
    """Read the logs of ranks with these events, each by the clock of this name."""
    of_ranks = enumerate(zip(events, clocks, strict=True))
    return read_logs(
        [stream(folder / str(n), own, rank=n, ranks=len(events), clock=clock) for n, (own, clock) in of_ranks]
    )


@given(BARRIERS, st.integers(0, 300))
def test_the_true_difference_of_clocks_is_within_the_bounds_of_the_barriers(tmp_path_factory, barriers, ahead):
    """The first two ranks share a clock."""
    log, clocks = together(tmp_path_factory.mktemp("logs"), passed(barriers, (100, 100, ahead)), "ccd")

    assert clocks["d"].low_ns <= ahead - 100 <= clocks["d"].high_ns
    assert clocks["d"].apart_ns == clocks["c"].shift_ns == 0
    enters, leaves = ({rank: own[key] for rank, own in log.events.grouped_by("rank")} for key in ("start", "end"))
    for turn in range(len(barriers)):
        assert max(own[turn] for own in enters.values()) <= min(own[turn] for own in leaves.values())


def test_processes_that_share_a_clock_share_its_time_of_day(tmp_path):
    """The second one began when the time of day had been set by an hour."""
    of = [{"rank": rank, "ranks": 2, "realtime_ns": REALTIME + rank * 10**12} for rank in (0, 1)]
    files = [stream(tmp_path / str(rank), [event("read", 5, 9)], **of[rank]) for rank in (0, 1)]

    assert (read_logs(files)[0].events["start"] - REALTIME).tolist() == [5, 5]


def test_clocks_that_went_apart_are_said_to_have(tmp_path):
    events = (
        [event("barrier", 0, 10), event("barrier", 500, 510)],
        [event("barrier", 0, 10), event("barrier", 600, 610)],
    )
    _, clocks = together(tmp_path, events, "01")

    assert (clocks["1"].apart_ns, clocks["1"].low_ns, clocks["1"].high_ns) == (80, 10, 90)
