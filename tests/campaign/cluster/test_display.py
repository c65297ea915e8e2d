import io
import re
from collections import Counter

import pytest

from campaign import console as talk
from campaign.cluster import display
from campaign.cluster.progress import Picture
from jobs.model.codes import CellState
from tests.campaign.fake_template import COLD, failed, figures, invalid

KILLED = "killed by signal 9 (SIGKILL)"
INVALID = {"status": "invalid", "reason": COLD}
CELL = "micro-demo-local-t1-b64-p0-0123456789"
OTHER = "micro-demo-local-t2-b64-p0-abcdef0123"


def _run(number=0, role="measured", **changed):
    return {"run": number, "role": role, "status": "running"} | changed


def _picture(news=(), counts=None, reasons=None, running=(), progress=(0, 9)):
    waits = [{"code": "scheduler", "words": reason} for reason in Counter(reasons or {}).elements()]
    return Picture(list(news), Counter(counts or {}), waits, list(running), *progress)


@pytest.fixture
def terminal(monkeypatch):
    """What a person sees who looks at these pictures on a terminal: the last frame of each, and all lines above it."""

    def see(*pictures, hindrance="", to_go=lambda _: None):
        screen = io.StringIO()
        console = talk.Console(file=screen, force_terminal=True, width=160, height=50, no_color=True)
        monkeypatch.setattr(talk, "stderr", console)
        frames = []
        with display.display(to_go, lambda: hindrance) as show:
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
        with display.display(lambda _: None, lambda: next(told, "")) as show:
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
        "cells: 3 queued; 3 jobs waiting: Priority",
    ]
