"""What a rank of a training does with the others, and what must be equal over them afterwards."""

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest

from jobs.events import TimeLog
from jobs.events.spent import Spent
from jobs.ranks.rank import Rank
from jobs.ranks.training_meetings import Meetings, alike


class One(Rank):
    """One of some ranks, which hears twice what it says."""

    def __init__(self, size, sync):
        self.size, self.sync = size, sync

    def meet(self, tensors=()):
        return [2 * each for each in tensors]


@pytest.mark.parametrize(
    ("size", "sync", "actions", "added_up"),
    [
        (3, "none", [], 1),
        (3, "barrier", ["barrier"], 1),
        (3, "allreduce", ["communicate"], 3),
        (1, "ring", ["communicate"], 1),
    ],
)
def test_a_step_is_of_one_action_and_weights_are_compared_where_all_ranks_train_together(size, sync, actions, added_up):
    meetings, weights = Meetings(One(size, sync), Spent()), [np.arange(3.0), np.ones(2)]

    gradients = meetings.step([5])

    assert (gradients, [*meetings.spent.seconds]) == ([10 if actions else 5], actions)
    assert meetings.added_up == added_up
    together = hashlib.sha256(b"".join(each.tobytes() for each in weights)).hexdigest()
    checksum = meetings.checksum(SimpleNamespace(numpy=lambda each=each: each) for each in weights)
    assert checksum == (together if added_up == size else None)


@pytest.mark.parametrize(("size", "logs", "is_logged"), [(2, True, True), (1, True, False), (2, False, False)])
def test_a_barrier_outside_the_clock_is_logged_where_there_are_others_and_a_log(size, logs, is_logged, tmp_path):
    with (
        TimeLog(tmp_path / "log") as log,
        Meetings(One(size, "none"), Spent(log if logs else None)).barrier() as event,
    ):
        assert (event is not None) is is_logged


def test_what_ranks_tell_is_held_against_what_each_was_to_do():
    first, second = "a" * 64, "b" * 64
    reports = [{"steps": steps, "weights": weights} for steps, weights in ((7, first), (6, second), (7, first))]

    found = alike(reports, [7, 8, 9], "2 came twice", "each came once")

    assert found == {
        "equal_steps": {"expected": [7, 8, 9], "found": [7, 6, 7], "message": "steps of each rank: 7, 6 of 7"},
        "every_sample_once": {"expected": "", "found": "2 came twice", "message": "2 came twice"},
        "equal_weights": {
            "expected": [first] * 3,
            "found": [first, second, first],
            "message": "the weights of the ranks are not the same: aaaaaaaaaaaa, bbbbbbbbbbbb",
        },
    }
    fine = alike([{"steps": 7, "weights": None}] * 2, [7, 7], "", "each came once")
    assert (fine["every_sample_once"]["message"], "equal_weights" in fine) == ("each came once", False)
    same = alike([{"steps": 7, "weights": "c"}] * 2, [7, 7], "", "")["equal_weights"]
    assert same["message"] == "the weights of the ranks are the same: c"
