"""Versioned JSON files: what is read, and what is refused."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.system import untrusted, versioned


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Expecting"),
        ("[" * 100_000, "nested too deep"),
        ('{"schema": 1, "name": "x', "Unterminated"),
        ("[]", "no mapping"),
        ("{}", "'schema' is missing"),
        ('{"schema": "x"}', "'schema' is 'x'"),
        ('{"schema": 1e999}', "inf for a number"),
        ('{"schema": 1}', "'name' is missing"),
        ('{"schema": 1, "name": "' + "x" * 100 + '"}', "more than 64 bytes"),
    ],
)
def test_what_is_damaged_is_told_by_its_key(tmp_path, text, message):
    path = tmp_path / "file.json"
    path.write_text(text)

    with pytest.raises(untrusted.UntrustedError, match=message):
        versioned.read(path, 1, ("name",), most_bytes=64 if "more" in message else 1 << 20)


@pytest.mark.parametrize("schema", ["2", "0", '"2"'])
def test_another_schema_is_told_apart_from_damage(tmp_path, schema):
    path = tmp_path / "file.json"
    path.write_text(f'{{"schema": {schema}}}')

    with pytest.raises(versioned.NewerFileError):
        versioned.read(path, 1, ("name",))


def test_a_good_one_is_read_whole(tmp_path):
    path = tmp_path / "file.json"
    path.write_text('{"schema": 1, "name": "é"}')

    assert versioned.read(path, 1, ("name",)) == {"schema": 1, "name": "é"}


@pytest.mark.parametrize("text", ["[" * 100_000, "1e999", "NaN", "-Infinity", "9" * 401, "{", "\xff", ""])
def test_odd_json_is_refused(text):
    with pytest.raises(ValueError, match=r".+"):
        untrusted.json_value(text.encode("latin-1"))


@given(data=st.binary() | st.text('[]{}",:0123456789.-eE').map(str.encode))
def test_any_bytes_are_json_or_refused(data):
    with contextlib.suppress(ValueError):
        assert untrusted.json_value(data) == json.loads(data)
