"""Where a run's time goes: parts of its steps, and a time log that has nothing of the run before."""

from contextlib import contextmanager

from jobs import steps
from jobs.events.spent import Spent, logged


def test_logs_that_a_killed_run_left_are_removed_and_those_of_others_stay(tmp_path):
    gone, kept = ("a.timelog", "a.timelog.77.timelog"), ("a-rank1.timelog", "a-rank1.timelog.78.timelog", "a1.timelog")
    for name in (*gone, *kept):
        (tmp_path / name).write_text("of before")

    with logged({"timelog": str(tmp_path / "a.timelog")}) as log:
        assert log

    assert {path.name for path in tmp_path.iterdir()} == {"a.timelog", *kept}
    assert "of before" not in (tmp_path / "a.timelog").read_text()


def test_parts_of_steps_lie_beside_each_other_where_actions_lie_inside_one_another():
    heard = []

    class Watcher:
        @contextmanager
        def part(self, name):
            heard.append(name)
            yield
            heard.append("end")

    watcher, spent = Watcher(), Spent()
    steps.watch(watcher)
    try:
        with spent.during("other"), spent.during("validate"), spent.during("next"):
            pass
    finally:
        steps.unwatch(watcher)

    parts = ("other", "validate", "next", "validate", "other")
    assert heard == [each for part in parts for each in (part, "end")]
