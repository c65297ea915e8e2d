"""Every declaration of a claim is whole, and the checklist shows each, whatever was measured."""

import math
import re

import pytest

from analysis.claims import chien2018, nersc2018, tfdarshan2020
from analysis.claims.claim import ANY_SITE, DIGITS, EACH
from analysis.claims.judge_claim import COLUMNS, PAPERS
from campaign.config.collect import collect_points, make_cells
from tests.analysis.claims_factory import at, baseline, checklist
from tests.analysis.record_factory import record

EVERY = [claim for paper in PAPERS for claim in paper.CLAIMS]
COMMANDS = sorted({command for claim in EVERY for command in claim.measure.split("; ")})


def test_every_claim_of_the_papers_is_declared_once():
    assert [len(paper.CLAIMS) for paper in (chien2018, nersc2018, tfdarshan2020)] == [37, 8, 13]
    assert len({claim.text for claim in EVERY}) == len(EVERY)


@pytest.mark.parametrize("claim", EVERY, ids=lambda claim: claim.text)
def test_a_declaration_is_whole(claim):
    predicate = claim.predicate

    assert all((claim.paper, claim.place, claim.published, claim.recipe, claim.words))
    assert predicate.low <= predicate.high
    assert predicate.tolerance or predicate.source
    assert DIGITS not in predicate.tolerance or predicate.number
    # The number that it is held against is the one that it shows.
    shown = {float(each) for each in re.findall(r"\d+\.?\d*", claim.published)}
    percent = {each / 100 for each in shown}
    assert not predicate.number or {float(predicate.number)} & (shown | percent)
    # A device's number is of one cell, or of each; what only one machine can say is no order.
    assert not claim.machine or claim.compares == EACH or math.isfinite(predicate.high)


def test_the_checklist_is_the_whole_paper_whatever_was_measured():
    rows = checklist(record([100.0] * 3))

    assert list(rows) == COLUMNS
    assert set(rows["claim"]) == {claim.text for claim in chien2018.CLAIMS}
    left = rows[rows["verdict"] == "not measured"]
    assert len(left) == 35  # the micro-benchmark's spread on either machine is not comparable
    assert all(words.startswith("python -m campaign ") for words in left["measure"])
    assert set(rows["verdict"]) == {"not measured", "not comparable"}


@pytest.mark.parametrize(
    ("sites", "named"), [(["twin"], "twin"), (["twin", "tegner"], "mysite"), (["none"], "mysite"), ([""], "mysite")]
)
def test_the_command_that_measures_a_claim_names_the_site_of_the_campaign(sites, named):
    made = [at(baseline("hdd", "read", [163.0] * 3, threads=n), site) for n, site in enumerate(sites, 1)]

    rows = checklist(*made).set_index("claim")
    assert rows["measure"][chien2018.SOON_FLAT.text].endswith(f" site={named}")


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_that_measures_a_claim_is_a_campaign(command):
    words = command.removeprefix("python -m campaign ").replace(ANY_SITE, "site=twin")

    assert make_cells(collect_points(["-m", *words.split()]))[0]
