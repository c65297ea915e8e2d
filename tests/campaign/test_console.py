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


@pytest.mark.parametrize(
    ("each_s", "terminal", "said"),
    [
        (0.009, False, []),  # within a second
        (0.1, False, ["checking cells: 10 of 100", "checking cells: 60 of 100"]),  # now and then, in a pipe
        (0.1, True, ["10/100", "50/100", "99/100"]),  # one line that is drawn again and taken away
    ],
)
def test_a_count_that_takes_long_is_told(each_s, terminal, said, clock, monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(console, "stderr", Console(file=out, force_terminal=terminal, width=200))
    for _ in console.iterate_with_progress(range(100), "checking cells"):
        clock.sleep(each_s)

    told = out.getvalue()
    assert all(each in told for each in said)
    assert told.count("\n") <= 2 if terminal else told.splitlines() == said


@pytest.mark.parametrize(
    ("number", "told"), [(0, []), (4, []), (5, []), (6, ["… and 1 more"]), (30, ["… and 25 more"])]
)
def test_of_many_lines_the_first_five_are_said(number, told, capsys):
    lines = [f"line {place} " + "x" * 300 for place in range(number)]

    console.say_first(lines)

    assert capsys.readouterr().err.splitlines() == [*lines[:5], *told]


@pytest.mark.parametrize(("hint", "more"), [("", ""), ("cure\x1b", "\nhint: cure\\x1b\n")])
def test_an_error_is_said_with_its_cure(hint, more, capsys):
    console.print_error("it is [red]broken\n", hint)

    assert capsys.readouterr().err == f"error: it is [red]broken\\n\n{more}"


def test_a_table_has_columns_of_one_width_with_numbers_at_their_right_end():
    assert console.format_table([("a", "b", "c"), ("long", "10", "x"), ("m", "1000", "")], right={1}) == [
        "a        b  c", "long    10  x", "m     1000",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="shorter"):
        console.format_table([("a", "b"), ("c",)])


_ASKS = "from campaign import console; print(console.ask_for_yes('submit?'))"
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


@pytest.mark.parametrize(("typed", "answer"), [("y\n", "True"), (" " * 600 + "yes\n", "True"), ("\n", "False")])
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

    assert console.ask_for_yes("submit?") is True


def test_a_noun_stands_in_the_plural_of_english():
    words = ["1 copy", "2 copies", "0 tries", "3 cells", "2 days"]

    assert [
        console.count_noun(*each) for each in ((1, "copy"), (2, "copy"), (0, "try"), (3, "cell"), (2, "day"))
    ] == words
