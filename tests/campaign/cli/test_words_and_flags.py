"""Flags and keys are told from each other by one rule (docs/reference/commands.md), in all verbs."""

import re
import subprocess
import sys

import pytest

from analysis import __main__ as analysis
from campaign.__main__ import run_guarded
from campaign.config import reference
from campaign.verbs import VERBS
from jobs.__main__ import main as run_by_hand
from jobs.parser import ProgramParser, exit_code_of, put_verb_first

SAME = {
    "--json": "",
    "--dry-run": "",
    "--yes": "",
    "--only": " CELL",
    "--out": " DIR",
    "--config-dir": " DIR",
    "--junit": " FILE",
    "--chrome": " FILE",
}
"""Flags that several verbs have, each with its value."""
SET_BY_A_VERB = {("stall", "--runs"), ("feed", "--runs")}
ENDED_EARLY = [
    "campaign help keys",
    "campaign --help",
    "campaign status --help",
    "campaign threads=1 --dry-run --json",
    "analysis --help",
    "analysis timelog --help",
    "jobs --help",
    "jobs.burst_buffer --help",
]


@pytest.fixture(scope="module")
def helps():
    """The help of each verb of the campaign and of the analysis."""
    verbs = [
        *(("campaign", verb) for verb in VERBS if verb != "help"),
        *(("analysis", verb) for verb in analysis.VERBS),
    ]
    words = [[*verb, "--help"] for verb in verbs] + [
        ["campaign", "stage", verb, "--help"] for verb in ("plan", "apply")
    ]
    started = {
        tuple(each[:-1]): subprocess.Popen([sys.executable, "-m", *each], stdout=subprocess.PIPE, text=True)
        for each in words
    }
    return {verb: process.communicate()[0] for verb, process in started.items()}


def test_a_flag_of_several_verbs_has_the_same_value_in_each(helps):
    for verb, text in helps.items():
        for flag, value in SAME.items():
            assert {*re.findall(rf"{flag}\b( (?:[A-Z]+|\.\.\.))?(?=[\s,\]|]|$)", text)} <= {value, ""}, (verb, flag)


def test_a_key_of_the_campaign_is_no_flag_of_a_verb(helps):
    keys = {key.partition(".")[0] for key in reference.list_keys() if "." not in key}
    found = {
        (verb[1], flag)
        for verb, text in helps.items()
        for flag in re.findall(r"(?<!\S)--[\w-]+", text)
        if verb[0] == "campaign" and flag.strip("-").replace("-", "_") in keys
    }

    assert found == SET_BY_A_VERB


@pytest.mark.parametrize(
    ("words", "refused", "meant"),
    [
        (["status", "--jsn"], "unknown flag '--jsn'", "did you mean '--json'?"),
        (["status", "--js"], "unknown flag '--js'", "did you mean '--json'?"),
        (["clean", "--unusd"], "unknown flag '--unusd'", "did you mean '--unused'?"),
        (["clean", "--dry-run"], "unknown flag '--dry-run'", "legal here: --config-dir"),
        (["doctor", "--only", "x"], "unknown flag '--only'", "did you mean '--json'?"),
        (["measure", "--dta=x", "."], "unknown flag '--dta'", "did you mean '--data'?"),
        (["stage", "plan", "--fast=.", "--capacty=1GB"], "unknown flag '--capacty'", "did you mean '--capacity'?"),
        (["stage", "aply"], "invalid choice: 'aply'", "python -m campaign stage --help"),
        (["show"], "required: CELL|FILE", "python -m campaign show --help"),
        (["status", "a", "b"], "unrecognized arguments: b", "python -m campaign status --help"),
        (["--jsn", "status"], "unknown flag '--jsn'", "did you mean '--json'?"),
        (["--", "--json"], "'--json' is neither a verb nor KEY=VALUE", ""),
        (["stall", "runs=3", "--", "true"], "runs=…: stall itself sets that", "--runs N"),
        (["stall", "--rns=3", "--", "true"], "unknown flag '--rns'", "did you mean '--runs'?"),
        (["testbed", "up", "--dryrun"], "unknown flag '--dryrun'", "did you mean '--dry-run'?"),
        (["report", "--out"], "expected one argument", "python -m campaign report --help"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_a_wrong_flag_is_named_with_its_cure(words, refused, meant, capsys):
    assert run_guarded(words) == 2

    error, _, hint = capsys.readouterr().err.partition("\n\nhint: ")
    assert error.startswith("error: ")
    assert refused in error
    assert meant in hint


@pytest.mark.parametrize(
    ("program", "words", "meant"),
    [
        (analysis.main, ["profile", "--jason", "x"], "'--json'"),
        (analysis.main, ["x", "--quite"], "'--quiet'"),
        (run_by_hand, ["micro", "x", "--thread", "3"], "'--threads'"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_the_other_programs_do_so_too(program, words, meant, capsys):
    assert exit_code_of(lambda: program(words)) == 2

    assert capsys.readouterr().err.endswith(f"\n\nhint: did you mean {meant}?\n")


@pytest.mark.parametrize(
    ("words", "ordered"),
    [
        (["--json", "status", "a"], ["status", "--json", "a"]),
        (["--only", "status", "show"], ["show", "--only", "status"]),
        (["--only", "status"], ["--only", "status"]),
        (["threads=1", "status"], ["threads=1", "status"]),
        (["--", "status"], ["status", "--"]),
        ([], []),
    ],
)
def test_a_flag_may_stand_before_the_verb(words, ordered):
    assert put_verb_first(words, {"status", "show"}, {"--only"}) == ordered


def test_the_same_words_in_any_order_do_the_same(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    orders = [
        ["status", "--json", "a"],
        ["--json", "status", "a"],
        ["status", "a", "--json"],
        ["--json", "status", "--", "a"],
    ]

    said = [(run_guarded(words), capfd.readouterr()) for words in orders]

    assert len({*said}) == 1
    assert said[0][0] == 2
    assert said[0][1].out == ""


@pytest.mark.parametrize("words", ENDED_EARLY)
def test_a_reader_that_ends_early_is_no_error(words):
    command = f"PYTHONUNBUFFERED= {sys.executable} -m {words} | :; echo ${{PIPESTATUS[0]}}"

    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)

    assert (done.stdout, "Traceback" in done.stderr, "BrokenPipe" in done.stderr) == ("141\n", False, False)


def test_a_parser_that_is_open_ended_leaves_what_it_does_not_know():
    parser = ProgramParser("x", open_ended=True)
    parser.add_argument("--own", action="store_true")

    assert parser.parse_known_args(["--own", "--other", "a"])[1] == ["--other", "a"]
