"""The mini-application: what it trains on, that it learns, where its time goes, and its two controls."""

import builtins
import contextlib
import math
import os
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import checks
from jobs.benchmarks import accelerator, alexnet
from jobs.benchmarks.alexnet import images_asked
from tests.jobs.jobs_factory import about, make_alexnet_settings, make_settings, truncate, write_classes, write_jpegs

CLASSES = 4
EMULATED = {"accelerator": "emulated", "step_s": 0.0}
LEARNING = {"batch_size": 8, "prefetch": 1, "image_size": 64, "width": 0.25}


def parts(figures):
    return sum(figures[part] for part in alexnet.BENCHMARK.wall_parts)


@pytest.fixture
def paths(tmp_path):
    return write_jpegs(tmp_path / "data", 24)


@pytest.fixture
def train(job, paths):
    def run(names=paths, **changes):
        return job("measure", names=[str(name) for name in names], settings=make_alexnet_settings(**changes))

    return run


@pytest.fixture
def order(job, paths):
    """The files in the order in which seed 1 asks for them."""
    return [paths[index] for index in job("order_of_list", names=[str(path) for path in paths], seed=1)]


@pytest.fixture(scope="module")
def learnable(tmp_path_factory):
    return write_classes(tmp_path_factory.mktemp("learnable"), files=480, classes=CLASSES)


@pytest.fixture(scope="module")
def unlearnable(learnable, tmp_path_factory):
    """The same files, dealt out to the classes at random."""
    folder = tmp_path_factory.mktemp("unlearnable")
    classes = [path.parent.name for path in learnable]
    np.random.default_rng(0).shuffle(classes)
    for name in set(classes):
        (folder / name).mkdir()
    for path, name in zip(learnable, classes, strict=True):
        os.link(path, folder / name / path.name)
    return sorted(folder.rglob("*.jpg"))


def test_it_learns_the_classes_from_the_pixels(train, learnable):
    losses = train(learnable, **LEARNING)["step_loss"]

    assert len(losses) == 60
    assert losses[0] == pytest.approx(math.log(CLASSES))
    assert np.mean(losses[-10:]) < 0.8 * math.log(CLASSES)


def test_it_learns_nothing_where_the_pixels_do_not_tell_the_class(train, unlearnable):
    losses = train(unlearnable, **LEARNING)["step_loss"]

    assert np.mean(losses[-10:]) > 0.95 * math.log(CLASSES)


@pytest.mark.long
def test_equal_seeds_give_equal_losses_and_another_seed_gives_others(train, learnable):
    one, two, other = (train(learnable[::30], seed=seed, dropout=0.5)["step_loss"] for seed in (1, 1, 2))

    assert one == two
    assert one[1:] != other[1:]


@pytest.mark.long
def test_what_the_network_is_like_changes_the_losses(train, learnable):
    others = [{"learning_rate": 1e-2}, {"dropout": 0.7}, {"width": 0.03}, {"image_size": 48}]

    found = [tuple(train(learnable[::30], **changes)["step_loss"]) for changes in ({}, *others)]

    assert len(set(found)) == 5


@pytest.mark.parametrize(
    ("changes", "images", "steps"),
    [
        ({"batch_size": 4}, 24, 6),
        ({"batch_size": 7}, 21, 3),
        ({"batch_size": 24}, 24, 1),
        ({"batch_size": 4, "iterations": 2}, 8, 2),
    ],
)
def test_only_whole_batches_are_trained(train, changes, images, steps):
    figures = train(**changes)

    assert (figures["images"], figures["images_asked"], figures["image_errors"]) == (images, images, 0)
    assert [len(figures[f"step_{each}"]) for each in ("load_s", "compute_s", "loss")] == [steps] * 3


@pytest.mark.parametrize("changes", [{"batch_size": 25}, {"batch_size": 4, "iterations": 7}])
def test_more_than_there_is_is_never_complete(train, changes):
    assert checks.complete(train(**changes), checks.Limits())["passed"] is False


