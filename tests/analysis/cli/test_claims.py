"""The checklist on the command line: what it prints and writes, and what its exit code says."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from analysis.__main__ import main as analysis
from analysis.claims import chien2018
from analysis.claims.judge_claim import no_claim_differs
from analysis.cli.claims import main
from analysis.output.junit import junit_xml
from analysis.text import TIMES
from campaign.__main__ import main as campaign
from tests.analysis.claims_factory import checklist, curve, told
from tests.analysis.record_factory import record, store

pytestmark = pytest.mark.usefixtures("unrendered")
ROOT = Path(__file__).parents[3]
GOOD = {1: 100.0, 2: 165.0, 4: 195.0, 8: 230.0}
BAD = GOOD | {2: 120.0}
# junit-10.xsd of Jenkins' xunit plugin: children and attributes, those that must be marked.
SCHEMA = {
    "testsuites": ({"testsuite"}, set(), {"name", "time", "tests", "failures", "errors"}),
    "testsuite": (
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
        {"name", "tests", "failures", "errors"},
        {"group", "time", "skipped", "timestamp", "hostname", "id", "package", "file", "log", "url", "version"},
    ),
    "properties": ({"property"}, set(), set()),
    "property": (set(), {"name", "value"}, set()),
    "testcase": (
        {"skipped", "errors", "failure", "system-out", "system-err"},
        {"name"},
        {"time", "classname", "group"},
    ),
    "failure": (set(), set(), {"type", "message"}),
    "skipped": (set(), set(), {"type", "message"}),
    "system-out": (set(), set(), set()),
}


def parsed(content):
    return ET.fromstring(content)  # noqa: S314 - our own writing


def must_fit(element):
    """Fail where an element is not as the schema has it."""
    children, needed, possible = SCHEMA[element.tag]
    assert {child.tag for child in element} <= children
    assert needed <= set(element.attrib) <= needed | possible
    for child in element:
        must_fit(child)


@pytest.fixture
def holds(tmp_path):
    return store(tmp_path / "holds", *curve("hdd", GOOD))


@pytest.fixture
def differs(tmp_path):
    return store(tmp_path / "differs", *curve("hdd", BAD))


def test_the_exit_code_says_whether_a_claim_differs_and_strictly_whether_each_holds(holds, differs, capsys):
    assert [main([str(folder)]) for folder in (holds, differs)] == [0, 1]
    assert [main([str(folder), "--strict"]) for folder in (holds, differs)] == [1, 1]


@pytest.mark.parametrize(
    ("emulated", "reproduced"), [("", True), ("storage", False), ("emulated (model): storage", False)]
)
def test_what_holds_where_something_is_emulated_is_not_the_paper_reproduced(emulated, reproduced):
    rows = checklist(*curve("hdd", GOOD)).assign(verdict="holds", emulated=emulated)
    rows.loc[0, ["verdict", "pair"]] = ["differs", "hdd, threads 1"]  # a pair is told by its claim

    assert no_claim_differs(rows, strict=False)
    assert no_claim_differs(rows, strict=True) is reproduced


def test_a_record_that_cannot_be_read_leaves_the_checklist_unsure(holds, differs, capsys):
    for folder in (holds, differs):
        (folder / "records" / "x").mkdir()
        (folder / "records" / "x" / "record.json").write_text("{", encoding="utf-8")

    assert [main([str(folder)]) for folder in (holds, differs)] == [2, 1]
    assert "not valid JSON" in capsys.readouterr().err


def test_the_junit_file_is_valid_and_counts_what_the_checklist_says(differs, tmp_path, capsys):
    file = tmp_path / "new" / "verdicts.xml"

    main([str(differs), "--junit", str(file)])

    root = parsed(file.read_bytes())
    must_fit(root)
    rows = checklist(*curve("hdd", BAD))
    count = rows["verdict"].value_counts()
    assert root.attrib["tests"] == str(len(rows)) == str(len(root.findall("testsuite/testcase")))
    assert root.attrib["failures"] == str(count["differs"]) == str(len(root.findall("testsuite/testcase/failure")))
    skipped = root.findall("testsuite/testcase/skipped")
    assert len(skipped) == count["not measured"] + count["not comparable"]
    assert all(each.attrib["message"] for each in skipped)
    assert [path.name for path in file.parent.iterdir()] == ["verdicts.xml"]
    (suite,) = root.findall(f"testsuite[@name='{chien2018.SCALING['hdd', 2].text}']")
    evidence = {each.attrib["name"]: each.attrib["value"] for each in suite.find("properties")}
    assert (evidence["ours"], evidence["interval"]) == (f"1.20{TIMES}", f"1.16{TIMES} to 1.24{TIMES}")
    assert evidence["tolerance"].startswith("8.3 %, 2 times the site's")
    assert evidence["cells"] == told(chien2018.SCALING["hdd", 2], *curve("hdd", BAD))["cells"]
    assert suite.find("testcase/failure").attrib["type"] == "differs"
    paired = parsed(junit_xml(rows.assign(pair=["hdd, threads 1", *rows["pair"][1:]])))
    assert paired.attrib["tests"] == str(len(rows) - 1) == str(len(paired.findall("testsuite")))


def test_the_verb_hands_its_words_on_and_its_exit_code_back(differs, capfd, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    code = campaign(["verdicts", str(differs), "--json"])

    assert code == 1
    assert len(json.loads(capfd.readouterr().out)) >= len(chien2018.CLAIMS)


def test_after_a_campaign_only_what_was_measured_is_told(holds, tmp_path, capsys):
    other = store(tmp_path / "other", record([100.0] * 3))

    for folder in (holds, other):
        analysis([str(folder)])
        out = capsys.readouterr().out
        assert chien2018.GAIN.text not in out
        assert ("more claims are not measured here, or are about the paper's own devices" in out) == (folder == holds)
