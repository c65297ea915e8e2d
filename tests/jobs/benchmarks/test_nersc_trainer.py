"""What a training does with the other ranks, and what must be equal over them afterwards."""

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest

from jobs.benchmarks.nersc_trainer import NerscTrainer, equality_expectations
from jobs.benchmarks.step_loop import StepLoop
from jobs.ranks.rank import Rank


class Learner:
    """A network whose gradients are the batch itself."""

    inputs = staticmethod(lambda *arrays: arrays)
    gradients = staticmethod(lambda batch: (0.5, [batch]))
    kernels = biases = (SimpleNamespace(numpy=lambda: np.arange(3.0)),)

    def apply(self, applied):
        self.applied = [each.tolist() for each in applied]


class Learning(NerscTrainer):
    """A training of it, without TensorFlow."""

    def __init__(self, rank):
        StepLoop.__init__(self, {}, 1)
        self.here, self.network, self.computes = rank, Learner(), True
        self._zeros = ()


class One(Rank):
    """One of some ranks that all say the same."""

    def __init__(self, size, sync):
        self.size, self.sync = size, sync

    def meet(self, tensors=()):
        return [self.size * each for each in tensors]


@pytest.mark.parametrize(
    ("size", "sync", "applied", "is_compared"),
    [(3, "none", 8.0, False), (3, "barrier", 24.0, False), (3, "allreduce", 8.0, True), (1, "none", 8.0, True)],
)
def test_ranks_learn_from_the_mean_and_weights_are_compared_where_all_train_together(size, sync, applied, is_compared):
    training = Learning(One(size, sync))

    loss = training.step([np.array([8.0])])

    assert (loss, training.network.applied) == (0.5, [[applied]])
    (report,) = training.reports(7, [1, 2])
    together = hashlib.sha256(2 * np.arange(3.0).tobytes()).hexdigest()
    assert report == {"steps": 7, "delivered": [1, 2], "weights": together if is_compared else None}


def test_what_ranks_tell_is_held_against_what_each_was_to_do():
    first, second = "a" * 64, "b" * 64
    reports = [{"steps": steps, "weights": weights} for steps, weights in ((7, first), (6, second), (7, first))]

    found = equality_expectations(reports, [7, 8, 9], "2 came twice", "each came once")

    assert found == {
        "equal_steps": {"expected": [7, 8, 9], "found": [7, 6, 7], "message": "the ranks ran 7, 6 of 7 steps"},
        "every_sample_once": {"expected": "", "found": "2 came twice", "message": "2 came twice"},
        "equal_weights": {
            "expected": [first] * 3,
            "found": [first, second, first],
            "message": "the weights of the ranks are not equal; SHA-256: aaaaaaaaaaaa, bbbbbbbbbbbb",
        },
    }
    fine = equality_expectations([{"steps": 7, "weights": None}] * 2, [7, 7], "", "each came once")
    assert (fine["every_sample_once"]["message"], "equal_weights" in fine) == ("each came once", False)
    same = equality_expectations([{"steps": 7, "weights": "c"}] * 2, [7, 7], "", "")["equal_weights"]
    assert same["message"] == "the weights of the ranks are equal; SHA-256: c"
