"""Ranks meet, tell one another something, and never wait for one that does not come."""

import contextlib
import itertools
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from jobs.channel import ClosedError
from jobs.ranks.hub import Hub
from jobs.ranks.peers import connect
from jobs.ranks.rank import JoinedRank, Rank, RanksError, join_ranks, this_rank
from tests.jobs.jobs_factory import eventually
from tests.jobs.ranks.strangers import SOON_S, silent


@contextlib.contextmanager
def hub_of(size, timeout_s=SOON_S):
    hub = Hub(size, timeout_s)
    try:
        yield hub
    finally:
        hub.close()


def request(hub, rank, sync="none", **changed):
    place = {"rank": rank, "size": hub.size, "sync": sync, "hub": "127.0.0.1", "port": hub.port}
    return {**place, "secret": hub.secret, "address": "127.0.0.1", "timeout_s": hub.timeout_s, **changed}


def each(hub, does, ranks=None, sync="none"):
    """What `does` gives to each rank, or the words of the error that it meets."""

    def one(rank):
        try:
            among = stack.enter_context(contextlib.closing(JoinedRank(request(hub, rank, sync), None)))
            return does(among)
        except RanksError as error:
            return error.message

    with contextlib.ExitStack() as stack, ThreadPoolExecutor(hub.size) as threads:
        return list(threads.map(one, range(hub.size) if ranks is None else ranks))


@pytest.mark.parametrize("size", [2, 5])
def test_each_rank_hears_what_all_say_in_their_order(size):
    with hub_of(size) as hub:
        heard = each(hub, lambda rank: [rank.gather({"of": rank.rank}), rank.gather(rank.rank**2)])

    assert heard == [[[{"of": rank} for rank in range(size)], [rank**2 for rank in range(size)]]] * size


def test_nobody_leaves_a_barrier_before_the_last_one_has_come():
    entered, left = [], []

    def through(rank):
        entered.append(rank.rank)
        rank.barrier()
        left.append(len(entered))

    with hub_of(4) as hub:
        each(hub, through)

    assert left == [4] * 4


def _closes(rank):
    return rank.close() if rank.rank == 1 else rank.barrier()


@pytest.mark.parametrize(
    ("size", "sync", "does", "heard"),
    [
        (3, "none", _closes, ["rank 1 has disconnected", None, "rank 1 has disconnected"]),
        (
            2,
            "none",
            lambda rank: rank.barrier() if rank.rank else rank.gather(1),
            ["the ranks are at different meeting points: rank . at (gather|barrier), rank . at (gather|barrier)"] * 2,
        ),
        (2, "allreduce", lambda rank: rank.meet([np.zeros(rank.rank + 1)]), [r"[^:]+ sizes: \[4, 8\] bytes"] * 2),
    ],
    ids=["one goes", "they do different things", "they add up different things"],
)
def test_who_waits_for_what_does_not_come_hears_why(size, sync, does, heard):
    with hub_of(size) as hub:
        found = each(hub, does, sync=sync)

    assert all(re.fullmatch(words or "None", str(one)) for words, one in zip(heard, found, strict=True))


def test_a_rank_that_never_comes_is_named_in_bounded_time_with_who_came_instead():
    with hub_of(3, timeout_s=3.0) as hub, silent(9, "127.0.0.1", hub.port):
        heard = each(hub, lambda rank: rank.barrier(), ranks=[0, 2])

    why = "rank 1 did not come to the meeting point barrier within 3 s; other processes connected to 127.0.0.1:"
    assert set(heard) == {f"{why}{hub.port}: 127.0.0.1 sent nothing (9 times)"}


def test_who_waits_where_the_hub_goes_is_told():
    with hub_of(2) as hub, ThreadPoolExecutor(1) as threads:
        waits = JoinedRank(request(hub, 0), None)
        waiting = threads.submit(waits.barrier)
        assert eventually(hub.missing)
        hub.close()
        with pytest.raises(RanksError, match="the hub of the ranks has disconnected: the connection was closed"):
            waiting.result(SOON_S)
        waits.close()

    assert hub.late == "rank 1 did not come to the meeting point barrier"


@pytest.mark.parametrize(("size_bytes", "accepted"), [((1 << 32) - 1, True), (1 << 32, False), (-1, False)])
def test_what_ranks_add_up_has_a_size_that_a_message_can_have(size_bytes, accepted):
    with hub_of(1) as hub, contextlib.closing(connect("127.0.0.1", hub.port, hub.secret, SOON_S)) as rank:
        rank.send({"rank": 0})
        rank.send({"at": "sizes", "value": size_bytes})
        answer = rank.receive(SOON_S).value

    fault = {"error": f"the hub cannot sum tensors of these sizes: [{size_bytes}] bytes"}
    assert answer == ({"values": [size_bytes]} if accepted else fault)


def test_a_rank_that_is_late_after_all_have_begun_is_not_given_up():
    with hub_of(2, timeout_s=3.0) as hub:

        def slow(rank):
            rank.start()
            if rank.rank:
                time.sleep(3.6)  # longer than the limit, which is for those who have not begun
            rank.end()

        assert each(hub, slow) == [None, None]
        assert hub.observations[1].ended_s >= 3.6


