import io
import json
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign import console as talk
from campaign.cluster import progress
from campaign.cluster.cell_state import WorkerState
from campaign.cluster.progress import CellShare, Follower, WatchedWorkers, WorkersPicture
from jobs.model.codes import CellState, wait_sentence
from tests.campaign.fake_template import COLD, failed, figures, invalid
from tests.campaign.on_disk import leave_batch, leave_record
from tests.campaign.work_lists import work_list


@pytest.fixture
def made(cells):
    """Three cells."""
    return cells[0]


@pytest.fixture
def follower(folder, made):
    return Follower(folder, [CellShare(cell.id, 2, 2, cell.settings) for cell in made], warmup_runs=1, token="first")


@pytest.fixture
def write(folder):
    """A function that writes the record of a cell with as many runs, each as the cell; None is one under way."""

    def write(cell, runs, status="running", token="first"):
        made = {"invalid": invalid, "failed": failed}.get(status)
        leave_record(folder, cell, *([made() for _ in runs] if made else runs), status=status, token=token)

    return write


def _over(follower):
    return len(follower.cells) - len(follower.shares_left()), follower.runs_over, follower.runs_total


def test_each_run_is_told_once(follower, made, write):
    before = follower.read_news(), follower.current, _over(follower)
    write(made[0], [figures(1), figures(2), None])

    first, current, second = follower.read_news(), follower.current, follower.read_news()

    assert before == ([], None, (0, 0, 9))
    assert [run["images_per_s"] for _, run in first] == [1, 2]
    assert (current[0], current[1]["run"]) == (made[0].id, 2)
    assert second == []
    assert _over(follower) == (0, 2, 9)


def test_a_cell_that_gave_up_takes_its_missing_runs_out_of_the_total_and_a_requeue_adds_none(follower, made, write):
    write(made[0], [invalid()], "failed")
    follower.read_news()
    assert _over(follower) == (1, 1, 7)
    write(made[1], [figures()] * 3, "done")
    for status, over in (("running", 2), ("done", 3)):
        write(made[2], [figures()] * 5, status)

        follower.read_news()

        assert _over(follower) == (over, 9, 9)
    assert follower.is_finished
    assert not Follower(follower.folder, [], 0, "first").is_finished  # it makes data, and is over when its job is


@pytest.mark.parametrize(
    "change",
    [{"campaign": {"token": "theirs"}}, {"schema": 99}, {"campaign": {}}, None],
    ids=["of an earlier submission", "of a newer version", "of no submission", "damaged"],
)
def test_a_record_that_is_not_ours_or_cannot_be_read_is_no_news(change, follower, folder, made, write):
    write(made[0], [figures()], "done")
    path = folder.record(made[0].id)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}) if change else "{")

    assert (follower.read_news(), _over(follower)[0]) == ([], 0)


def test_runs_of_an_earlier_submission_in_a_record_of_ours_are_no_news(follower, made, write):
    write(made[0], [{**figures(1), "token": "theirs"}, figures(2)])

    assert [run["images_per_s"] for _, run in follower.read_news()] == [2]


@pytest.mark.parametrize(("missing", "runs_total"), [((5, 2), 9), (None, 0)], ids=["listed", "never written"])
def test_a_worker_of_a_batch_is_followed_by_its_work_list(missing, runs_total, folder, made, cells):
    batch = leave_batch(folder, cells=[[made[0].id], [made[1].id, made[2].id]])
    if missing:
        work = work_list(folder, made[1:], cells[1])
        for item, runs in zip(work["cells"], missing, strict=True):
            item["missing"] = runs
        batch.work_list(1).write_text(json.dumps(work))

    found = Follower.of_worker(folder, batch, 1)

    assert [share.cell for share in found.cells] == [made[1].id, made[2].id]
    assert (found.token, found.read_news(), found.runs_total) == ("first", [], runs_total)


