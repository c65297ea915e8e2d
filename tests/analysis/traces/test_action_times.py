"""Each definition and the budget, against a grid of single nanoseconds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import AnalysisError
from analysis.traces import action_times
from analysis.traces.action_times import Definitions
from jobs.events.read_time_logs import read_logs
from jobs.events.run_log import UNACCOUNTED, time_budgets
from jobs.events.time_log import ACTIONS, PHASES
from tests.jobs.events.logs import event, stream

PLACES = ((0, -1, -1), (1, 0, 0), (1, 1, 0), (2, 1, 0))
RANKS, WALL, EARLY = 3, 40, (3, 7, 0)  # each rank begins at a moment of its own
EVENTS = st.lists(
    st.tuples(
        st.integers(0, RANKS - 1), st.integers(1, 2), st.sampled_from(["read", "compute", "next"]),
        st.integers(0, 20), st.integers(0, 8), st.integers(0, len(PLACES) - 1), st.integers(0, 100),
    ),
    max_size=12,
)  # fmt: skip


def logged(folder, events):
    """Write (rank, thread, action, start, length, place, size) as the logs of three ranks, and read them."""
    files = []
    for rank in range(RANKS):
        own = [
            event(action, start, start + length, thread=thread, place=place, size=size)
            for of, thread, action, start, length, place, size in events if of == rank
        ]  # fmt: skip
        files.append(stream(folder / f"{rank}", own, at=WALL, early=EARLY[rank], places=PLACES, rank=rank, ranks=RANKS))
    return read_logs(files)[0]


def cells(events, rank=None):
    return {
        cell for of, _, _, start, length, *_ in events for cell in range(start, start + length) if rank in (None, of)
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("logs")


@given(EVENTS)
def test_every_definition_is_what_the_grid_has(folder, events):
    log = logged(folder, events)
    found = Definitions(log).of_actions(log.events)

    assert set(found) == {each[2] for each in events}
    for action, figures in found.items():
        own = [each for each in events if each[2] == action]
        check(figures, own, events, range(RANKS))
        for phase, part in figures["by"]["phase"].items():
            here = [each for each in own if PHASES[PLACES[each[5]][0]] == phase]
            check(part, here, events, range(RANKS))
            for epoch, each_epoch in part["epoch"].items():
                check(each_epoch, [each for each in here if PLACES[each[5]][1] == int(epoch)], events, range(RANKS))
        for epoch, part in figures["by"]["epoch"].items():
            check(part, [each for each in own if PLACES[each[5]][1] == int(epoch)], events, range(RANKS))
        for rank, part in figures["by"]["rank"].items():
            check(part, [each for each in own if each[0] == int(rank)], events, [int(rank)])


def check(figures, own, events, ranks):
    computing = [each for each in events if each[2] == "compute"]
    unions = [len(cells(own, rank)) for rank in ranks]
    exposed = [len(cells(own, rank) - cells(computing, rank)) for rank in ranks]
    epochs = {max(0, PLACES[each[5]][1]) for each in own}
    lengths, size = sorted(each[4] for each in own), sum(each[6] for each in own)
    in_ns = {
        "sum_per_rank": sum(lengths) / len(ranks), "union_all": len(cells(own)), "p50": lengths[(len(own) - 1) // 2],
        "union_epochs": sum(len(cells([o for o in own if max(0, PLACES[o[5]][1]) == epoch])) for epoch in epochs),
    }  # fmt: skip

    assert {key: figures[key] * 1e9 for key in in_ns} == pytest.approx(in_ns)
    for key, values in (("union_per_rank", unions), ("exposed", exposed)):
        assert figures[key]["mean"] * 1e9 == pytest.approx(sum(values) / len(values))
        assert figures[key]["max"] * 1e9 == pytest.approx(max(values))
    assert (figures["count"], figures["bytes"]) == (len(own), size)
    over = {"union_all": len(cells(own)), "sum": sum(lengths), "wall": WALL + max(EARLY)}
    assert figures["bytes_per_s"] == {
        key: pytest.approx(size * 1e9 / time) if time else None for key, time in over.items()
    }


@given(EVENTS)
def test_a_budget_gives_each_moment_to_the_innermost_event_of_the_thread_that_matters_most(folder, events):
    for each in time_budgets(logged(folder, events), range(RANKS)):
        spent = dict.fromkeys((*ACTIONS, UNACCOUNTED), 0)
        for cell in range(-EARLY[each.rank], WALL):
            inner = [
                max(around, key=lambda one: (one[0], -one[1]))[2]
                for thread in (1, 2)
                if (around := [
                    (start, length, action) for rank, of, action, start, length, *_ in events
                    if rank == each.rank and of == thread and start <= cell < start + length
                ])
            ]  # fmt: skip
            spent[min(inner, key=ACTIONS.index, default=UNACCOUNTED)] += 1

        assert sum(each.spent_ns.values()) == each.end_ns - each.start_ns == WALL + EARLY[each.rank]
        assert {**dict.fromkeys(spent, 0), **each.spent_ns} == spent


def test_an_event_without_a_size_leaves_bytes_unknown(tmp_path):
    log = read_logs([stream(tmp_path / "log", [event("read", 0, 5, size=4), event("read", 5, 9)])])[0]

    assert Definitions(log).of_actions(log.events)["read"]["bytes"] is None


def test_of_many_epochs_the_first_are_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(action_times, "MOST_EPOCHS", 2)
    places = [(1, epoch, 0) for epoch in range(4)]
    log = read_logs(
        [stream(tmp_path / "log", [event("read", at, at + 1, place=at) for at in range(4)], places=places)]
    )[0]

    found = Definitions(log).of_actions(log.events)["read"]

    assert [*found["by"]["epoch"]] == [*found["by"]["phase"]["train"]["epoch"]] == ["0", "1"]
    assert (found["count"], found["union_epochs"]) == (4, 4e-9)


def test_an_action_that_is_not_there_exposes_nothing(tmp_path):
    log = read_logs([stream(tmp_path / "log", [event("read", 0, 5)])])[0]

    with pytest.raises(AnalysisError, match="the logs have no action 'Train'"):
        Definitions(log, "Train")
