"""The mini-application: what it trains on, that it learns, where its time goes, and its two controls."""

import math
from pathlib import Path

import numpy as np
import pytest

from jobs import checks
from jobs.benchmarks import accelerator, alexnet_network
from jobs.benchmarks.alexnet import AlexNetTraining
from tests.jobs.jobs_factory import Tensor, make_alexnet_settings, make_settings, truncate, write_classes

CLASSES = 4
SMALL = {"image_size": 32, "width": 0.02, "optimizer": "adam"}
EMULATED = {"accelerator": "emulated", "step_s": 0.0}
LEARNING = {"batch_size": 8, "prefetch": 1, "image_size": 64, "width": 0.25}


@pytest.fixture
def train(job, paths):
    def run(names=paths, **changes):
        return job("measure", names=[str(name) for name in names], settings=make_alexnet_settings(**changes))

    return run


@pytest.fixture(scope="module")
def learnable(tmp_path_factory):
    return write_classes(tmp_path_factory.mktemp("learnable"), files=320, classes=CLASSES)


def test_it_learns_the_classes_from_the_pixels(train, learnable):
    losses = train(learnable, **LEARNING)["step_loss"]

    assert len(losses) == 40
    assert losses[0] == pytest.approx(math.log(CLASSES))
    assert np.mean(losses[-10:]) < 0.8 * math.log(CLASSES)


@pytest.mark.long
def test_equal_seeds_give_equal_losses_and_another_seed_gives_others(train, learnable):
    one, two, other = (train(learnable[::30], seed=seed, dropout=0.5)["step_loss"] for seed in (1, 1, 2))

    assert one == two
    assert one[1:] != other[1:]


@pytest.mark.parametrize(
    ("changes", "images", "asked"),
    [
        ({"batch_size": 7}, 21, 21),
        ({"batch_size": 4, "iterations": 2}, 8, 8),
        ({"batch_size": 25}, 0, 25),
        ({"batch_size": 4, "iterations": 7}, 24, 28),
    ],
)
def test_only_whole_batches_are_trained_and_more_than_there_is_is_never_complete(train, changes, images, asked):
    figures = train(**changes, **EMULATED)

    assert (figures["images"], figures["images_asked"], figures["image_errors"]) == (images, asked, 0)
    assert len(figures["step_compute_s"]) == images // changes["batch_size"]
    assert checks.complete(figures, checks.Limits())["passed"] is (images == asked)


@pytest.mark.parametrize(
    ("files", "batch_size", "iterations", "asked"),
    [(9144, 64, None, 9088), (9144, 64, 142, 9088), (63, 64, None, 64), (64, 64, None, 64), (127, 64, None, 64),
     (128, 64, None, 128), (5, 1, None, 5), (5, 3, 7, 21)],
)  # fmt: skip
def test_the_whole_batches_of_an_epoch_are_asked_for_or_so_many_and_at_least_one(files, batch_size, iterations, asked):
    settings = {"iterations": iterations, "batch_size": batch_size, "checkpoint": {"every": 2}}

    assert AlexNetTraining.count_images_read(settings, files) == asked
    assert AlexNetTraining.count_snapshots(
        {**settings, "benchmark": SMALL}, [Path(f"{each % 3}/x") for each in range(files)]
    ) == (
        asked // batch_size // 2,
        alexnet_network.state_bytes(SMALL, min(3, files)),
    )


@pytest.mark.parametrize(("iterations", "images"), [(2, 10), (None, 20)])
def test_the_files_that_prove_the_cache_are_those_that_are_trained_on(job, paths, iterations, images):
    settings = make_alexnet_settings(batch_size=5, iterations=iterations)

    promised, delivered = job("requested", names=paths, settings=settings)

    assert promised == delivered
    assert len(promised) == images


@pytest.mark.parametrize(
    ("batch_size", "images"),
    [(5, (20, 20, 1)), (4, (20, 24, 1))],
    ids=["the next one moves up", "a batch that is not whole is missing, its good files are no errors"],
)
def test_a_file_that_does_not_load_is_counted_and_named(train, order, batch_size, images):
    truncate(order[2])

    figures = train(batch_size=batch_size, **EMULATED)

    assert (figures["images"], figures["images_asked"], figures["image_errors"]) == images
    assert [bad["file"] for bad in figures["unreadable"]] == [order[2].name]


@pytest.mark.parametrize("control", ["none", "no_io"])
def test_where_errors_are_not_ignored_the_file_is_named(job, paths, order, control):
    truncate(order[2])
    settings = make_alexnet_settings(ignore_errors=False, control=control, **EMULATED)

    error, words = job("refusal", names=paths, settings=settings)

    assert (error, str(order[2]) in words) == ("UnreadableImageError", True)


def test_an_error_of_the_step_is_not_blamed_on_a_file(job, paths):
    told = job("refusal", names=paths, settings=make_alexnet_settings(**EMULATED), step_fails=True)

    assert told == ["ResourceExhaustedError", "out of memory"]


@pytest.mark.parametrize(
    ("settings", "files"),
    [
        (make_settings(prefetch=2), [(0, 24)]),
        (make_alexnet_settings(prefetch=2, **EMULATED), [(0, 24)]),
        (make_alexnet_settings(control="no_io", threads=1, **EMULATED), [(4, 0), (5, 0), (6, 0)]),
    ],
    ids=["micro", "alexnet", "without input: one batch is loaded before the clock"],
)
def test_a_run_is_watched_from_before_the_first_file_to_after_the_last(job, paths, settings, files):
    assert tuple(job("measure_watched", names=paths, settings=settings)) in files


