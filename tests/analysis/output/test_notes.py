"""What is said beside the results stays short, however much there is to say."""

import json
from pathlib import Path

import pytest

from analysis.errors import AnalysisError
from analysis.output import notes
from analysis.records.read_records import FoundRecords, SkippedRecord
from tests.analysis.record_factory import CONTRACT, parse


def skipped(count):
    return tuple(SkippedRecord(Path(f"{number}/record.json"), "is damaged", "copy it anew") for number in range(count))


@pytest.mark.parametrize(("count", "warnings"), [(1, 1), (40, 40), (41, 41), (10_000, 41)])
def test_of_many_records_that_are_skipped_the_first_are_named_and_the_others_counted(count, warnings, capsys):
    with pytest.raises(AnalysisError, match="none of the"):
        notes.warn_of_skipped(FoundRecords((), skipped(count), Path()), Path("results"))

    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert len(lines) == warnings
    assert (lines[-1] == f"warning: {count - 40:,} more records are skipped") == (count > 40)


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [
        ((), ""),
        (("b",), "1 of 4 requested cells have no record (not measured yet, or removed): b"),
        (("a", "b", "c", "d"), "4 of 4 requested cells have no record (not measured yet, or removed): a, b, c, …"),
    ],
)
def test_requested_cells_without_a_record_are_counted_and_the_first_are_named(missing, sentence, capsys):
    found = FoundRecords((parse(CONTRACT),), (), Path(), requested=("a", "b", "c", "d"), missing=missing)

    notes.warn_of_skipped(found, Path("results"))

    assert notes.missing_sentence(found) == sentence
    assert capsys.readouterr().err == (f"warning: {sentence}\n" if sentence else "")


@pytest.mark.parametrize(("commits", "told"), [(("a" * 40,) * 2, ""), (("a" * 40, "b" * 40), "aaaaaaaaaaaa (1), bbb")])
def test_several_commits_of_the_tool_are_named(commits, told, capsys):
    made = [json.loads(json.dumps(CONTRACT)) for _ in commits]
    for each, commit in zip(made, commits, strict=True):
        each["provenance"]["git"] = {"commit": commit, "dirty": False}
    found = FoundRecords(tuple(map(parse, made)), (), Path())

    notes.warn_of_skipped(found, Path("results"))

    printed = capsys.readouterr().err
    assert told in printed
    assert ("note: the cells were measured by 2 commits of this tool" in printed) == bool(told)