@given(st.integers(1, 10**6), st.integers(1, 10**4))
def test_without_iterations_the_whole_batches_of_one_epoch_are_asked_for_and_at_least_one(files, batch_size):
    asked = images_asked({"iterations": None, "batch_size": batch_size}, files)

    assert asked % batch_size == 0
    assert files - batch_size < asked <= max(files, batch_size)


def test_the_paper_asks_for_9088_of_9144_images():
    settings = {"iterations": None, "batch_size": 64}

    assert images_asked(settings, 9144) == images_asked({**settings, "iterations": 142}, 9144) == 9088


@pytest.mark.parametrize("iterations", [4, 2])
def test_the_files_that_prove_the_cache_are_those_that_are_trained_on(job, paths, iterations):
    settings = make_alexnet_settings(batch_size=5, iterations=iterations)

    promised, delivered = job("requested", names=[str(path) for path in paths], settings=settings)

    assert promised == delivered
    assert len(promised) == iterations * 5


def test_without_iterations_the_files_of_whole_batches_prove_the_cache(job, paths):
    names = [str(path) for path in paths]

    promised, delivered = job("requested", names=names, settings=make_alexnet_settings(batch_size=5))

    assert (promised, len(promised)) == (delivered, 20)


def test_bytes_are_those_of_the_files_that_were_trained_on(train, order):
    assert train(batch_size=5)["bytes_read"] == sum(path.stat().st_size for path in order[:20])


def test_a_file_that_does_not_load_is_counted_and_named_and_the_next_one_moves_up(train, order):
    truncate(order[2])

    figures = train(batch_size=5)

    assert (figures["images"], figures["images_asked"], figures["image_errors"]) == (20, 20, 1)
    assert [bad["file"] for bad in figures["unreadable"]] == [str(order[2])]


def test_a_batch_that_is_no_longer_whole_is_missing_and_its_good_files_are_no_errors(train, order):
    truncate(order[2])

    figures = train(batch_size=4)

    assert (figures["images"], figures["images_asked"], figures["image_errors"]) == (20, 24, 1)
    assert [bad["file"] for bad in figures["unreadable"]] == [str(order[2])]


def test_where_errors_are_not_ignored_the_file_is_named(job, paths, order):
    truncate(order[2])
    settings = make_alexnet_settings(ignore_errors=False, **EMULATED)

    error, words = job("refusal", names=[str(path) for path in paths], settings=settings)

    assert (error, str(order[2]) in words) == ("UnreadableImageError", True)


def test_an_error_of_the_step_is_not_blamed_on_a_file(job, paths):
    settings = make_alexnet_settings(**EMULATED)

    error, words = job("refusal", names=[str(path) for path in paths], settings=settings, step_fails=True)

    assert (error, words) == ("ResourceExhaustedError", "out of memory")


class Batches:
    """Slow batches, and a step that is slow too; notes how long each really took."""

    def __init__(self, steps, startup_s=0.0, load_s=0.0, compute_s=0.0):
        self.steps, self.startup_s, self.load_s, self.compute_s = steps, startup_s, load_s, compute_s
        self.spent = {"startup_s": [], "load_s": [], "compute_s": []}
        self.events = []

    def _take(self, part):
        began = time.perf_counter()
        time.sleep(getattr(self, part))
        self.events.append(part)
        self.spent[part].append(time.perf_counter() - began)

    def __iter__(self):
        self._take("startup_s")
        return self._batches()

    def _batches(self):
        for number in range(self.steps):
            self._take("load_s")
            yield Tensor([number]), Tensor([1000 + number]), None, None

    def step(self, _images, _labels):
        self._take("compute_s")
        return 1.5

    @contextlib.contextmanager
    def watched(self):
        self.events.append("came")
        time.sleep(0.2)
        yield
        time.sleep(0.2)
        self.events.append("went")


class Tensor:
    def __init__(self, values):
        self.copies, self._values = 0, np.array(values)

    def numpy(self):
        self.copies += 1
        return self._values