def test_where_no_rank_came_those_who_did_are_named():
    with hub_of(2, timeout_s=2.0) as hub, silent(9, "127.0.0.1", hub.port):
        assert eventually(lambda: hub.fault)

    assert "no rank connected within 2 s; other processes connected to 127.0.0.1:" in hub.fault


@pytest.mark.parametrize("rank", [-1, 2, "1", None, [0]])
def test_a_process_of_the_job_that_is_no_rank_of_the_run_is_sent_away(rank):
    with hub_of(2) as hub:
        with contextlib.closing(connect("127.0.0.1", hub.port, hub.secret, SOON_S)) as odd:
            odd.send({"rank": rank})
            with pytest.raises(ClosedError):
                odd.receive(SOON_S)

        assert each(hub, lambda rank: rank.gather(rank.rank)) == [[0, 1]] * 2


def gradients(rank):
    """Numbers whose sum depends on the order in which they are added."""
    rng = np.random.default_rng(rank)
    return [rng.normal(size=(300, 7)).astype(np.float32) * 10.0**rank, np.float32(rank), np.ones((0, 3), np.float32)]


@pytest.mark.parametrize("size", [2, 5])
def test_gradients_are_added_in_the_order_of_the_ranks_alike_on_all(size):
    expected = gradients(0)
    for rank in range(1, size):
        expected = [mine + its for mine, its in zip(expected, gradients(rank), strict=True)]

    with hub_of(size) as hub:
        heard = each(
            hub, lambda rank: (rank.meet([]), *(rank.meet(gradients(rank.rank)) for _ in "123")), sync="allreduce"
        )

    assert [nothing for nothing, *_ in heard] == [[]] * size
    for sums in itertools.chain(*(three for _, *three in heard)):
        for found, wanted in zip(sums, expected, strict=True):
            assert (found.shape, found.tobytes()) == (np.shape(wanted), np.asarray(wanted).tobytes())


def test_a_rank_that_sends_more_than_the_model_has_is_not_listened_to():
    def odd(rank):
        rank.meet([np.zeros(10)])
        if rank.rank:
            rank._tell({"at": "sum"}, np.zeros(11, np.float32))  # noqa: SLF001
        return rank.meet([np.zeros(10)])

    with hub_of(2) as hub:
        heard = each(hub, odd, sync="allreduce")

    assert heard[0] == "rank 1 has disconnected"


@pytest.mark.parametrize("left", ["soon", None, 10**400], ids=["word", "none", "huge"])
def test_a_rank_that_began_at_no_time_at_all_has_gone_and_the_others_hear_so(left):
    def odd(rank):
        rank.start()
        if rank.rank:
            rank._tell({"left": left})  # noqa: SLF001
        return rank.barrier()

    with hub_of(2) as hub:
        heard = each(hub, odd)

    assert heard[0] == "rank 1 has disconnected"


def test_a_rank_that_does_not_take_its_answer_keeps_none_of_the_others_waiting():
    model = np.ones(2_500_000, np.float32)  # more than a socket takes unread
    others, done = threading.Barrier(2), threading.Event()

    def step(rank):
        rank.meet([np.zeros(model.size)])
        if rank.rank == 1:
            rank._tell({"at": "sum"}, model)  # noqa: SLF001
            return done.wait(SOON_S)
        total = rank.meet([model])[0][0]
        others.wait(SOON_S)
        done.set()
        return float(total)

    with hub_of(3) as hub:
        assert each(hub, step, sync="allreduce") == [3.0, True, 3.0]


def test_the_hub_bounds_when_each_rank_began_and_how_far_its_clock_is_ahead(monkeypatch):
    real = time.time
    monkeypatch.setattr("jobs.ranks.rank.time.time", lambda: real() + 100)  # the hub's, too: in one process
    with hub_of(3) as hub:
        each(hub, lambda rank: rank.start() and None)
        assert eventually(lambda: all(seen.clock_s for seen in hub.observations))
        each_seen = list(hub.observations)

    for seen in each_seen:
        low, high = seen.clock_s
        assert low <= 0.0 <= high
        assert high - low == pytest.approx(seen.left_s)


def test_one_rank_alone_has_all_and_waits_for_nobody():
    alone = Rank()

    assert alone.share([1, 2, 3]) == [1, 2, 3]
    assert alone.gather("it") == ["it"]
    assert alone.meet([1.0]) == [1.0]
    assert this_rank().size == 1


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_what_ranks_share_is_disjoint_and_complete(size):
    parts = []
    for number in range(size):
        rank = Rank()
        rank.rank, rank.size = number, size
        parts.append(rank.share(list(range(20))))

    assert sorted(item for part in parts for item in part) == list(range(20))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("has_data", [True, False])
def test_ranks_on_one_file_system_share_its_page_cache(has_data, tmp_path):
    with hub_of(2) as hub:

        def private(rank):
            data = {"dataset": str(tmp_path)} if has_data else {}
            with join_ranks({"rank": request(hub, rank), **data}) as among:
                return among.private_caches

        with ThreadPoolExecutor(2) as threads:
            assert list(threads.map(private, range(2))) == [False, False]
