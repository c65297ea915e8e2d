"""The clock and the book-keeping of `micro`, against what really happened."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from jobs import ranks
from jobs.benchmarks import images, micro
from jobs.ranks.rank import Rank
from tests.jobs.jobs_factory import Tensor, make_settings, truncate, write_slow_jpeg


@pytest.fixture
def measure(job, paths):
    def run(**changes):
        return job("measure", names=paths, settings=make_settings(**changes))

    return run


@pytest.mark.parametrize(
    ("changes", "images", "steps"),
    [
        ({"batch_size": 7}, 24, 4),
        ({"batch_size": 100}, 24, 1),
        ({"batch_size": 4, "iterations": 3}, 12, 3),
        ({"batch_size": 4, "iterations": 6}, 24, 6),
    ],
)
def test_batch_size_and_iterations_decide_how_much_is_read(measure, paths, changes, images, steps):
    figures = measure(**changes)

    assert (figures["images"], figures["images_asked"], len(figures["step_load_s"])) == (images, images, steps)
    assert (figures["image_errors"], figures["unreadable"]) == (0, [])


def test_dropped_files_before_the_last_one_delivered_are_counted_and_later_ones_are_not(measure, order):
    truncate(order[0])
    truncate(order[3])
    truncate(order[12])  # asked for by one of eight threads, but after the last image that was delivered
    truncate(order[20])

    figures = measure(threads=8, batch_size=4, iterations=2)

    assert (figures["images"], figures["image_errors"], len(figures["step_load_s"])) == (8, 2, 2)
    assert [bad["file"] for bad in figures["unreadable"]] == [order[0].name, order[3].name]
    delivered = [order[place] for place in (1, 2, *range(4, 10))]  # the next ones move up
    assert figures["bytes_read"] == sum(path.stat().st_size for path in delivered)


def test_a_file_that_is_still_under_way_is_no_error(measure, order):
    write_slow_jpeg(order[0])

    figures = measure(threads=4, batch_size=2, iterations=1, deterministic=False)

    assert (figures["images"], figures["image_errors"]) == (2, 0)
    assert figures["bytes_read"] < order[0].stat().st_size


def test_a_dropped_last_file_is_counted_where_the_list_came_to_its_end(measure, order):
    truncate(order[-1])

    figures = measure(batch_size=4, iterations=6)

    assert (figures["images"], figures["image_errors"]) == (23, 1)
    assert figures["unreadable"][0]["file"] == order[-1].name


@pytest.mark.parametrize("bad", [24, 23])
def test_all_unreadable_files_are_counted_and_twenty_named(measure, paths, bad):
    for path in paths[:bad]:
        path.write_bytes(b"no image")

    figures = measure(batch_size=4)

    assert (figures["images"], figures["image_errors"], len(figures["unreadable"])) == (24 - bad, bad, 20)


class Slow(Rank):
    """One of two ranks, which meet by a barrier; the other one has another number of batches."""

    sync = "barrier"

    def __init__(self, clock, others):
        self._clock, self._others, self.met = clock, others, []

    def gather(self, value):
        return [value, self._others]

    def meet(self, tensors):
        self.met.append(self._clock.now())
        self._clock.sleep(0.03)
        return tensors


@pytest.mark.parametrize(("own", "others", "met"), [(2, 2, 2), (2, 5, 5), (3, 2, 3)])
def test_ranks_meet_as_often_as_the_one_with_most_batches_has_one_and_the_first_time_before_the_clock(
    clock, monkeypatch, own, others, met
):
    rank = Slow(clock, others)
    monkeypatch.setattr(ranks, "this_rank", lambda: rank)
    monkeypatch.setattr(images.accelerator, "start_tensorflow", lambda _: "cpu")
    batches = [(Tensor([number]), Tensor([10]), None) for number in range(own)]
    monkeypatch.setattr(micro.ReadingLoop, "build_pipeline", lambda _: batches)
    paths = [Path(str(number)) for number in range(own)]

    figures = micro.ReadingLoop(make_settings(batch_size=1), images.RankImages(Path(), paths, paths)).measure(
        nullcontext()
    )

    assert len(rank.met) == met + 1
    assert [figures[part] for part in ("wall_s", "sync_s")] == pytest.approx([0.03 * met] * 2)
    assert figures["wall_parts"] == ["load_s", "compute_s", "checkpoint_s", "other_s", "sync_s"]
    assert (figures["images"], figures["bytes_read"]) == (own, 10 * own)


def test_with_iterations_the_files_that_prove_the_cache_are_those_surely_asked_for(job, paths):
    requested, delivered = job("requested", names=paths, settings=make_settings(batch_size=4, iterations=2))

    assert requested == delivered
    assert len(requested) == 8


def test_tensorflow_starts_no_thread_before_a_fork_and_puts_no_operation_into_a_function(job):
    before, after, wrapped = job("first_use_of_tensorflow")

    assert after == before
    assert not wrapped
