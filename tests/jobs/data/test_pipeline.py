"""Every option of the pipeline provably does something: it is changed, and an effect is seen."""

import itertools
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.data import pipeline
from tests.jobs.jobs_factory import make_alexnet_settings, make_settings, write_classes

CORES = len(os.sched_getaffinity(0))


@pytest.fixture
def names(shared_images):
    return [str(path) for path in sorted(shared_images.iterdir())]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (make_settings(threads=7), 7),
        (make_settings(threads=2 * CORES, private_threads=0), CORES),  # without a private pool the cores are the cap
        (make_settings(threads=8, private_threads=5), 5),
        (make_alexnet_settings(threads=8, prefetch_to_device=True), 8),
    ],
)
def test_threads_is_the_number_of_files_that_are_read_at_once(job, paths, settings, expected):
    if len(paths) < expected:
        pytest.skip("more cores than files")

    assert job("reads_at_once", names=paths, settings=settings, expected=expected) == expected


TO_DEVICE = {"prefetch_to_device": True}


@pytest.mark.parametrize(
    ("make", "changes", "opened"),
    [
        (make_settings, {}, 2 + 1),  # one batch, and the call that is always under way
        (make_settings, {"threads": 4}, 2 + 4),
        (make_settings, {"prefetch": 3}, 4 * 2 + 1),
        (make_alexnet_settings, {**TO_DEVICE, "prefetch": 2}, 3 * 2 + 1),
    ],
)
def test_prefetch_is_the_number_of_batches_made_ahead(job, paths, make, changes, opened):
    settings = make(**{"threads": 1, "batch_size": 2, **changes})

    assert len(job("opened_ahead", names=paths, settings=settings, expected=opened)) == opened


def test_autotune_makes_batches_ahead_that_nobody_asked_for(job, paths):
    settings = make_settings(threads=1, batch_size=2, prefetch=0, autotune=True)

    found = job("opened_ahead", names=paths, settings=settings, expected=4)

    assert len(found) > 2 + 1


def test_the_seed_alone_decides_the_order(job, names):
    orders = {seed: job("order_of_list", names=names, seed=seed, process_seed=0) for seed in (1, 2, 3)}

    assert job("order_of_list", names=names, seed=1, process_seed=0) == orders[1]
    assert all(sorted(order) == list(range(24)) for order in orders.values())
    assert all(first != second for first, second in itertools.combinations(orders.values(), 2))
    assert list(range(24)) not in orders.values()


@pytest.mark.parametrize("deterministic", [True, False])
def test_deterministic_delivery_waits_for_a_late_file_and_other_delivery_lets_others_overtake_it(
    job, paths, deterministic
):
    order = job("order_of_list", names=paths, seed=1)
    settings = make_settings(threads=4, batch_size=1, deterministic=deterministic)

    found = job("order_with_a_late_file", names=paths, late=str(paths[order[0]]), settings=settings)

    assert (found == order) is deterministic
    assert deterministic or found.index(order[0]) > 1
    assert sorted(found) == sorted(order)


FUSED = ["MapAndBatchDataset"]
APART = ["BatchDataset", "ParallelMapDataset"]
SHIELDED = ["BatchDataset", "IgnoreErrorsDataset", "ParallelMapDataset"]
COPIED = ["GeneratorDataset"]


@pytest.mark.parametrize(
    ("make", "changes", "last"),
    [
        (make_settings, {"ignore_errors": False, "map_and_batch_fusion": True}, FUSED),
        (make_settings, {"ignore_errors": False, "map_and_batch_fusion": False}, APART),
        (make_settings, {"ignore_errors": True, "map_and_batch_fusion": False}, SHIELDED),
        (make_settings, {"ignore_errors": False, "prefetch": 2}, ["PrefetchDataset", *APART]),
        (make_alexnet_settings, {"prefetch": 1}, ["PrefetchDataset", *SHIELDED]),
        (make_alexnet_settings, {"ignore_errors": False, "map_and_batch_fusion": True}, FUSED),
        (make_alexnet_settings, {**TO_DEVICE, "prefetch": 1}, ["PrefetchDataset", *COPIED]),
    ],
)
def test_map_and_batch_are_one_step_where_asked_for_and_after_a_copy_to_the_device_comes_what_is_kept_there_alone(
    job, names, make, changes, last
):
    lasts = [each for end in (FUSED, APART, SHIELDED, COPIED) for each in (end, ["PrefetchDataset", *end])]

    assert job("transformations", names=names, settings=make(**changes), lasts=lasts) == [last]


def test_the_payload_has_the_size_that_was_asked_for(job, names):
    batches = job("delivered", names=names, settings=make_settings(image_size=16, batch_size=8))

    assert [batch[2:] for batch in batches] == [[[8, 16, 16, 3], "float32"]] * 3


def test_without_preprocessing_the_payload_is_the_file(job, names):
    found = job("contents", names=names, settings=make_settings(preprocess=False))

    assert [bytes.fromhex(text) for text in found] == [Path(name).read_bytes() for name in names]


def test_png_and_grey_images_are_delivered_as_three_channels(job, tmp_path):
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (40, 30)).save(tmp_path / "a.png")
    image.new("L", (40, 30)).save(tmp_path / "b.jpg")
    names = [str(tmp_path / "a.png"), str(tmp_path / "b.jpg")]

    batches = job("delivered", names=names, settings=make_settings())

    assert [batch[2:] for batch in batches] == [[[2, 32, 32, 3], "float32"]]


folders = st.lists(st.sampled_from(["/a/b", "/a", "/a/b/c", "/a/bc", "/z"]), min_size=1)


@given(folders)
def test_a_class_is_a_folder_and_its_number_the_place_among_the_sorted_ones(folders):
    labels, classes = pipeline.class_labels([f"{folder}/{number}.jpg" for number, folder in enumerate(folders)])

    assert [sorted(set(folders))[label] for label in labels] == folders
    assert classes == len(set(folders))


@pytest.fixture
def classes(tmp_path):
    """Images in three classes, in an order that is not theirs."""
    return [str(path) for path in write_classes(tmp_path / "data", 24, classes=3)][::-1]


@pytest.mark.parametrize("changes", [{"threads": 8}, {**TO_DEVICE, "prefetch": 2}])
def test_a_training_gets_whole_batches_in_the_order_of_the_seed_each_image_with_the_label_of_its_folder(
    job, classes, changes
):
    rows, _ = job("labelled", names=classes, settings=make_alexnet_settings(batch_size=5, **changes))

    assert [index for index, _ in rows] == job("order_of_list", names=classes, seed=1)[:20]
    for index, label in rows:
        expected = [Path(classes[index]).parent.name == f"class_{number:03d}" for number in range(3)]
        assert label == expected


@pytest.mark.parametrize(("changes", "device"), [({}, "CPU:0"), ({**TO_DEVICE, "prefetch": 1}, "CPU:1")])
def test_a_batch_stands_on_the_device_that_computes_where_that_is_asked_for(job, names, changes, device):
    _, found = job("labelled", names=names, settings=make_alexnet_settings(**changes), device="/CPU:1")

    assert found == [device]
