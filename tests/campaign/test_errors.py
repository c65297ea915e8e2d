"""What went wrong is told with its cure and its exit code, and several things at once."""

import subprocess
import sys

import pytest

from campaign import errors
from campaign.__main__ import run_guarded
from jobs.parser import nearest_hint

AGAIN = "\n\nhint: fix the problem, then run the same command again: recorded runs are kept\n"
FULL = AGAIN.replace("fix the problem", "the disk is full: free some space")
PRIVATE = "\n\nhint: choose a folder that you may use: campaign_dir=…; campaign folders are private to their owner\n"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (errors.CampaignError("it"), 1, "error: it\n"),
        (errors.NotQuietError("loud", "later"), 1, "error: loud\n\nhint: later\n"),
        (errors.UsageError("wrong", "right"), 2, "error: wrong\n\nhint: right\n"),
        (errors.RefusalsError([("a", "x"), ("b", ""), ("a", "x"), ("c", "x"), ("d", "y")]), 2,
         "error: a; b; c; d\n\nhint: x; y\n"),
        (errors.EnvironmentFaultError("broken", "mend"), 3, "error: broken\n\nhint: mend\n"),
        (errors.SchedulerError("no"), 4, "error: no\n"),
        (OSError(5, "Input/output error", "/f"), 3, f"error: /f: Input/output error{AGAIN}"),
        (OSError("odd"), 3, f"error: odd{AGAIN}"),
        (OSError(28, "No space left on device", "/f"), 3, f"error: /f: No space left on device{FULL}"),
        (PermissionError(13, "Permission denied", "/f"), 3, f"error: /f: Permission denied{PRIVATE}"),
        (KeyboardInterrupt(), 130, ""),
        (None, 7, ""),
    ],
)  # fmt: skip
def test_each_error_has_its_exit_code_and_is_said_without_a_traceback(error, code, said, capsys):
    def act(words):
        assert words == ["a", "b"]
        if error:
            raise error
        return code

    assert run_guarded(["a", "b"], act) == code
    assert capsys.readouterr().err == said


def test_nothing_wrong_is_no_refusal():
    errors.raise_if_refused([])
    with pytest.raises(errors.RefusalsError, match=r"^a$"):
        errors.raise_if_refused([("a", "b")])


def test_a_word_that_is_none_is_met_with_the_nearest_or_with_all_in_their_order():
    legal = ["threads", "runs", "batch_size"]

    assert nearest_hint("treads", legal) == "did you mean 'threads'?"
    assert nearest_hint("zzz", legal, "+") == "legal here: +batch_size, +runs, +threads"


def test_a_reader_that_has_ended_is_no_error():
    command = f"PYTHONUNBUFFERED= {sys.executable} -m campaign --version | :; echo ${{PIPESTATUS[0]}}"

    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)

    assert (done.stdout, done.stderr) == ("141\n", "")