def measured(batches, watched=None):
    return alexnet._measure(batches, batches.steps, batches.step, watched or contextlib.nullcontext())  # noqa: SLF001


def test_starting_loading_and_computing_are_apart_and_each_is_all_of_it():
    batches = Batches(5, startup_s=0.04, load_s=0.02, compute_s=0.01)

    began = time.perf_counter()
    delivered, figures = measured(batches)
    total = time.perf_counter() - began

    for part, spent in batches.spent.items():
        assert sum(spent) <= figures[part] < sum(spent) + 0.03
    assert all(step >= spent for step, spent in zip(figures["step_load_s"], batches.spent["load_s"], strict=True))
    assert all(step >= spent for step, spent in zip(figures["step_compute_s"], batches.spent["compute_s"], strict=True))
    assert total - 0.03 < figures["wall_s"] <= total
    assert parts(figures) == about(figures["wall_s"])
    assert (delivered, figures["step_loss"]) == ([0, 1, 2, 3, 4], [1.5] * 5)
    assert figures["bytes_read"] == 1000 + 1001 + 1002 + 1003 + 1004


def test_work_that_no_part_names_shows_as_time_that_does_not_add_up(monkeypatch):
    def slow_turns(steps):
        for step in builtins.range(steps):
            time.sleep(0.02)
            yield step

    monkeypatch.setattr(alexnet, "range", slow_turns, raising=False)

    _, figures = measured(Batches(5))

    assert figures["wall_s"] - parts(figures) > 0.09


def test_what_watches_comes_before_the_iterator_and_goes_after_the_last_step_and_is_not_in_the_clock():
    batches = Batches(2)

    _, figures = measured(batches, batches.watched())

    assert batches.events == ["came", "startup_s", "load_s", "compute_s", "load_s", "compute_s", "went"]
    assert figures["wall_s"] < 0.2


@pytest.mark.parametrize("settings", [make_settings(), make_alexnet_settings(**EMULATED)], ids=["micro", "alexnet"])
def test_a_run_is_watched_from_before_the_first_file_to_after_the_last(job, paths, settings):
    names = [str(path) for path in paths]

    before, meanwhile, there_s, wall_s = job(
        "measure_watched", names=names, folder=str(paths[0].parent), settings=settings
    )

    assert (before, meanwhile) == (0, 24)
    assert there_s >= wall_s


@pytest.mark.parametrize("prefetch", [0, 2])
def test_the_parts_of_a_real_run_make_up_its_wall_time(train, prefetch):
    figures = train(prefetch=prefetch, image_size=64)

    assert parts(figures) == about(figures["wall_s"])
    assert min(figures[part] for part in ("startup_s", "load_s", "compute_s", "other_s")) > 0


def test_preparing_a_run_opens_no_file_of_the_dataset(job, paths):
    settings = make_alexnet_settings(prefetch=2)
    names = [str(path) for path in paths]

    before, during = job("opened_before_the_clock", names=names, folder=str(paths[0].parent), settings=settings)

    assert (before, during) == (0, 24)


@pytest.mark.shows("benchmark.control")
def test_without_input_one_batch_is_loaded_before_the_clock_and_none_during_it(job, paths):
    settings = make_alexnet_settings(control="no_io", threads=1)
    names = [str(path) for path in paths]

    before, during = job("opened_before_the_clock", names=names, folder=str(paths[0].parent), settings=settings)

    assert 4 <= before <= 6
    assert during == 0


def test_without_input_every_step_is_trained_and_counted_and_no_byte_is(train):
    figures = train(control="no_io", batch_size=5)

    assert (figures["images"], figures["images_asked"], figures["image_errors"]) == (20, 20, 0)
    assert (figures["bytes_read"], len(figures["step_loss"])) == (0, 4)
    assert parts(figures) == about(figures["wall_s"])


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


