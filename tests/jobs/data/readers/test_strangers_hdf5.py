"""HDF5 files of others: nothing outside the file is opened, waited for or read, whatever the file says."""

import multiprocessing
import os

import h5py
import numpy as np
import pytest

from jobs.data import manifest
from jobs.data.readers import Part, open_reader
from jobs.data.readers.h5py_parts import MOST_SOFT_LINKS
from jobs.errors import DatasetError

LIMIT_S = 120  # of a child that would wait for ever


@pytest.fixture
def pipe(tmp_path):
    """Return a pipe to which nobody writes: who opens it waits for ever."""
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@pytest.fixture
def private(tmp_path):
    """Return a file of the reader's own, which nobody else may read."""
    with h5py.File(tmp_path / "private.h5", "w") as file:
        file["x"] = np.arange(8)
    (tmp_path / "private.h5").chmod(0o600)
    return tmp_path / "private.h5"


def _external(where):
    return lambda file: file.create_dataset("x", (16,), "u1", external=[(str(where), 0, 16)])


def _virtual(where, *, grows):
    """Make a data set of others; of one that grows HDF5 opens them when it is asked for its shape."""
    most = (h5py.h5s.UNLIMITED,) if grows else (8,)
    layout = h5py.VirtualLayout((8,), "i8", maxshape=most)
    whole = slice(0, h5py.h5s.UNLIMITED) if grows else slice(0, 8)
    layout[whole] = h5py.VirtualSource(where, "x", (8,), maxshape=most)[whole]
    return lambda file: file.create_virtual_dataset("x", layout)


def _linked(**links):
    def make(file):
        for name, link in links.items():
            file[name] = link

    return make


def _read(path, part, reader):
    """Read a part; return what it holds, or what the refusal says."""
    try:
        with open_reader(reader, [Part(part)], [path], readers=1) as source:
            return source.read(path)[0].tolist()
    except DatasetError as error:
        return str(error)


def _in_a_child(function, *words):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply_async(function, words).get(LIMIT_S)


LOOP = {"x": h5py.SoftLink("/y"), "y": h5py.SoftLink("x")}
CASES = {
    "a link to a pipe": ("x", lambda pipe, _: _linked(x=h5py.ExternalLink(pipe, "x")), "x is a link to another"),
    "a link to a private file": ("x", lambda _, own: _linked(x=h5py.ExternalLink(own, "x")), "x is a link to another"),
    "a link in the middle": (
        "a/b/x", lambda _, own: _linked(**{"a/b": h5py.ExternalLink(own, "/")}), "a/b is a link to another file",
    ),
    "a soft link through a link": (
        "x", lambda pipe, _: _linked(x=h5py.SoftLink("a/x"), a=h5py.ExternalLink(pipe, "/")), "a is a link to another",
    ),
    "a soft link to a group": (
        "x", lambda *_: _linked(x=h5py.SoftLink("/"), y=[1]), "no data set 'x'; the file has: x, y",
    ),
    "soft links in a loop": ("x", lambda *_: _linked(**LOOP), f"leads through more than {MOST_SOFT_LINKS} links"),
    "bytes in a private file": ("x", lambda *_: _external("/etc/passwd"), "x lies in other files"),
    "bytes in a pipe": ("x", lambda pipe, _: _external(pipe), "x lies in other files"),
    "made of a private file": ("x", lambda _, own: _virtual(own, grows=False), "x is virtual"),
    "made of a pipe": ("x", lambda pipe, _: _virtual(pipe, grows=True), "x is virtual"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_file_leads_to_no_other_one(tmp_path, pipe, private, case):
    part, make, why = CASES[case]
    with h5py.File(tmp_path / "theirs.h5", "w") as file:
        make(pipe, private)(file)

    for reader in ("h5py_threads", "offsets"):
        answer = _in_a_child(_read, str(tmp_path / "theirs.h5"), part, reader)
        assert isinstance(answer, str), answer
        assert "theirs.h5" in answer
        assert why in answer


def test_the_list_of_a_folder_follows_no_link_out_of_its_first_file(tmp_path, pipe):
    (tmp_path / "data").mkdir()
    with h5py.File(tmp_path / "data" / "theirs.h5", "w") as file:
        file["x"] = h5py.ExternalLink(pipe, "x")

    with pytest.raises(DatasetError, match=r"theirs\.h5: x is a link to another file"):
        _in_a_child(manifest.scan_folder, tmp_path / "data", "x")


@pytest.mark.parametrize("path", ["hard", "soft", "a/relative", "a/absolute", "./a//absolute", "through/x"])
def test_links_within_a_file_are_followed(tmp_path, path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a/x"] = file["hard"] = np.arange(3)
        file["soft"] = h5py.SoftLink("a/x")
        file["a/relative"] = h5py.SoftLink("x")
        file["a/absolute"] = h5py.SoftLink("/soft")
        file["through"] = h5py.SoftLink("/a/.")

    assert {reader: _read(tmp_path / "x.h5", path, reader) for reader in ("h5py_threads", "offsets")} == {
        "h5py_threads": [0, 1, 2], "offsets": [0, 1, 2],
    }  # fmt: skip


def test_a_small_file_that_says_it_is_large_takes_no_memory(tmp_path):
    with h5py.File(tmp_path / "theirs.h5", "w") as file:
        file.create_dataset("x", (1 << 34,), "u1")

    assert "x would have 17,179,869,184 bytes" in _read(tmp_path / "theirs.h5", "x", "h5py_threads")


def test_a_pipe_in_the_place_of_a_file_that_was_looked_at_is_not_waited_for(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3)
    with open_reader("offsets", [Part("x")], [path]) as reader:
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(DatasetError, match=r"x\.h5 cannot be read as HDF5: the path is no regular file"):
            reader.read(path)


def _changed_at_random(path, rounds):
    """Read a file with a few wrong bits, again and again; return the kinds of answers, which are all that there are."""
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    answers = set()
    for _ in range(rounds):
        changed = bytearray(whole)
        for place in rng.integers(0, len(whole), 3):
            changed[place] ^= 1 << rng.integers(0, 8)
        path.write_bytes(changed)
        answers |= {type(_read(path, "a/x", reader)) for reader in ("h5py_threads", "offsets")}
    return answers


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_whatever_the_library_says_of_a_damaged_file_is_one_error(tmp_path, libver):
    with h5py.File(tmp_path / "x.h5", "w", libver=libver) as file:
        file.create_dataset("a/x", data=np.arange(500), chunks=(100,))

    assert _in_a_child(_changed_at_random, tmp_path / "x.h5", 100) == {list, str}
