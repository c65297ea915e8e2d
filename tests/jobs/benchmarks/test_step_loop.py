"""The one step loop, against a clock moved by hand: where its time goes, and what those who watch hear of it."""

import contextlib
import errno
from types import SimpleNamespace

import pytest

from jobs import ranks, steps
from jobs.benchmarks import step_loop
from jobs.benchmarks.step_loop import StepLoop, TimeSpent, open_time_spent
from jobs.events import TimeLog
from jobs.events.read_time_logs import read_logs
from jobs.ranks.rank import Rank
from tests.jobs.jobs_factory import HandClock

STEPS = 5


class Pieces(StepLoop):
    """Steps whose parts take their time on a clock moved by hand; notes what happened."""

    wall_parts = ("startup_s", "load_s", "compute_s", "checkpoint_s", "other_s")
    batches = STEPS

    def __init__(self, clock, losses=(1.5,) * STEPS, saver=None, **kwargs):
        super().__init__({"checkpoint": {"every": 2}}, STEPS, **kwargs)
        self.clock, self.happened, self._losses, self.saver = clock, [], iter(losses), saver

    def _take(self, part, seconds):
        self.clock.sleep(seconds)
        self.happened.append(part)

    def prepare(self):
        self._take("prepare", 0.3)

    def begin(self):
        with self.spent.during("startup"):
            self._take("begin", 0.04)

    def next_batch(self):
        self._take("load", 0.02)
        self.batches -= 1
        return None if self.batches < 0 else "batch"

    def step(self, batch):
        assert batch == "batch"
        with self.spent.during("compute"):
            self._take("compute", 0.01)
        return next(self._losses)

    def after(self, number):
        self.clock.sleep(0.005)  # which no part names
        assert number == self.happened.count("compute") - 1

    def finish(self):
        self._take("finish", 0.001)

    def settle(self):
        self._take("settle", 0.4)

    @contextlib.contextmanager
    def watched(self):
        self._take("came", 0.2)
        yield
        self._take("went", 0.2)


class Snapshots:
    """A saver that takes its time."""

    def __init__(self, clock):
        self.clock, self.saved = clock, []

    def after(self, step):
        self.saved.append(step)
        self.clock.sleep(0.1)

    def finish(self):
        self.clock.sleep(0.7)


def test_parts_are_apart_each_is_all_of_it_and_what_no_piece_names_is_other(clock):
    metrics = Pieces(clock).measure(contextlib.nullcontext())

    parts = {"startup_s": 0.04, "load_s": 0.1, "compute_s": 0.05, "checkpoint_s": 0.0, "other_s": 0.026}
    assert {part: metrics[part] for part in parts} == pytest.approx(parts)
    assert metrics["wall_s"] == pytest.approx(sum(parts.values()))
    assert metrics["wall_parts"] == [*parts]
    assert (metrics["step_load_s"], metrics["step_compute_s"]) == (
        pytest.approx([0.02] * STEPS),
        pytest.approx([0.01] * STEPS),
    )


def test_what_watches_comes_before_all_pieces_and_goes_behind_them_and_is_not_in_the_clock(clock):
    pieces = Pieces(clock)
    pieces.here = SimpleNamespace(size=1, sync="none", start=clock.now)
    pieces.here.end = lambda: pieces.happened.append("all ranks have ended")

    pieces.measure(pieces.watched())

    step = ["load", "compute"] * STEPS
    expected = ["came", "prepare", "begin", *step, "finish", "settle", "all ranks have ended", "went"]
    assert pieces.happened == expected


def test_a_run_ends_with_its_batches_and_the_wait_for_none_is_load(clock):
    pieces = Pieces(clock)
    pieces.batches = 2

    metrics = pieces.measure(contextlib.nullcontext())

    assert (len(metrics["step_load_s"]), len(metrics["step_compute_s"])) == (3, 2)
    assert metrics["load_s"] == pytest.approx(0.06)


def test_a_snapshot_is_saved_behind_each_step_and_the_end_waits_for_the_last(clock):
    pieces = Pieces(clock, saver=Snapshots(clock))

    metrics = pieces.measure(contextlib.nullcontext()) | pieces.saving_metrics()

    assert pieces.saver.saved == [1, 2, 3, 4, 5]
    assert [metrics[key] for key in ("checkpoint_s", "checkpoint_finish_s")] == pytest.approx([5 * 0.1 + 0.7, 0.7])
    assert metrics["checkpoints_asked"] == 2
    assert metrics["wall_s"] == pytest.approx(sum(metrics[part] for part in metrics["wall_parts"]))
    assert Pieces(clock).saving_metrics() == {"checkpoint_finish_s": 0.0}


def test_a_loss_that_is_no_number_is_none_and_a_step_without_one_has_none(clock):
    losses = iter([1.5, float("nan"), float("inf"), None, 2.0])

    metrics = Pieces(clock, losses).measure(contextlib.nullcontext())

    assert metrics["step_loss"] == [1.5, None, None, 2.0]


