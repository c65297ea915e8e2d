"""Versioned JSON files: what is read, and what is refused."""

from typing import TypedDict

import pytest

from jobs.system import untrusted, versioned


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Expecting"),
        ("[]", "no mapping"),
        ("{}", "'schema' is missing"),
        ('{"schema": "x"}', "'schema' is 'x'"),
        ('{"schema": 1}', "'name' is missing"),
        ('{"schema": 1, "name": "' + "x" * 100 + '"}', "more than 64 bytes"),
    ],
)
def test_what_is_damaged_is_told_by_its_key(tmp_path, text, message):
    path = tmp_path / "file.json"
    path.write_text(text)

    with pytest.raises(untrusted.UntrustedError, match=message):
        versioned.read(path, 1, ("name",), most_bytes=64 if "more" in message else 1 << 20)


class Shape(TypedDict):
    """Of a file."""

    name: str


@pytest.mark.parametrize(
    ("text", "schema", "message"),
    [
        ('{"name": 5}', None, "name is 5"),
        ("{}", None, "name is missing"),
        ('{"schema": 1}', 1, "name is missing"),
        ('{"name": "x"}', 1, "'schema' is missing"),
    ],
)
def test_a_file_of_another_shape_is_refused(tmp_path, text, schema, message):
    path = tmp_path / "file.json"
    path.write_text(text)

    with pytest.raises(untrusted.UntrustedError, match=message):
        versioned.read_as(path, Shape, schema)


@pytest.mark.parametrize("schema", ["2", "0", '"2"'])
def test_another_schema_is_told_apart_from_damage(tmp_path, schema):
    path = tmp_path / "file.json"
    path.write_text(f'{{"schema": {schema}}}')

    with pytest.raises(versioned.NewerFileError):
        versioned.read(path, 1, ("name",))


def test_a_good_one_is_read_whole(tmp_path):
    path = tmp_path / "file.json"
    path.write_text('{"schema": 1, "name": "é"}')

    assert versioned.read(path, 1, ("name",)) == versioned.read_as(path, Shape, 1) == {"schema": 1, "name": "é"}
