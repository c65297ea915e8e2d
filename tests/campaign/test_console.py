import io
import os
import pty
import select
import subprocess
import sys

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


_ASKS = "from campaign import console; print(console.agreed('submit?'))"
_TAKES_TERMINAL = "import fcntl, sys, termios; fcntl.ioctl(int(sys.argv[1]), termios.TIOCSCTTY, 0);"
_GOES_TO_THE_BACKGROUND = "import os; os.fork() and os._exit(os.wait()[1]); os.setpgid(0, 0);"


def _asked(*before, typed=""):
    """Ask in a session of its own, with an empty stdin, and stdout and stderr in one pipe; returns what it prints.

    `before`: what the process does first. Returns what the terminal shows, too.
    """
    master, slave = pty.openpty()
    os.write(master, typed.encode())
    words = [sys.executable, "-c", "".join((*before, _ASKS)), str(slave)]
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True,
        start_new_session=True, pass_fds=(slave,), timeout=60,
        env={name: value for name, value in os.environ.items() if name != "CAMPAIGN_YES"},
    )  # fmt: skip
    shown = os.read(master, 1000).decode() if select.select([master], [], [], 0)[0] else ""
    os.close(slave)
    os.close(master)
    return done.stdout.strip(), shown


@pytest.mark.parametrize(("typed", "answer"), [("y\n", "True"), ("yes\n", "True"), ("\n", "False"), ("no\n", "False")])
def test_a_question_is_asked_on_the_controlling_terminal_wherever_stdin_and_stderr_lead(typed, answer):
    printed, shown = _asked(_TAKES_TERMINAL, typed=typed)

    assert printed == answer
    assert "submit? [y/N]" in shown


def test_without_a_terminal_nobody_has_answered():
    assert _asked() == ("None", "")


def test_a_process_in_the_background_is_not_stopped_by_a_question():
    printed, shown = _asked(_TAKES_TERMINAL, _GOES_TO_THE_BACKGROUND, typed="y\n")

    assert printed == "None"
    assert "submit?" not in shown


def test_a_yes_of_the_environment_is_one(monkeypatch):
    monkeypatch.setenv("CAMPAIGN_YES", "1")

    assert console.agreed("submit?") is True


@pytest.mark.parametrize(
    ("number", "noun", "words"),
    [
        (1, "copy", "1 copy"),
        (2, "copy", "2 copies"),
        (0, "try", "0 tries"),
        (3, "cell", "3 cells"),
        (2, "day", "2 days"),
    ],
)
def test_a_noun_stands_in_the_plural_of_english(number, noun, words):
    assert console.counted(number, noun) == words