def _watched(folder, made):
    lists = {"a": made[:1], "b": made[1:]}
    shares = {key: [CellShare(cell.id, 2, 2, cell.settings) for cell in own] for key, own in lists.items()}
    return WatchedWorkers({key: Follower(folder, own, 1, "first") for key, own in shares.items()})


@pytest.fixture
def watched(folder, made):
    """Two workers: ``a`` with one cell, ``b`` with two."""
    return _watched(folder, made)


def _counts(picture):
    return {state: number for state, number in picture.counts.items() if number}


def _wait(words):
    return {"code": "scheduler", "words": words}


def _ended(code):
    return "ended", None, "", {"code": code}


def _state(phase):
    return WorkerState(*(_ended("GONE") if phase == "ended" else [phase]))


UNDER_WAY, THREE = [figures(), None], [figures()] * 3
# Runs and status of the records of three cells, how their two workers are seen, and what is told of that: counts of
# cells, what is waited for, runs under way, and how many runs are news.
PICTURES = {
    "running": ([], [("running", None, "n1")] * 2, {"running": 2, "queued": 1}, [], [], 0),
    "queued": ([], [("queued", _wait("A")), ("queued", _wait("B"))], {"queued": 3}, ["A", "B"], [], 0),
    "nobody has reported": ([], [("unknown",)] * 2, {"queued": 3}, ["submitted"] * 2, [], 0),
    "runs under way": (
        [(UNDER_WAY, "running"), ([None], "running")], [("running", None, "n1"), ("running", None, "n2")],
        {"running": 2, "queued": 1}, [], [(0, 1, "n1"), (1, 0, "n2")], 1,
    ),
    "left behind": (
        [None, (UNDER_WAY, "running")], [_ended("FAILED"), _ended("CANCELLED")],
        {"failed": 1, "interrupted": 2}, [], [], 1,
    ),
    "outcomes": (
        [(THREE, "done"), (THREE, "invalid"), (THREE, "failed")], [_ended("COMPLETED")] * 2,
        {"done": 1, "invalid": 1, "failed": 1}, [], [], 9,
    ),
    "records of which the scheduler says nothing": (
        [(THREE, "done"), (UNDER_WAY, "running")], [("unknown",)] * 2,
        {"done": 1, "running": 1, "queued": 1}, [], [(1, 1, "")], 4,
    ),
}  # fmt: skip


@pytest.mark.parametrize("told", PICTURES.values(), ids=PICTURES)
def test_records_and_the_scheduler_tell_how_cells_are(told, watched, made, write):
    records, workers, counts, waits, running, news = told
    for cell, recorded in zip(made, records, strict=False):
        if recorded:
            write(cell, *recorded)

    picture = watched.take_picture({key: WorkerState(*seen) for key, seen in zip("ab", workers, strict=True)})

    assert (_counts(picture), [*map(wait_sentence, picture.waits)], len(picture.news)) == (counts, waits, news)
    assert [(cell, run["run"], where) for cell, run, where in picture.running] == [
        (made[number].id, run, where) for number, run, where in running
    ]
    assert (picture.runs_over, picture.runs_total) == (news, 9)
    assert len(watched.finished_workers()) == {9: 2, 4: 1}.get(news, 0)


def test_a_worker_that_was_requeued_keeps_what_is_over_and_waits_with_the_rest(watched, made, write):
    write(made[1], THREE, "done")
    watched.take_picture({"a": WorkerState("running"), "b": WorkerState("running")})

    picture = watched.take_picture({"a": WorkerState("running"), "b": WorkerState("queued", _wait("BeginTime"))})

    assert _counts(picture) == {"running": 1, "done": 1, "queued": 1}
    assert picture.waits == [_wait("BeginTime")]


_SEEN = st.sampled_from(["unknown", "queued", "running", "ended"])
_OUTCOME = st.sampled_from([None, "running", "done", "invalid", "failed"])


