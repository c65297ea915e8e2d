"""JSON that anybody may have made, against the declarations of the model: the first fault, with its place and value."""

import copy
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.model import reading
from jobs.model.reading import Amount, Count, Line, Nested, first_unprintable
from jobs.model.record import Manifest, Record
from jobs.model.work import WorkList
from jobs.system.untrusted import UntrustedError
from tests.jobs.odd_json import ODD, changed

RECORD = json.loads((Path(__file__).parents[2] / "acceptance" / "stored" / "record.json").read_text(encoding="utf-8"))


class Inner(TypedDict):
    """What lies within."""

    z: Count
    a: Amount


class Shape(TypedDict):
    """Each kind of hint."""

    name: Line
    rate: float
    words: Sequence[str]
    sides: Mapping[str, dict[str, int]]
    inner: list[Inner]
    mode: Literal["one", "two"]
    more: NotRequired[int | None]
    nested: NotRequired[Nested]
    anything: NotRequired[Any]


GOOD = {"name": "x", "rate": 1, "words": ["a"], "sides": {"b": {"c": 2}}, "inner": [{"z": 1, "a": 2}], "mode": "two"}


def nested(deep, inside=1):
    return {"a": nested(deep - 1, inside)} if deep else inside


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({}, ""),
        ({"rate": 1.5, "words": [], "sides": {}, "more": None, "anything": {1}, "unknown": {}}, ""),
        ({"nested": nested(6) | {"b": [True, None, "x", 1.5]}}, ""),
        ({"name": 5}, "name is 5: expected `str`, got `int`"),
        ({"name": "x" * 1001}, "name is 'xxxxxxxxxxxx...xxxxxxxxxxxxx': expected `str` of length <= 1000"),
        ({"name": "a\x1b[2J"}, r"name is 'a\x1b[2J': expected text without control characters"),
        ({"name": "a\n"}, r"name is 'a\n': expected text without control characters"),
        ({"name": "\ud800"}, r"name is '\ud800': expected text without control characters"),
        ({"rate": "\ud800"}, r"it has '\ud800', which is no valid text"),
        ({"rate": "\ud800", "sides": {"\udfff": 1}}, "it has "),
        ({"rate": True}, "rate is True: expected `float`, got `bool`"),
        ({"words": ["a", 7]}, "words[1] is 7: expected `str`, got `int`"),
        ({"words": "ab"}, "words is 'ab': expected `array`, got `str`"),
        ({"sides": {"b": {"c": 2}, "d": {"e": 3, "f": "x", "g": "y"}}}, "sides.d.f is 'x': expected `int`, got `str`"),
        ({"sides": {"b": {"c": "x"}, "d": {"f": "x"}}}, "sides.b.c is 'x': expected `int`, got `str`"),
        ({"sides": {"b": {"\x1b": "x"}}}, r"sides.b.'\x1b' is 'x': expected `int`, got `str`"),
        ({"sides": [2]}, "sides is [2]: expected `object`, got `array`"),
        ({"inner": [{"z": 1, "a": 2}, {"z": 1}]}, "inner[1].a is missing"),
        ({"inner": [{"z": 1, "a": -1}]}, "inner[0].a is -1: expected `float` >= 0.0"),
        ({"inner": [{"z": 1.0, "a": 1}]}, "inner[0].z is 1.0: expected `int`, got `float`"),
        ({"inner": [{"z": 1, "a": 1.9e19}]}, "inner[0].a is 1.9e+19: expected `float` < 2^64"),
        ({"inner": [{"z": 1, "a": float("nan")}]}, "inner[0].a is nan: expected `float` >= 0.0"),
        ({"mode": "three"}, "mode is 'three': expected one of the legal words"),
        ({"mode": ["one"]}, "mode is ['one']: expected `str`, got `array`"),
        ({"more": "x"}, "more is 'x': expected `int | null`, got `str`"),
        ({"nested": nested(7)}, "nested.a.a.a.a.a.a is {'a': 1}: expected `bool | float | str | null`, got `object`"),
        ({"sides": {"b": {"\n" * 9: "x"}}}, r"sides.b.'\n\n\n\n\n\n\n\n\n' is 'x': expected `int`, got `str`"),
        ({"nested": {"x" * 1001: 1}}, "a key of nested is 'xxxxxxxxxxxx...xxxxxxxxxxxxx': expected `str` of le"),
    ],
)  # fmt: skip
def test_the_first_fault_is_told_with_its_place(change, fault):
    found = reading.type_fault({**GOOD, **change}, Shape)

    assert found.startswith(fault)
    assert bool(found) == bool(fault)


@pytest.mark.parametrize("value", [None, [], "x", 5])
def test_what_is_no_mapping_is_of_no_kind(value):
    assert reading.type_fault(value, Shape).startswith(f"it is {value!r}: expected `object`")


