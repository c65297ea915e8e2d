"""The network has the published size, learns, and is the same each time."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.benchmarks.alexnet_network import kernel_shapes

SMALL = {"image_size": 32, "width": 0.1, "learning_rate": 1e-3, "dropout": 0.0, "optimizer": "adam"}
PUBLISHED = {**SMALL, "image_size": 224, "width": 1.0}


@pytest.fixture
def fit(job):
    def run(**changes):
        argument = {"start": 0, "stop": 3, "seed": 0, "classes": 4, "batch_size": 8}
        argument |= {key: value for key, value in changes.items() if key not in SMALL}
        return job("fit", benchmark={**SMALL, **{key: changes[key] for key in SMALL.keys() & changes}}, **argument)

    return run


def test_the_kernels_are_those_that_were_published():
    assert kernel_shapes(224, 1000, 1.0) == [
        (11, 11, 3, 96),
        (5, 5, 96, 256),
        (3, 3, 256, 384),
        (3, 3, 384, 384),
        (3, 3, 384, 256),
        (6 * 6 * 256, 4096),
        (4096, 4096),
        (4096, 1000),
    ]


@given(st.integers(32, 300), st.integers(1, 200), st.floats(0.001, 2))
def test_each_layer_takes_what_the_one_before_it_gives(image_size, classes, width):
    shapes = kernel_shapes(image_size, classes, width)

    gives = [shape[-1] for shape in shapes]
    takes = [shape[-2] for shape in shapes]
    side, rest = divmod(takes[5], gives[4])
    assert (takes[0], takes[1:5], takes[6:], gives[-1]) == (3, gives[:4], gives[5:7], classes)
    assert (rest, math.isqrt(side) ** 2) == (0, side)
    assert min(gives) >= 1


NARROW = [
    *[(11, 11, 3, 24), (5, 5, 24, 64), (3, 3, 64, 96), (3, 3, 96, 96), (3, 3, 96, 64)],
    *[(36 * 64, 1024), (1024, 1024), (1024, 102)],
]


@pytest.mark.parametrize(
    ("width", "expected"), [(1.0, 58_699_238), (0.25, sum(math.prod(shape) + shape[-1] for shape in NARROW))]
)
def test_the_width_multiplies_channels_and_units_and_adam_keeps_two_more_values_of_each_parameter(job, width, expected):
    parameters, state_bytes = job("network_size", classes=102, benchmark={**PUBLISHED, "width": width})

    assert parameters == expected
    assert state_bytes == 3 * 4 * parameters + 8  # and the count of steps


@pytest.mark.parametrize("image_size", [32, 63])
def test_small_images_fit_too(fit, image_size):
    assert len(fit(stop=1, image_size=image_size, width=0.02)["losses"]) == 1


def test_the_first_loss_prefers_no_class_and_the_step_is_traced_once(fit):
    found = fit(stop=3, classes=7)

    assert found["losses"][0] == pytest.approx(math.log(7), rel=1e-6)
    assert found["traces"] == 1


def test_adam_is_adam_and_its_first_gradient_is_known(fit):
    found = fit(stop=5, learning_rate=0.01)
    followed = [[np.array(values) for values in step] for step in found["followed"]]

    assert followed[0][1] == pytest.approx(0.1 * (1 / 4 - np.mean(found["labels"][0], axis=0)), rel=1e-4)
    before = np.zeros(4), np.zeros(4), np.zeros(4)
    for step, (bias, mean, square) in enumerate(followed, start=1):
        gradient = (mean - 0.9 * before[1]) / 0.1
        assert square == pytest.approx(0.999 * before[2] + 0.001 * gradient**2, rel=1e-3)
        change = 0.01 * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
        assert bias == pytest.approx(before[0] - change, rel=1e-3)
        before = bias, mean, square


def test_a_warm_up_leaves_no_trace(job):
    warm, fresh = job("state_after_warm_up", classes=4, batch_size=4, benchmark={**SMALL, "width": 0.02})

    assert warm == fresh
    assert all(np.any(kernel) for kernel in fresh["kernels"][:-1])
    assert (fresh["steps"], np.any(fresh["kernels"][-1])) == ([0], False)


@pytest.mark.parametrize(("dropout", "different"), [(0.5, 3), (0.0, 1)])
def test_dropout_is_another_at_each_step_and_the_same_each_time(job, dropout, different):
    benchmark = {**SMALL, "learning_rate": 0.0, "dropout": dropout}

    losses, again = job("losses_without_learning", classes=4, batch_size=8, benchmark=benchmark)

    assert len(set(losses)) == different
    assert again == losses


@pytest.mark.long
def test_a_training_that_is_restored_goes_on_as_if_nothing_had_happened(fit, tmp_path):
    kept = str(tmp_path / "state")

    whole = fit(stop=6, dropout=0.5)["losses"]
    first = fit(stop=3, dropout=0.5, save=kept)["losses"]
    second = fit(start=3, stop=6, dropout=0.5, restore=kept)["losses"]

    assert first + second == whole