@pytest.mark.shows("accelerator.step_s")
def test_an_emulated_step_takes_its_time_and_leaves_the_processor_alone(job, paths):
    settings = make_alexnet_settings(accelerator="emulated", step_s=0.2, control="no_io", iterations=5)

    figures, cpu_s = job("cpu_of_a_run", names=[str(path) for path in paths], settings=settings)

    assert all(0.2 <= step < 0.4 for step in figures["step_compute_s"])
    assert cpu_s < 0.2 * figures["compute_s"]
    assert (figures["accelerator"], figures["step_loss"], figures["parameters"]) == ("emulated", [], 0)


def test_an_emulated_step_takes_the_batch_whole_within_its_time():
    images, labels = Tensor(np.zeros(10)), Tensor(np.zeros(2))

    began = time.perf_counter()
    loss = accelerator.emulated(0.05)(images, labels)

    assert time.perf_counter() - began >= 0.05
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

    assert job("opened_at_each_step", names=names, folder=str(paths[0].parent), settings=settings) == expected


@pytest.mark.shows("accelerator.name")
@pytest.mark.parametrize(
    ("name", "gpus", "expected"),
    [
        ("auto", [], ["cpu", []]),
        ("auto", ["first", "second"], ["gpu", ["first"]]),
        ("cpu", ["first"], ["cpu", []]),
        ("gpu", ["first", "second"], ["gpu", ["first"]]),
        ("emulated", ["first"], ["emulated", []]),
    ],
)
def test_a_gpu_is_taken_where_it_is_wanted_and_hidden_where_not(job, name, gpus, expected):
    assert job("choose", name=name, gpus=gpus) == expected


def test_a_gpu_that_is_not_there_is_told_with_the_cure(job):
    refused, words = job("choose", name="gpu", gpus=[])

    assert refused == "refused"
    assert "TensorFlow finds none here" in words
    assert "nvidia-smi" in words


@pytest.mark.parametrize(
    ("name", "details", "told"),
    [
        ("gpu", {"device_name": "Tesla K80", "compute_capability": (3, 7)}, "gpu (Tesla K80)"),
        ("gpu", {}, "gpu"),
        ("emulated", {"device_name": "Tesla K80"}, "emulated"),
    ],
)
def test_a_gpu_is_told_with_its_model(job, name, details, told):
    assert job("described", name=name, details=details) == told


def test_a_run_says_what_really_computed(train):
    assert train(accelerator="cpu", iterations=1)["accelerator"] == "cpu"


@pytest.mark.parametrize("to_device", [False, True])
def test_a_warm_up_is_called_as_the_steps_of_the_clock_are(job, paths, to_device):
    settings = make_alexnet_settings(prefetch=1, iterations=1, prefetch_to_device=to_device)

    warm_up, step = job("where_steps_are_called", names=[str(path) for path in paths], settings=settings)

    assert warm_up == step
    assert warm_up[0].endswith("CPU:1" if to_device else "CPU:0")
    assert warm_up[3].endswith("CPU:1")


def test_a_loss_that_is_no_number_is_none_and_the_run_does_not_count():
    batches = Batches(3)
    losses = iter([1.5, float("nan"), float("inf")])
    batches.step = lambda *_: next(losses)

    _, figures = measured(batches)

    assert figures["step_loss"] == [1.5, None, None]
    assert checks.finite_loss(figures, checks.Limits())["passed"] is False
    assert checks.finite_loss({"step_loss": [1.5]}, checks.Limits())["passed"] is True


def test_a_file_that_is_not_to_be_passed_over_is_named_without_input_too(job, tmp_path):
    names = [str(path) for path in write_jpegs(tmp_path / "data", 8)]
    truncate(Path(names[0]))
    settings = make_alexnet_settings(control="no_io", ignore_errors=False, batch_size=8)

    assert names[0] in job("complaint_of", names=names, settings=settings)


def test_a_run_leaves_nothing_in_the_temporary_folder(job, paths, tmp_path):
    folder = tmp_path / "temporary"
    folder.mkdir()
    settings = make_alexnet_settings(prefetch=1, prefetch_to_device=True)

    found = job("temporary_files_of_a_run", names=[str(path) for path in paths], folder=str(folder), settings=settings)

    assert found == []


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
