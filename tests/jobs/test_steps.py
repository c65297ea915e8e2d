"""The steps of a run, as those who watch them hear of them."""

from contextlib import contextmanager

import pytest

from jobs import steps


@pytest.mark.parametrize("number", range(4))
def test_each_watcher_hears_of_the_parts_of_a_step_until_it_watches_no_more(number):
    heard = []

    class Watcher:
        def __init__(self, name):
            self.name = name

        @contextmanager
        def part(self, part):
            heard.append((self.name, part))
            yield
            heard.append((self.name, "end"))

    watchers = [Watcher(name) for name in range(number)]
    for watcher in watchers:
        steps.watch_steps(watcher)
    try:
        with steps.step_part("next"):
            assert heard == [(name, "next") for name in range(number)]
    finally:
        for watcher in watchers:
            steps.unwatch_steps(watcher)
    with steps.step_part("compute"):
        pass

    assert sorted(heard[number:]) == [(name, "end") for name in range(number)]


def test_steps_are_told_until_the_loop_ends():
    heard = []

    class Watcher:
        def begin(self, number):
            heard.append(("begin", number))

        def end(self, number):
            heard.append(("end", number))

    watcher = Watcher()
    steps.watch_steps(watcher)
    try:
        for number in steps.marked_steps(range(5)):
            if number == 1:
                break
    finally:
        steps.unwatch_steps(watcher)

    assert heard == [("begin", 1), ("end", 1), ("begin", 2), ("end", 2)]
    assert list(steps.marked_steps(range(3))) == [0, 1, 2]


@pytest.mark.parametrize(("text", "expected"), [("all", (1, float("inf"))), ("5-15", (5, 15)), ("3-3", (3, 3))])
def test_a_window_is_its_first_and_last_step(text, expected):
    assert steps.step_window(text) == expected


@pytest.mark.parametrize("text", ["", "5", "0-3", "9-3", "-3", "3-", "1-2-3", "a-b", "+1-2", "²-3", "01-2", "1 - 2"])
def test_other_words_are_no_window(text):
    with pytest.raises(ValueError, match="not a range of steps"):
        steps.step_window(text)