class One(Rank):
    """One of some ranks, which hears twice what it says."""

    def __init__(self, size, sync):
        self.size, self.sync = size, sync

    def meet(self, tensors=()):
        return [2 * each for each in tensors]


@pytest.mark.parametrize(
    ("size", "sync", "actions"),
    [(3, "none", []), (3, "barrier", ["barrier"]), (3, "allreduce", ["communicate"]), (1, "ring", ["communicate"])],
)
def test_a_meeting_is_of_one_action_and_a_part_of_the_wall_time(size, sync, actions, clock, monkeypatch):
    monkeypatch.setattr(ranks, "this_rank", lambda: One(size, sync))
    pieces = Pieces(clock)

    assert [*pieces.meet([5])] == [10 if actions else 5]
    assert [*pieces.spent.seconds] == actions
    assert ("sync_s" in pieces.metrics(1.0)["wall_parts"]) == bool(actions)


@pytest.mark.parametrize(("size", "logs", "barriers"), [(2, True, 2), (1, True, 0), (2, False, 0)])
def test_the_clock_lies_between_two_logged_barriers_where_there_are_other_ranks(
    size, logs, barriers, monkeypatch, tmp_path
):
    monkeypatch.setattr(ranks, "this_rank", lambda: One(size, "none"))
    with TimeLog(tmp_path / "log") as log:
        events, event = [], log.event
        monkeypatch.setattr(log, "event", lambda action, *words, **named: events.append(action) or event(action))
        metrics = Pieces(HandClock(), spent=TimeSpent(log if logs else None)).measure(contextlib.nullcontext())

    assert events.count("barrier") == barriers
    assert metrics["timelog"] == ("log" if logs else None)
    if logs:
        inside = [action for action in events if action != "barrier"]
        assert inside == ["next", "compute"] * STEPS
        assert events[:1] + events[-1:] == (["barrier"] * 2 if barriers else ["next", "compute"])


@pytest.mark.parametrize(("benchmark", "actions"), [("micro", {"next"}), ("alexnet", {"next", "compute"})])
def test_by_hand_a_run_logs_its_steps(job, paths, tmp_path, benchmark, actions):
    file = tmp_path / "a.timelog"
    emulated = ["--accelerator", "emulated", "--step-s", "0.001"] if "compute" in actions else []
    usual = [str(paths[0].parent), "--batch-size", "8", "--image-size", "32", "--cache", "as_is"]

    metrics, _ = job("by_hand", benchmark=benchmark, words=[*usual, *emulated, "--timelog", str(file)])

    log, _ = read_logs([file])
    events = log.events
    assert {log.actions[code] for code in events["kind"].tolist()} == actions
    assert events.with_words("kind", "next")["step"].tolist() == [0, 1, 2]
    assert metrics["timelog"] == "a.timelog"


def test_logs_that_a_killed_run_left_are_removed_and_those_of_others_stay(tmp_path):
    gone, kept = ("a.timelog", "a.timelog.77.timelog"), ("a-rank1.timelog", "a-rank1.timelog.78.timelog", "a1.timelog")
    for name in (*gone, *kept):
        (tmp_path / name).write_text("of before")

    with open_time_spent({"timelog": str(tmp_path / "a.timelog")}) as spent:
        assert spent.log

    assert {path.name for path in tmp_path.iterdir()} == {"a.timelog", *kept}
    assert "of before" not in (tmp_path / "a.timelog").read_text()


def test_a_full_disk_takes_the_log_away_and_not_the_run(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "no space")

    with open_time_spent({"timelog": str(tmp_path / "missing" / "a.timelog")}) as spent:
        assert spent.log is None
    with open_time_spent({"timelog": str(tmp_path / "a.timelog")}) as spent:
        monkeypatch.setattr(TimeLog, "_write", full)
        metrics = Pieces(HandClock(), spent=spent).measure(contextlib.nullcontext())

    assert (metrics["timelog"], len(metrics["step_compute_s"])) == (None, STEPS)


def test_steps_and_their_parts_lie_beside_each_other_where_actions_lie_inside_one_another(clock):
    heard = []

    class Watcher(steps.Watcher):
        def begin(self, number):
            heard.append(number)

        @contextlib.contextmanager
        def part(self, name):
            heard.append(name)
            yield

    class Validating(Pieces):
        def after(self, number):
            with self.spent.during("validate"), self.spent.during("next"):
                pass

    watcher, pieces = Watcher(), Validating(clock)
    pieces.number = 1
    steps.watch_steps(watcher)
    try:
        pieces.measure(contextlib.nullcontext())
    finally:
        steps.unwatch_steps(watcher)

    step = [1, "next", "other", "compute", "other", "validate", "next", "validate", "other"]
    assert heard == ["other", "startup", "other", *step]


def test_the_seconds_of_every_action_of_a_time_log_are_a_part_of_the_wall_time_or_outside_of_it():
    outside = {"open", "wait", "stage", "step"}  # of readers' threads, of whom others wait for, before the clock
    parts = [action for actions in step_loop._PARTS.values() for action in actions]  # noqa: SLF001

    assert sorted(parts) == sorted({*step_loop.ACTIONS, "startup", "other"} - outside)