@pytest.mark.parametrize("schema", [2, 10**30])
def test_a_newer_schema_is_told_apart_from_damage(schema):
    with pytest.raises(reading.NewerFileError, match=f"schema {schema}"):
        reading.check_value({**GOOD, "schema": schema}, Shape, 1)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([], "no mapping"), ({}, "schema is missing"), ({"schema": "2"}, "schema is '2'"),
        ({"schema": 0}, "schema is 0"), ({"schema": True}, "schema is True"), ({"schema": None}, "schema is None"),
        ({"schema": 1}, "name is missing"),
    ],
)  # fmt: skip
def test_a_file_of_no_schema_or_of_another_kind_is_refused(value, why):
    with pytest.raises(UntrustedError, match=why):
        reading.check_value(value, Shape, 1)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (os.mkfifo, "is no regular file"), (lambda path: path.write_text("x" * 65), "the file has more than 64 bytes"),
        (lambda path: path.write_text('{"schema": 1, "x": 1e999}'), "has the invalid number inf"),
    ],
)  # fmt: skip
def test_what_is_no_file_of_ours_is_refused_and_never_waited_for(tmp_path, monkeypatch, make, why):
    monkeypatch.setattr(reading, "MOST_BYTES_OF_JSON", 64)
    make(tmp_path / "file")

    with pytest.raises(UntrustedError, match=why):
        reading.read_json(tmp_path / "file", Shape, 1)


def test_a_good_file_is_read_whole_with_the_keys_that_nobody_declared(tmp_path):
    path = tmp_path / "file"
    path.write_text(json.dumps({**GOOD, "schema": 1, "é": [1]}))

    assert reading.read_json(path, Shape, 1) == reading.read_json(path, Shape) == {**GOOD, "schema": 1, "é": [1]}


@pytest.mark.parametrize("odd", ["\x1b", "\x7f", "\u202e", "\ud800", "é\n"])
@pytest.mark.parametrize("value", ['{"a": [1, %s]}', '{"a": {%s: 1}}', "%s", "[18446744073709551616, %s]"])
def test_text_that_acts_on_a_terminal_is_found_at_any_depth(value, odd):
    assert first_unprintable(json.loads(value % json.dumps(odd))) == odd
    assert first_unprintable(json.loads(value % json.dumps('é "\\'))) is None


def test_the_example_of_the_contract_is_a_record():
    assert reading.type_fault(RECORD, Record) == ""


@given(number=st.integers(1, 400), by=ODD)
def test_a_damaged_record_is_one_or_is_refused_by_a_key(number, by):
    made = changed(copy.deepcopy(RECORD), number, by)
    for kind in (Record, Manifest, WorkList):
        fault = reading.type_fault(made, kind)

        assert isinstance(made, dict) or fault.startswith("it is ")
        assert fault == "" or fault.isprintable()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda value: value.pop("runs"), "runs is missing"),
        (lambda value: value["cell"].pop("id"), "cell.id is missing"),
        (lambda value: value["cell"].pop("kind"), "cell.kind is missing"),
        (lambda value: value["runs"][0].pop("role"), "runs[0].role is missing"),
        (lambda value: value.update(cell=[]), "cell is []"),
        (lambda value: value["runs"][1].update(images_per_s="fast"), "runs[1].images_per_s is 'fast'"),
        (lambda value: value["runs"][1].update(images_per_s=-1.0), "runs[1].images_per_s is -1.0"),
        (lambda value: value["runs"][1].update(bytes_read=0.5), "runs[1].bytes_read is 0.5"),
        (lambda value: value["runs"][1].update(wall_s=10**400), "runs[1].wall_s is 1000"),
        (
            lambda value: value["runs"][1].update(status="valid"),
            "runs[1].status is 'valid': expected one of the legal words",
        ),
        (lambda value: value.update(status="done"), "status is 'done': expected one of the legal words"),
        (lambda value: value["terms"]["checks"].update(resident_max=2), "terms.checks.resident_max is 2: expected"),
        (lambda value: value["terms"]["of_site"].update(new=1), "terms.of_site is {"),
        (lambda value: value["terms"].update(runs=-1), "terms.runs is -1"),
        (lambda value: value["terms"].update(runs=10**9), "terms.runs is 1000000000"),
        (lambda value: value["terms"].update(min_valid_runs=0), "terms.min_valid_runs is 0"),
        (lambda value: value["terms"].update(until_spread=2), "terms.until_spread is 2"),
        (lambda value: value["cell"].update(id="../a"), "cell.id is '../a': expected the name of a folder"),
        (lambda value: value["cell"]["settings"].update(threads="8"), "cell.settings.threads is '8'"),
        (lambda value: value["cell"].update(benchmark="a\nb"), r"cell.benchmark is 'a\nb'"),
    ],
)
def test_a_record_that_breaks_its_declaration_is_refused_by_key(change, why):
    made = copy.deepcopy(RECORD)
    change(made)

    assert reading.type_fault(made, Record).startswith(why)
