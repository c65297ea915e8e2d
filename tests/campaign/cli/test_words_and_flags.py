"""Flags and keys are told from each other by one rule (docs/reference/commands.md), in all verbs."""

import re
import subprocess
import sys

import pytest

from analysis import __main__ as analysis
from campaign.config import reference
from campaign.verbs import VERBS
from jobs.parser import ProgramParser, put_verb_first

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


def test_a_parser_that_is_open_ended_leaves_what_it_does_not_know():
    parser = ProgramParser("x", open_ended=True)
    parser.add_argument("--own", action="store_true")

    assert parser.parse_known_args(["--own", "--other", "a"])[1] == ["--other", "a"]
