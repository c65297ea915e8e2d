"""Observers begin in the order of their places and end the other way, whatever the run does; each metric has one."""

import pytest

from jobs import run
from jobs.observe.conditions import ConditionsObserver
from jobs.observe.counters import CountersObserver
from jobs.observe.observer import Observer, collect_metrics, run_observers
from jobs.run import list_observers


def test_the_cache_is_first_and_who_looks_at_threads_last_and_none_is_missing():
    found = list_observers()

    places = [each.place for each in found]
    assert places == sorted(places)
    assert [each.__name__ for each in found if "place" not in vars(each)] == []
    assert [found[0].__name__, found[-1].__name__] == ["CacheObserver", "ThreadWaitsObserver"]
    assert found.index(ConditionsObserver) < found.index(CountersObserver), "their cost would be the run's"
    assert len({*found}) == len(found) >= 11


@pytest.mark.parametrize("fails", [False, True])
def test_who_began_last_ends_first_and_hears_whether_the_run_failed(fails):
    heard = []

    class Hears(Observer):
        def start(self):
            heard.append(("start", self.request, len(self.beside)))

        def stop(self, *, failed):
            heard.append(("stop", self.request, failed))

    watching = [Hears(name, None) for name in "ab"]
    try:
        with run_observers(watching):
            heard.append("run")
            assert not fails
    except AssertionError:
        heard.append("failed")

    ends = [("stop", "b", fails), ("stop", "a", fails)]
    assert heard == [("start", "a", 2), ("start", "b", 2), "run", *ends, *["failed"] * fails]


def test_where_one_cannot_begin_those_before_it_end():
    ended = []

    class Fails(Observer):
        def start(self):
            if self.request == "b":
                raise OSError(self.request)

        def stop(self, *, failed):
            ended.append((self.request, failed))

    with pytest.raises(OSError, match="b"), run_observers([Fails(name, None) for name in "abc"]):
        pytest.fail("the run began")
    assert ended == [("a", True)]


def made(name, *gives, **metrics):
    return type(name, (Observer,), {"gives": gives, "metrics": lambda _: metrics})


def test_each_metric_has_one_observer_and_two_of_one_metric_are_refused(monkeypatch):
    real = list_observers()
    keys = [key for each in real for key in each.gives]

    assert len(keys) == len(set(keys)) > len(real)
    monkeypatch.setattr(run, "find_declared", lambda *_: [[made("One", "a", "b"), made("Other", "c", "b")]])
    with pytest.raises(TypeError, match="One and Other both give b"):
        list_observers()


def test_a_metric_that_its_observer_does_not_declare_is_refused():
    good, bad = made("Good", "a", "b", a=1), made("Bad", "c", c=2, d=3)

    assert collect_metrics([good(None, None)]) == {"a": 1}
    with pytest.raises(TypeError, match="Bad gives d, and does not declare it"):
        collect_metrics([each(None, None) for each in (good, bad)])
