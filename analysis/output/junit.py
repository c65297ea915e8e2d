"""Write the verdicts on claims as JUnit XML, which Jenkins and GitLab show like test results.

The XML follows the schema of Jenkins' xunit plugin (junit-10.xsd). In this schema only a test suite has properties, so
each claim is a test suite with one test case. The name of the test case has the settings of the measured cells.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

import pandas as pd

from analysis.claims.judge_claim import DIFFERS, HOLDS, kind_of_verdict
from analysis.output import tables
from analysis.records.frame import Row, rows_of
from analysis.text import one_line

# Characters that XML 1.0 forbids, even as escapes (https://www.w3.org/TR/xml/#charsets).
UNFIT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
CLASS = "paper"  # class name of all test cases; the kind of emulation is appended if storage was emulated


def junit_xml(tested: pd.DataFrame) -> bytes:
    """Return the verdicts on claims as JUnit XML, without the verdicts on pairs of cells.

    The verdict `differs` is a failure. A claim that is not measured or not comparable is a skipped test.
    """
    rows = rows_of(tested[tested["pair"] == ""])
    root = ET.Element("testsuites", {"name": "claims of the paper", **_counts(rows)})
    root.extend(_suite(row) for row in rows)
    ET.indent(root)
    text: str = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'.encode()


def _suite(row: Row) -> ET.Element:
    skipped = str(int(row["verdict"] not in (HOLDS, DIFFERS)))
    suite = ET.Element("testsuite", {"name": _fit(row["claim"]), **_counts([row]), "skipped": skipped})
    properties = ET.SubElement(suite, "properties")
    ours, interval, tolerance = tables.evidence_text(row)
    told = {"source": row["source"], "kind": row["kind"], "published": row["published"], "ours": ours}
    told |= {"interval": interval, "tolerance": tolerance, "emulated": row["emulated"], "cells": row["cells"]}
    for name, value in told.items():
        ET.SubElement(properties, "property", name=name, value=_fit(value))
    name = ": ".join(filter(None, (row["claim"], row["about"])))
    kind = kind_of_verdict(row["emulated"])
    case = ET.SubElement(suite, "testcase", classname=f"{CLASS}, {kind}" if kind else CLASS, name=_fit(name))
    if row["verdict"] != HOLDS:
        outcome = "failure" if row["verdict"] == DIFFERS else "skipped"
        ET.SubElement(case, outcome, type=row["verdict"], message=_fit(tables.reason_of_verdict(row)))
    words = f"{tables.verdict_in_words(row)}: {tables.reason_of_verdict(row)}"
    ET.SubElement(case, "system-out").text = _fit(words)
    return suite


def _counts(rows: Sequence[Row]) -> dict[str, str]:
    differ = sum(row["verdict"] == DIFFERS for row in rows)
    return {"tests": str(len(rows)), "failures": str(differ), "errors": "0"}


def _fit(text: str) -> str:
    return UNFIT.sub("\N{REPLACEMENT CHARACTER}", one_line(str(text)))
