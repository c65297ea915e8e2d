import io

import pytest
from rich.console import Console

from campaign import console
from tests.campaign.fake_slurm import Clock


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(console, "time", clock)
    return clock


def _counted(number, each_s, clock, monkeypatch, *, terminal):
    out = io.StringIO()
    monkeypatch.setattr(console, "stderr", Console(file=out, force_terminal=terminal, width=200))
    for _ in console.counting(range(number), "checking cells"):
        clock.sleep(each_s)
    return out.getvalue()


def test_what_is_counted_within_a_second_is_done_without_a_word(clock, monkeypatch):
    assert _counted(100, 0.009, clock, monkeypatch, terminal=False) == ""


def test_a_longer_count_is_told_now_and_then_in_a_pipe(clock, monkeypatch):
    said = _counted(100, 0.1, clock, monkeypatch, terminal=False)

    assert said.splitlines() == ["checking cells: 10 of 100", "checking cells: 60 of 100"]


def test_on_a_terminal_one_line_is_drawn_again_and_taken_away(clock, monkeypatch):
    said = _counted(100, 0.1, clock, monkeypatch, terminal=True)

    assert "checking cells" in said
    assert "99/100" in said
    assert said.count("\n") <= 2
