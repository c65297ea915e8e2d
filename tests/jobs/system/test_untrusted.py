"""The door to what others may have made: bounds on size, depth, names and shapes, each with one kind of error."""

import io
import json
import os
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.system import files, untrusted
from jobs.system.untrusted import UntrustedError

MOST = 1 << 20


def packed(**members):
    """An archive whose members are the given bytes."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return made


def saved(array):
    made = io.BytesIO()
    np.save(made, array)
    return made.getvalue()


def lying(shape):
    """A member whose head claims this shape, and which has eight bytes."""
    return saved(np.zeros(1, np.int64)).replace(b"(1,), }", f"{shape}, }}".encode().ljust(7))[: 128 + 8]


@pytest.mark.parametrize(("deep", "is_read"), [(64, True), (65, False), (100_000, False)])
def test_json_is_read_to_a_bounded_depth(deep, is_read):
    text = b"[" * deep + b"]" * deep

    if is_read:
        assert untrusted.json_value(text) == json.loads(text)
    else:
        with pytest.raises(UntrustedError, match="nested too deep"):
            untrusted.json_value(text)


@pytest.mark.parametrize("number", ["18446744073709551616", "-18446744073709551616", "1.8446744073709552e19"])
def test_the_largest_number_is_read(number):
    assert untrusted.json_value(number.encode()) == float(number)


@pytest.mark.parametrize("number", ["18446744073709551617", "-18446744073709551617", "1e999", "NaN", "-Infinity"])
def test_a_number_beyond_any_use_is_refused_unless_the_caller_looks_at_numbers(number):
    with pytest.raises(UntrustedError, match=r"the invalid number .*, at 'a\[1\].b'"):
        untrusted.json_value(f'{{"a": [5, {{"b": {number}}}]}}'.encode())

    assert untrusted.json_value(f'{{"a": [{number}]}}'.encode(), any_number=True)


@given(data=st.binary() | st.text('[]{}",:0123456789.-eE').map(str.encode))
def test_any_bytes_are_json_or_refused(data):
    try:
        value = untrusted.json_value(data)
    except UntrustedError:
        return
    assert value == json.loads(data)


def leaves(value, depth=0):
    """Yield what a JSON value is made of, its empty lists and mappings too, each with the lists and mappings above."""
    inside = [*value.values()] if isinstance(value, dict) else value if isinstance(value, list) else None
    if not inside:
        yield value, depth + (inside is not None)
    for each in inside or ():
        yield from leaves(each, depth + 1)


def is_within_use(value, depth):
    return depth <= 64 and (type(value) not in (int, float) or abs(value) <= 2**64)


_LEAVES = st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | st.text(max_size=3)
_VALUES = st.recursive(_LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner))


@given(value=_VALUES, deeper=st.integers(0, 70))
def test_json_is_the_same_values_of_the_same_types_whether_its_depth_is_usual_or_not(value, deeper):
    text = f"{'[' * deeper}{json.dumps(value)}{']' * deeper}".encode()
    if all(is_within_use(leaf, deeper + depth) for leaf, depth in leaves(value)):
        assert repr(untrusted.json_value(text)) == repr(json.loads(text))
    else:
        with pytest.raises(UntrustedError):
            untrusted.json_value(text)


@pytest.mark.parametrize("reads", [untrusted.read_bounded, untrusted.open_bounded])
def test_what_is_there_and_is_no_file_is_refused_and_never_waited_for(tmp_path, reads):
    (tmp_path / "link").symlink_to("/proc/self/stat")
    os.mkfifo(tmp_path / "fifo")

    for name in ("link", "fifo", "."):
        with pytest.raises(UntrustedError, match="no regular file"):
            reads(tmp_path / name, MOST)
    with pytest.raises(FileNotFoundError):
        reads(tmp_path / "none", MOST)


@pytest.mark.parametrize(("size", "is_read"), [(63, True), (64, True), (65, False)])
def test_a_file_is_read_up_to_its_largest_size(tmp_path, size, is_read):
    path = tmp_path / "file"
    path.write_bytes(b"x" * size)

    if is_read:
        with untrusted.open_bounded(path, 64) as file:
            assert untrusted.read_bounded(path, 64) == file.read() == b"x" * size
    else:
        for reads in (untrusted.read_bounded, untrusted.open_bounded):
            with pytest.raises(UntrustedError, match="more than 64 bytes"):
                reads(path, 64)


def test_the_arrays_of_an_archive_are_those_that_were_saved():
    made, wanted = io.BytesIO(), {"a": np.arange(6.0).reshape(2, 3), "b": np.array([], "<i4"), "c": np.array(7)}
    np.savez(made, **wanted)

    arrays = untrusted.read_arrays(made, MOST)

    assert arrays.keys() == wanted.keys()
    assert all(np.array_equal(arrays[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("shape", ["(9**9,)", "(999999999999,)", "(2,)", "(0,)", "(-1,)", "(3, 0)"])
def test_a_shape_that_its_bytes_contradict_takes_no_memory(shape):
    with pytest.raises(UntrustedError):
        untrusted.read_arrays(packed(a=lying(shape)), MOST)


def test_pickled_objects_are_not_loaded():
    made = io.BytesIO()
    np.savez(made, a=np.array([print], dtype=object))

    with pytest.raises(UntrustedError):
        untrusted.read_arrays(made, MOST)


def test_an_archive_is_unpacked_up_to_its_largest_size():
    made = packed(a=saved(np.zeros(1000, np.uint8)))
    unpacked = 128 + 1000

    assert len(untrusted.read_arrays(made, unpacked)["a"]) == 1000
    with pytest.raises(UntrustedError, match=f"more than {unpacked - 1} bytes"):
        untrusted.read_arrays(made, unpacked - 1)


def test_a_member_whose_compression_is_broken_is_refused():
    data = packed(a=saved(np.arange(5000))).getvalue()
    start = data.index(b"a.npy") + len("a.npy")
    broken = data[:start] + bytes(byte ^ 0x5A for byte in data[start : start + 40]) + data[start + 40 :]

    with pytest.raises(UntrustedError, match="no archive of arrays") as caught:
        untrusted.read_arrays(io.BytesIO(broken), MOST)
    assert isinstance(caught.value.__cause__, zlib.error | zipfile.BadZipFile)


@pytest.mark.parametrize(("levels", "is_read"), [(64, True), (65, False), (3000, False)])
def test_folders_in_each_other_are_entered_to_a_bounded_depth(tmp_path, nested, levels, is_read):
    if levels < 1000:
        tmp_path.joinpath(*["d"] * levels).mkdir(parents=True)
        tmp_path.joinpath(*["d"] * levels, "end.jpg").touch()
    else:
        nested(tmp_path / "d")

    if is_read:
        assert [path.name for path, _ in untrusted.files_below(tmp_path)] == ["end.jpg"]
        assert len(files.folder_tree(tmp_path)) == levels + 1
    else:
        with pytest.raises(UntrustedError, match="64 nested folders"):
            list(untrusted.files_below(tmp_path))
        with pytest.raises(files.OddFileError, match="64 nested folders"):
            files.folder_tree(tmp_path)
        files.remove_tree(tmp_path / "d")
    assert (tmp_path / "d").exists() is is_read


def test_folders_that_link_to_each_other_are_entered_once(tmp_path):
    names = [f"folder{number}" for number in range(12)]
    for name in names:  # to list every way through them would take 12! steps
        (tmp_path / name).mkdir()
        (tmp_path / name / "image.jpg").touch()
        for other in names:
            (tmp_path / name / f"to-{other}").symlink_to(f"../{other}")

    found = [path for path, _ in untrusted.files_below(tmp_path)]

    assert len(found) == len(names)
    assert len({path.resolve() for path in found}) == len(names)


def test_more_names_than_a_tree_may_have_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(untrusted, "MOST_NAMES", 3)
    for name in "abc":
        (tmp_path / name).touch()

    assert len(list(untrusted.files_below(tmp_path))) == 3
    (tmp_path / "d").touch()
    with pytest.raises(UntrustedError, match="more than 3 names"):
        list(untrusted.files_below(tmp_path))


def test_a_link_that_leads_nowhere_comes_with_its_own_status(tmp_path):
    (tmp_path / "gone.jpg").symlink_to("nowhere")
    (tmp_path / "loop.jpg").symlink_to("loop.jpg")

    assert [
        path.name for path, status in untrusted.files_below(tmp_path) if (status.st_mode & 0o170000) == 0o120000
    ] == [
        "gone.jpg",
        "loop.jpg",
    ]


def test_a_file_that_a_program_answers_is_read_whole_though_it_says_that_it_is_empty():
    version = Path("/proc/version")

    assert version.stat().st_size == 0
    assert untrusted.read_bounded(version, MOST) == version.read_bytes()
    with pytest.raises(UntrustedError, match="more than 9 bytes"):
        untrusted.read_bounded(version, 9)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [("|V0", f"(1{'0' * 18},)"), ("<U0", "(7, 7)"), ("<i8", f"({'-' * 9000}1,)"), ("<i8", "(True,)")],
    ids=["no bytes each", "empty words", "a head that no parser takes", "a truth for a length"],
)
def test_a_head_that_claims_numbers_without_bytes_or_is_none_is_refused(kind, shape):
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    data = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + bytes(8) * (kind == "<i8")

    with pytest.raises(UntrustedError):
        untrusted.read_arrays(packed(a=data), MOST)