@given(story=st.lists(st.tuples(_SEEN, _SEEN, st.lists(_OUTCOME, min_size=3, max_size=3)), min_size=1, max_size=4))
def test_in_every_situation_each_cell_is_counted_once(story, folder, made, write):
    for cell in made:
        folder.record(cell.id).unlink(missing_ok=True)
    watched = _watched(folder, made)

    for one, other, outcomes in story:
        for cell, outcome in zip(made, outcomes, strict=True):
            if outcome:
                write(cell, [figures()] * 3 if outcome != "running" else [None], outcome)
        picture = watched.take_picture({"a": _state(one), "b": _state(other)})

        assert sum(picture.counts.values()) == 3
        assert min(picture.counts.values()) >= 0
        assert picture.counts.keys() <= {*CellState}
        assert picture.runs_over <= picture.runs_total


def test_the_last_look_comes_after_every_worker_has_ended(watched, made, write):
    shown, looks = [], iter([("running", "queued"), ("ended", "running"), ("ended", "ended")])

    def look():
        states = next(looks)
        if states == ("ended", "ended"):
            for cell in made:
                write(cell, [figures()] * 3, "done")
        return {key: _state(phase) for key, phase in zip("ab", states, strict=True)}

    write(made[0], [figures()] * 3, "done")

    progress.show_until_over(watched, look, shown.append, tick_s=0)

    assert len(shown) == 3
    assert _counts(shown[-1]) == {"done": 3}
    told = Counter(cell for picture in shown for cell, _ in picture.news)
    assert told == {cell.id: 3 for cell in made}


KILLED = "killed by signal 9 (SIGKILL)"
INVALID = {"status": "invalid", "reason": COLD}
CELL = "micro-demo-local-t1-b64-p0-0123456789"
OTHER = "micro-demo-local-t2-b64-p0-abcdef0123"


def _run(number=0, role="measured", **changed):
    return {"run": number, "role": role, "status": "running"} | changed


def _picture(news=(), counts=None, reasons=None, running=(), progress=(0, 9)):
    waits = [{"code": "scheduler", "words": reason} for reason in Counter(reasons or {}).elements()]
    return WorkersPicture(list(news), Counter(counts or {}), waits, list(running), *progress)


@pytest.fixture
def terminal(monkeypatch):
    """What a person sees who looks at these pictures on a terminal: the last frame of each, and all lines above it."""

    def see(*pictures, hindrance="", to_go=lambda _: None):
        screen = io.StringIO()
        console = talk.Console(file=screen, force_terminal=True, width=160, height=50, no_color=True)
        monkeypatch.setattr(talk, "stderr", console)
        frames = []
        with progress.open_display(to_go, lambda: hindrance) as show:
            for picture in pictures:
                before = screen.tell()
                show(picture)
                frames.append(re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue()[before:]))
        return frames

    return see


@pytest.fixture
def lines(monkeypatch, capsys):
    """What a log file gets that these pictures are written to."""

    def see(*pictures, hindrances=()):
        monkeypatch.setattr(talk, "stderr", talk.Console(stderr=True, width=200))
        told = iter(hindrances)
        with progress.open_display(lambda _: None, lambda: next(told, "")) as show:
            for picture in pictures:
                show(picture)
        return capsys.readouterr().err.splitlines()

    return see


def test_on_a_terminal_the_cell_the_run_and_the_rate_are_shown_without_markup(terminal):
    news = [(CELL, _run(0, "warmup", **figures(321.0, status="valid"))), (CELL, _run(1, **{**invalid(), **INVALID}))]
    under_way = [(CELL, _run(2), "n[1]"), (OTHER, _run(0, "warmup"), "")]
    picture = _picture(news, {"running": 1, "planned": 2}, running=under_way, progress=(2, 9))

    shown, again = terminal(picture, picture)

    assert re.search(r"micro-demo-local-t1-b64-p0 +run 2 \(measured\) +400 images/s +n\[1\]", shown)
    assert "run 0 (warm-up)" in shown
    assert re.search(r"cells +running 1 +planned 2", again)
    assert "2/9" in shown
    assert "ETA" in shown
    assert f"{CELL} run 1: 400.0 images/s, invalid: cold" in shown
    assert not {"[/]", "[default]"}.intersection(again.split())


