"""What a shell completes: verbs, flags, keys and choices, for the console script and for `python -m campaign`."""

import os
import pty
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from campaign.__main__ import run_guarded
from campaign.cli.completion import words_that_may_follow
from campaign.verbs import VERBS

ROOT = Path(__file__).parents[3]
LINES = {
    "tfio-campaign statu": "status",
    "tfio-campaign +pap": "+paper=",
    "tfio-campaign benchmark=alexnet storage=hdd,opt": "storage=hdd,optane",
    "tfio-campaign --dry": "--dry-run",
    "python -m campaign cache=as": "cache=as_is",
    "tfio-campaign storage=./a_fol": "storage=./a_folder",
}
"""Lines, and their last word after the key of completion."""


@pytest.fixture
def completed(tmp_path, monkeypatch):
    """A function that types lines into a shell, each with a tab at its end, and returns what the shell then has."""
    for name, words in {"python": [], "tfio-campaign": ["-m", "campaign"]}.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, *words])} "$@"\n')
        program.chmod(0o755)
    (tmp_path / "a_folder").mkdir()
    (tmp_path / "no_program").touch()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("COMP_LINE", raising=False)

    def type_lines(command, shell, lines):
        # A shell reads on when it has completed: all can be typed at once. Ctrl-A goes to the begin of a line.
        begin = f'eval "$(tfio-campaign -sc install={shell})"\r'
        typed = begin + "".join(f"{line}\t\x01printf '<%s>' \r" for line in lines) + "exit\r"
        child, terminal = pty.fork()
        if not child:
            os.chdir(tmp_path)
            os.execvp(command[0], command)  # noqa: S606
        os.write(terminal, typed.encode())
        shown = b""
        while chunk := _read(terminal):
            shown += chunk
        os.waitpid(child, 0)
        return shown.decode()

    return type_lines


def _read(terminal):
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # the shell has ended
        return b""


@pytest.mark.parametrize(
    ("shell", "command"),
    [("bash", ["bash", "--norc", "--noprofile", "-i"]), ("zsh", ["zsh", "-f", "-i"])],
    ids=["bash", "zsh"],
)
def test_a_shell_completes_a_line(shell, command, completed):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")

    shown = completed(command, shell, [*LINES, "python -c no_prog"])

    for line, last in LINES.items():
        words = [*line.split()[:-1], last]
        assert "".join(f"<{word}>" for word in words) in shown, shown
    assert "<python><-c><no_program>" in shown


def test_all_that_a_first_word_may_be_is_offered(monkeypatch):
    monkeypatch.setenv("COMP_LINE", "")

    found = words_that_may_follow("python -m campaign ")

    assert {*VERBS, "threads=", "storage=", "storage.", "+paper=", "+size=", "site="} <= {*found}
    assert not [word for word in found if word.startswith(("hydra", "declared"))]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("tfio-campaign benchmark=baseline benchmark.eng", ["benchmark.engine="]),
        ("tfio-campaign redo=", ["redo=false", "redo=true"]),
        ("tfio-campaign --json sta", ["stage", "staging=", "stall", "status"]),
        ("tfio-campaign stage ", ["apply", "check", "plan", "undo"]),
        ("tfio-campaign testbed u", ["up"]),
        ("tfio-campaign testbed fill prefet", ["prefetch="]),
        ("tfio-campaign help prefet", ["prefetch"]),
        ("tfio-campaign doctor +siz", ["+size="]),
        ("tfio-campaign +size=s", ["+size=smoke"]),
        ("tfio-campaign --dry", ["--dry-run"]),
        ("tfio-campaign verdicts --str", ["--strict"]),
        ("tfio-campaign status re", []),  # a folder, which the shell knows
        ("tfio-campaign stall -- sta", []),  # a program of the user's
        ("tfio-campaign nothing=1 prefet", ["prefetch="]),
    ],
)
def test_a_word_is_completed_by_what_stands_before_it(line, found, monkeypatch):
    monkeypatch.setenv("COMP_LINE", "")

    assert words_that_may_follow(line) == found


@pytest.mark.parametrize("words", [["-sc"], ["-sc", "install=fish"], ["--shell-completion", "instal=bash"]])
def test_another_shell_is_refused_with_those_that_are_known(words, capsys):
    assert run_guarded(words) == 2

    assert 'eval "$(tfio-campaign -sc install=bash)"' in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_what_is_installed_can_be_taken_away(shell, capsys):
    assert run_guarded(["-sc", f"uninstall={shell}"]) == 0

    assert "_tfio_campaign" in capsys.readouterr().out
