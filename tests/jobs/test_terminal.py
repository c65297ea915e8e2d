"""Standard streams that the parent closed, and text of others on those that are open."""

import subprocess
import sys

import pytest

from jobs.terminal import complain


def shell(line, *words):
    return subprocess.run(
        ["sh", "-c", f'exec "$0" {line}', sys.executable, *words], stdout=subprocess.PIPE, check=False
    )


def test_what_runs_on_a_node_can_be_loaded_without_a_standard_error():
    assert shell("-c 'import campaign.worker.__main__, jobs.fork_server, jobs.__main__' 2>&-").returncode == 0


@pytest.mark.parametrize("words", ["-m jobs micro", "-m analysis profile"])
def test_without_a_standard_error_errors_are_not_printed_among_the_figures(words, tmp_path):
    done = shell(f'{words} "$1" 2>&-', tmp_path / "none")

    assert (done.returncode, done.stdout) == (2, b"")


def test_a_file_that_is_opened_takes_the_number_of_no_standard_stream(tmp_path):
    code = "import sys; from jobs.terminal import open_streams; open_streams(); print(open(sys.argv[1], 'w').fileno())"

    done = shell(f'-c "{code}" "$1" <&- 2>&-', tmp_path / "x")

    assert int(done.stdout) > 2


def test_text_of_others_is_shown_and_does_not_act_on_the_terminal(capsys):
    complain("two\nlines\tof é", "see \x9b31m")
    complain("no cure")

    assert capsys.readouterr().err == "error: two\\nlines\tof é\n\nhint: see \\x9b31m\nerror: no cure\n"