def test_on_a_terminal_every_state_that_some_cell_is_in_is_counted_and_no_other_and_of_runs_as_many_as_fit(terminal):
    states = [*CellState]
    counts = {state: number for number, state in enumerate(states, start=1)}
    lists = [[(f"{number}-{CELL}", _run(), "") for number in range(length)] for length in (12, 13, 20)]

    all_of_them, some, fit, one_more, many = terminal(
        _picture(counts=counts), _picture(counts={"done": 8, "failed": 0}), *(_picture(running=runs) for runs in lists)
    )

    assert re.findall(r"([a-z]+) (\d)\b", all_of_them) == [(state, str(counts[state])) for state in states]
    assert re.findall(r"([a-z]+) (\d)\b", some) == [("done", "8")]
    assert [each.count("(measured)") for each in (fit, one_more, many)] == [12] * 3
    assert [re.findall(r"… and (\d+) more", each) for each in (fit, one_more, many)] == [[], ["1"], ["8"]]


def test_on_a_terminal_the_reasons_of_the_queue_are_told_in_slurms_words_unless_there_is_a_hindrance(terminal):
    waiting = _picture(
        counts={"queued": 10}, reasons={"Priority": 2, "ReqNodeNotAvail, UnavailableNodes:[red]n[1-3]": 7}
    )

    (shown,), (hindered,) = terminal(waiting), terminal(waiting, hindrance="nobody answers [red]")

    assert "7 jobs waiting: ReqNodeNotAvail, UnavailableNodes:[red]n[1-3], 2 jobs waiting: Priority" in shown
    assert "nobody answers [red]" in hindered
    assert "Priority" not in hindered


@pytest.mark.parametrize(("seconds", "shown"), [(2820.4, "ETA 0:47:00"), (None, "ETA -:--:--")])
def test_on_a_terminal_the_time_to_go_is_what_is_expected_and_not_the_pace_so_far(seconds, shown, terminal):
    (begun, over) = terminal(_picture(progress=(3, 9)), _picture(progress=(9, 9)), to_go=lambda _: seconds)

    assert shown in begun
    assert shown in over


def test_in_a_log_each_run_has_a_line_with_its_number(lines):
    news = [
        (CELL, _run(0, "warmup", **figures(123.4, status="valid"))),
        (CELL, _run(1, **figures(100, status="valid"))),
    ]

    said = lines(
        _picture(news, progress=(2, 9)),
        _picture([(CELL, _run(2, **failed(), reason=KILLED))], progress=(3, 9)),
    )

    assert said == [
        f"[1/9] {CELL} run 0 (warm-up): 123.4 images/s",
        f"[2/9] {CELL} run 1: 100.0 images/s",
        f"[3/9] {CELL} run 2: no figure, failed: killed by signal 9 (SIGKILL)",
    ]


def test_in_a_log_another_reason_is_a_line_its_end_is_none_and_the_same_is_told_once(lines):
    said = lines(
        *[_picture(counts={"queued": 3}, reasons={"Priority": 3})] * 3,
        _picture(counts={"queued": 2, "running": 1}, reasons={"Resources": 2}),
        *[_picture(counts={"running": 3})] * 4,
        _picture(counts={"queued": 3}, reasons={"Priority": 3}),
        hindrances=[""] * 5 + ["nobody answers", "nobody answers", ""],
    )

    assert said == [
        "cells: 3 queued; 3 jobs waiting: Priority",
        "cells: 1 running, 2 queued; 2 jobs waiting: Resources",
        "cells: 3 running; nobody answers",
    ]
