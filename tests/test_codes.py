"""What happens is a code: no branch asks what a sentence says, and the exit codes stand in one table."""

import ast
from pathlib import Path

import pytest

from campaign.cli import help as usage
from jobs.model import codes
from jobs.model.codes import ExitCode, JobEnd, RunEnd, Waiting

ROOT = Path(__file__).parents[1]
SENTENCES = {"reason", "reasons", "message", "messages", "why", "hint", "sentence", "last_log_line"}
PARTED = {"startswith", "endswith", "partition", "rpartition", "removeprefix", "removesuffix", "split", "find", "index"}
MATCHED = {"match", "search", "fullmatch", "findall", "finditer", "split"}
# Programs that give a sentence and no code; each is read in one place, which makes a code of it.
READERS = {
    "campaign/config/composer.py": "Hydra's errors have no code",
    "campaign/slurm/scheduler.py": "Slurm's reasons are codes of its own",
    "jobs/model/reading.py": "msgspec's errors have no code",
    "jobs/system/files.py": "TensorFlow's errors say in their text alone that a disk is full",
}


def _is_sentence(node):
    """Whether an expression is a text for people, by its name; of an error, its text."""
    match node:
        case ast.Call(func=ast.Name(id="str" | "repr"), args=[ast.Name(id="error")]):
            return True
        case (
            ast.Call(func=ast.Name(id="str"), args=[inner])
            | ast.Call(func=ast.Attribute(attr="lower" | "strip", value=inner))
        ):
            return _is_sentence(inner)
        case ast.BoolOp(values=values):
            return any(map(_is_sentence, values))
        case (
            ast.Name(id=name)
            | ast.Attribute(attr=name)
            | ast.Subscript(slice=ast.Constant(value=name))
            | ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=name), *_])
            | ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name))
        ):
            return name in SENTENCES
    return False


def _asked(text):
    """Yield where a source compares a sentence, takes it apart, or matches it; whether there is one may be asked."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Compare(left=left, comparators=others):
                sides = [left, *others]
                rest = [side for side in sides if not _is_sentence(side)]
                is_asked = len(rest) < len(sides) and not all(
                    isinstance(side, ast.Constant) and side.value in (None, "") for side in rest
                )
            case ast.Call(func=ast.Attribute(attr=name, value=value), args=arguments):
                of_it = name in PARTED and _is_sentence(value)
                is_asked = of_it or (name in MATCHED and any(map(_is_sentence, arguments)))
            case ast.Match(subject=subject):
                is_asked = _is_sentence(subject)
            case _:
                is_asked = False
        if is_asked:
            yield f"{node.lineno}: {ast.unparse(node)}"


SOURCES = [path for room in ("analysis", "campaign", "jobs") for path in sorted((ROOT / room).rglob("*.py"))]


def test_no_branch_asks_what_a_sentence_says():
    found = {str(path.relative_to(ROOT)): [*_asked(path.read_text(encoding="utf-8"))] for path in SOURCES}

    assert {name: places for name, places in found.items() if places and name not in READERS} == {}
    assert {name for name in READERS if found[name]} == {*READERS}, "no reader any more"


@pytest.mark.parametrize(
    "source",
    [
        'if "run_timeout_s" in str(run["reason"]): pass', 'found = reason == "killed"', 'how = why.startswith("Slurm")',
        "STATE.match(error.message)", 'kind = row["reason"].partition(":")[0]', 'if "full" in str(error): pass',
        '(reason or "").partition("waiting for ")', "match message:\n case 'x': pass", 'batch.last_log_line(1) != "x"',
    ],
)  # fmt: skip
def test_a_branch_that_does_is_found(source):
    assert len([*_asked(source)]) == 1


def test_whether_there_is_a_reason_may_be_asked():
    assert [*_asked('if reason is None or why == "" or not message: print(f"{hint}: {reason}")')] == []


@pytest.mark.parametrize("code", RunEnd)
def test_each_end_of_a_run_has_a_sentence(code):
    end = {"code": code, "number": 9, "limit": 8, "seconds": 3.0, "threads": 4, "cpus": 1.5, "words": "its words"}

    text = codes.run_end_sentence(end)

    assert text
    assert "{" not in text
    assert codes.run_end_sentence({**end, "rank": 1, "late": "2 is late"}) == f"rank 1: {text}; 2 is late"


def test_an_end_that_lacks_what_its_sentence_names_is_odd():
    for end in ({"code": "killed"}, {"code": "exited"}, {"code": "killed", "number": 9999}, {"code": "no such"}):
        with pytest.raises((LookupError, ValueError)):
            codes.run_end_sentence(end)


@pytest.mark.parametrize("code", JobEnd)
def test_each_end_of_a_worker_has_a_sentence_that_names_what_is_known(code):
    end = {"code": code, "exit": 3, "signal": 9, "node": "n1", "words": "its words", "cure": "its cure"}

    text = codes.worker_sentence(end)

    assert "its words" in text
    assert ("its cure" in text) is (code == JobEnd.ERROR)
    assert (f"Slurm: {code}, exit code 3, signal 9 on n1" in text) is (code not in (JobEnd.ERROR, JobEnd.GONE))
    assert codes.run_end_sentence({"code": "worker_ended", "worker": end}) == f"interrupted: {text}"


@pytest.mark.parametrize("code", Waiting)
def test_each_wait_has_a_sentence_and_what_changes_each_moment_comes_last(code):
    wait = {"code": code, "words": "it", "holder": "them", "seconds": 5.0, "now": "2 s so far"}

    assert codes.wait_sentence(wait) == f"{codes.wait_sentence(wait, lasting=True)}; now 2 s so far"


def test_the_help_lists_the_exit_codes_as_the_page_made_of_them_does(capsys):
    usage.main([])
    listed = ", ".join(f"{code:d} {code.meaning}" for code in ExitCode)

    assert f"Exit codes: {listed}." in " ".join(capsys.readouterr().out.split())
