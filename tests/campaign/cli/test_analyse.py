"""Only an analysis that wrote a new report has made one."""

import sys

import pytest

from campaign.cli import analyse
from campaign.errors import EnvironmentFaultError

WRITES = "import pathlib, sys; pathlib.Path(sys.argv[-1], 'report.html').write_text('new'); "


@pytest.fixture
def ends(monkeypatch):
    """Have the analysis be a program of one line."""
    return lambda code: monkeypatch.setattr(
        analyse, "python_command", lambda *words: [sys.executable, "-c", code, *words]
    )


@pytest.mark.parametrize("code", [0, 1])
def test_a_new_report_is_one_whatever_was_left_out(code, ends, tmp_path):
    ends(f"{WRITES} sys.exit({code})")

    assert analyse.write_report(tmp_path) == code


def test_a_reader_that_ends_early_ends_the_program_too(ends, tmp_path):
    ends(f"{WRITES} sys.exit(141)")

    with pytest.raises(BrokenPipeError):
        analyse.write_report(tmp_path)


def test_errors_of_its_own_are_handed_on(ends, tmp_path):
    ends("raise SystemExit(2)")

    assert analyse.write_report(tmp_path) == 2


@pytest.mark.parametrize(
    ("code", "end"),
    [
        ("", "with exit code 0"),
        ("raise RuntimeError", "with exit code 1"),
        ("import os; os.kill(os.getpid(), 9)", "by signal 9"),
        (f"{WRITES} import os; os.kill(os.getpid(), 9)", "by signal 9"),
    ],
)
def test_one_that_dies_has_made_none_though_an_old_one_is_there(code, end, ends, tmp_path):
    (tmp_path / "report.html").write_text("old")
    ends(code)

    with pytest.raises(EnvironmentFaultError, match=f"{end} and wrote no report"):
        analyse.write_report(tmp_path)


def test_verdicts_for_programs_are_those_of_the_analysis(ends, tmp_path):
    ends("""print('[{"claim": "x"}]'); raise SystemExit(1)""")

    assert analyse.read_verdicts(tmp_path) == [{"claim": "x"}]

    ends("raise SystemExit(2)")
    with pytest.raises(EnvironmentFaultError, match="could not be judged"):
        analyse.read_verdicts(tmp_path)


def test_a_report_elsewhere_is_looked_for_there(ends, tmp_path):
    ends(f"{WRITES}")
    (tmp_path / "out").mkdir()

    assert analyse.write_report(tmp_path, tmp_path / "out") == 0


def test_a_report_that_another_answer_stands_for_is_made_without_its_notes(ends, tmp_path):
    ends("import pathlib, sys; pathlib.Path(sys.argv[3], 'report.html').write_text(sys.argv[-1])")

    assert analyse.write_report(tmp_path, quiet=True) == 0
    assert (tmp_path / "report.html").read_text() == "--quiet"