def test_without_input_every_step_is_trained_and_counted_and_no_byte_is(train):
    figures = train(control="no_io", batch_size=5)

    assert (figures["images"], figures["images_asked"], figures["image_errors"]) == (20, 20, 0)
    assert len(figures["step_compute_s"]) == len(figures["step_loss"])
    assert (figures["bytes_read"], len(figures["step_loss"])) == (0, 4)
    assert figures["accelerator"] == "cpu"


def test_without_input_a_dataset_without_one_good_batch_is_not_complete(train, paths):
    for path in paths[:22]:
        path.write_bytes(b"no image")

    figures = train(control="no_io", **EMULATED)

    assert (figures["images"], figures["images_asked"], figures["image_errors"]) == (0, 24, 22)


def test_without_computing_the_input_is_all_there_and_nothing_is_trained(train, order):
    figures = train(control="no_compute", batch_size=5)

    assert (figures["images"], figures["bytes_read"]) == (20, sum(path.stat().st_size for path in order[:20]))
    assert (figures["step_loss"], figures["parameters"], figures["state_bytes"]) == ([], 0, 0)
    assert figures["compute_s"] < figures["load_s"]


def test_a_training_says_how_large_its_network_is_and_that_making_it_is_not_in_the_clock(train):
    figures = train(width=0.1)

    assert figures["state_bytes"] == 12 * figures["parameters"] + 8
    assert figures["parameters"] > 1000
    assert figures["build_s"] > figures["compute_s"]


def test_an_emulated_step_takes_its_time_and_leaves_the_processor_alone(job, paths):
    settings = make_alexnet_settings(accelerator="emulated", step_s=0.2, control="no_io", iterations=3)

    figures, cpu_s = job("cpu_of_a_run", names=paths, settings=settings)

    assert min(figures["step_compute_s"]) >= 0.2
    assert cpu_s < 0.5 * figures["compute_s"]
    assert (figures["accelerator"], figures["step_loss"], figures["parameters"]) == ("emulated", [], 0)


def test_an_emulated_step_takes_the_batch_whole_within_its_time(clock):
    images, labels, began = Tensor(np.zeros(10)), Tensor(np.zeros(2)), clock.now()

    loss = accelerator.emulated_step(0.05)(images, labels)

    assert clock.now() - began == pytest.approx(0.05)
    assert (images.copies, labels.copies, loss) == (1, 1, None)


@pytest.mark.parametrize(
    ("prefetch", "expected"),
    [
        (0, [4 + 1, 8 + 1, 12 + 1]),  # what the step has, and the call that is always under way
        (1, [8 + 1, 12 + 1, 16 + 1]),
        (3, [16 + 1, 20 + 1, 24]),
    ],
)
def test_with_prefetch_the_next_batches_are_loaded_while_a_step_computes(job, paths, prefetch, expected):
    settings = make_alexnet_settings(threads=1, prefetch=prefetch, iterations=3, **EMULATED)
    names = [str(path) for path in paths]

    assert job("opened_at_each_step", names=names, settings=settings) == expected


def test_a_gpu_is_taken_where_it_is_wanted_and_hidden_where_not(job):
    cases = [
        ("auto", []), ("auto", ["first", "second"]), ("cpu", ["first"]), ("gpu", ["first", "second"]),
        ("emulated", ["first"]), ("gpu", []),
    ]  # fmt: skip

    assert job("choose", cases=cases) == [
        ["cpu", []], ["gpu", ["first"]], ["cpu", []], ["gpu", ["first"]], ["emulated", []], ["refused", True],
    ]  # fmt: skip


def test_a_gpu_is_told_with_its_model(job):
    k80 = {"device_name": "Tesla K80", "compute_capability": (3, 7)}

    assert job("described", cases=[("gpu", k80), ("gpu", {}), ("emulated", k80)]) == [
        "gpu (Tesla K80)",
        "gpu",
        "emulated",
    ]


@pytest.mark.parametrize("to_device", [False, True])
def test_a_warm_up_is_called_as_the_steps_of_the_clock_are(job, paths, to_device):
    settings = make_alexnet_settings(prefetch=1, iterations=1, prefetch_to_device=to_device)

    warm_up, step = job("where_steps_are_called", names=paths, settings=settings)

    assert warm_up == step
    assert warm_up[0].endswith("CPU:1" if to_device else "CPU:0")
    assert warm_up[3].endswith("CPU:1")


@pytest.mark.parametrize(
    "settings",
    [make_settings(), make_alexnet_settings(prefetch=1, prefetch_to_device=True, **EMULATED)],
    ids=["micro", "alexnet"],
)
def test_a_run_leaves_nothing_in_the_temporary_folder(job, paths, tmp_path, settings):
    folder = tmp_path / "temporary"
    folder.mkdir()
    assert job("temporary_files", names=paths, folder=str(folder), settings=settings) == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {"accelerator": "emulated", "images": 24, "step_loss": []}),
        (["--accelerator", "cpu", "--width", "0.01", "--iterations", "1"], {"accelerator": "cpu", "images": 8}),
        (["--control", "no_io"], {"bytes_read": 0}),
    ],
)
def test_by_hand_each_word_has_its_effect(job, paths, words, expected):
    usual = [str(paths[0].parent), "--batch-size", "8", "--image-size", "32", "--cache", "as_is"]
    emulated = ["--accelerator", "emulated", "--step-s", "0.01"]

    figures, _ = job("by_hand", benchmark="alexnet", words=[*usual, *emulated, *words])

    assert {key: figures[key] for key in expected} == expected


def test_by_hand_a_gpu_that_is_not_there_ends_with_three(job, paths):
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there may be a GPU")

    assert job("by_hand", benchmark="alexnet", words=[str(paths[0].parent), "--accelerator", "gpu"]) == [None, 3]
