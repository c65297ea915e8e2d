"""The readers of HDF5: all give the bytes that were written, whatever their layout, or say why not."""

import os
import select
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.data.readers import READERS, Part, open_reader
from jobs.data.synthetic_hdf5 import ClimateSpec, HepSpec
from jobs.errors import DatasetError, EngineError
from jobs.events import TimeLog
from jobs.events.read_time_logs import read_logs
from jobs.events.time_log import PHASES

CLIMATE = [Part("climate/data", (0, 1, 2, 10)), Part("climate/labels"), Part("climate/stats", (10, 0))]
HEP = [Part(name) for name in ("data", "label", "psr", "normweight", "weight")]


def write(path, name="x", values=None, **how):
    with h5py.File(path, "w", userblock_size=how.pop("userblock_size", 0)) as file:
        file.create_dataset(name, data=values, **how)
    return path


@st.composite
def data_sets(draw):
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    chunks = draw(st.none() | st.tuples(*(st.integers(1, side) for side in shape)))
    rows = draw(st.none() | st.lists(st.integers(0, shape[0] - 1), max_size=6).map(tuple))
    dtype = draw(st.sampled_from(["<f4", ">f8", "<i2", "u1", "?"]))
    values = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    return values, {"chunks": chunks, "userblock_size": draw(st.sampled_from([0, 512]))}, rows


@given(data_sets())
def test_offsets_and_the_library_give_what_was_written(tmp_path_factory, made):
    values, how, rows = made
    path = write(tmp_path_factory.mktemp("x") / "x.h5", values=values, **how)
    wanted = values if rows is None else values[list(rows)]

    for name in ("h5py_threads", "offsets"):
        with open_reader(name, [Part("x", rows)], [path], readers=1) as reader:
            (found,) = reader.read(path)
        assert (found.dtype, found.shape) == (values.dtype, wanted.shape)
        assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    ("rows", "runs"),
    [
        (None, [(0, 0, 5)]), ((), []), ((2,), [(0, 2, 1)]), ((1, 2, 3), [(0, 1, 3)]),
        ((0, 2, 3), [(0, 0, 1), (1, 2, 2)]), ((3, 3, 4), [(0, 3, 1), (1, 3, 2)]), ((4, 3), [(0, 4, 1), (1, 3, 1)]),
    ],
)  # fmt: skip
def test_neighbours_are_read_together_in_the_order_asked_for(rows, runs):
    assert list(Part("x", rows).runs(5)) == runs


@pytest.fixture(scope="module", params=["climate", "hep"])
def files(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    climate = ClimateSpec(files=6, height=24, width=36, seed=1)
    spec = climate if request.param == "climate" else HepSpec(5, 0, samples=3, image_size=12, seed=1)
    paths = [folder / f"{index}.h5" for index in range(5)]
    for index, path in enumerate(paths):
        with path.open("w+b") as file:
            spec.write(file, index)
    return paths, CLIMATE if request.param == "climate" else HEP


@pytest.mark.parametrize("driver", ["sec2", "core"])
def test_all_readers_give_the_same_bytes_to_many_threads(files, driver):
    paths, parts = files
    found = {}
    for name in READERS:
        with open_reader(name, parts, paths, readers=2, driver=driver) as reader, ThreadPoolExecutor(4) as threads:
            read = list(threads.map(reader.read, paths * 3))
        found[name] = [[(each.shape, each.dtype, each.tobytes()) for each in arrays] for arrays in read]

    wanted = []
    for path in paths * 3:
        with h5py.File(path) as file:
            whole = [(part, file[part.name][:]) for part in parts]
            arrays = [np.ascontiguousarray(it if part.rows is None else it[list(part.rows)]) for part, it in whole]
            wanted.append([(each.shape, each.dtype, each.tobytes()) for each in arrays])
    assert found == dict.fromkeys(READERS, wanted)


def test_a_large_piece_is_divided_among_threads(tmp_path, monkeypatch):
    monkeypatch.setattr("jobs.data.readers.offsets._PIECE", 1000)
    values = np.random.default_rng(0).random((50, 33))
    path = write(tmp_path / "x.h5", values=values)

    with open_reader("offsets", [Part("x")], [path], readers=3) as reader:
        assert reader.read(path)[0].tobytes() == values.tobytes()


def test_arrays_stand_where_tensorflow_takes_them_without_a_copy(files):
    paths, parts = files
    with open_reader("offsets", parts, paths) as reader:
        assert {array.ctypes.data % 64 for array in reader.read(paths[0])} == {0}


@pytest.mark.parametrize(
    ("kind", "why"),
    [("gzip", "has the filter deflate"), ("shuffle", "has the filter shuffle")],
)
def test_offsets_refuses_what_does_not_lie_there_as_it_is(tmp_path, kind, why):
    path, values = tmp_path / "x.h5", np.arange(8.0)
    write(path, values=values, chunks=(4,), **({"compression": "gzip"} if kind == "gzip" else {"shuffle": True}))

    with (
        pytest.raises(DatasetError, match=f"x.h5: x {why}.*reader=h5py_pool"),
        open_reader("offsets", [Part("x")], [path]),
    ):
        pass
    with open_reader("h5py_threads", [Part("x")], [path]) as reader:
        assert reader.read(path)[0].tolist() == values.tolist()


@pytest.mark.parametrize("user_block", [0, 512])
def test_what_was_never_written_has_the_fill_value(tmp_path, user_block):
    with h5py.File(tmp_path / "x.h5", "w", userblock_size=user_block) as file:
        file.create_dataset("none", (4, 2), "f4", fillvalue=7)
        some = file.create_dataset("some", (6, 2), "i4", chunks=(2, 2), fillvalue=-1)
        some[2:4] = 5
        file["number"] = 3.5
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        file.create_dataset("empty", (0, 3), "f4")
        space = h5py.h5s.create_simple((3,))
        held = h5py.h5d.create(file.id, b"compact", h5py.h5t.NATIVE_INT32, space, compact)
        h5py.Dataset(held)[:] = [1, 2, 3]
    parts = [Part(name) for name in ("none", "some", "number", "empty", "compact")]

    with open_reader("offsets", parts, [tmp_path / "x.h5"]) as reader:
        found = reader.read(tmp_path / "x.h5")

    assert [each.tolist() for each in found] == [
        [[7, 7]] * 4, [[-1, -1]] * 2 + [[5, 5]] * 2 + [[-1, -1]] * 2, 3.5, [], [1, 2, 3],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("garbage", "cannot be read as HDF5"),
        ("gone", "No such file.*; name an existing file"),
        ("torn", "cannot be"),
        ("lacks", "has no data set 'x'; the file has: y"), ("text", "has no numbers"),
        ("short", "does not have the rows"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(tmp_path, kind, why):
    path, part = tmp_path / "x.h5", Part("x", (3,)) if kind == "short" else Part("x")
    if kind == "garbage":
        path.write_bytes(b"no HDF5")
    elif kind == "torn":
        write(path, values=np.arange(100_000))
        os.truncate(path, 3000)
    elif kind == "text":
        write(path, values="words")
    elif kind == "lacks":
        write(path, "y", values=[1])
    elif kind == "short":
        write(path, values=[1, 2])

    for name in ("h5py_threads", "offsets", *(["h5py_pool"] if kind == "lacks" else [])):
        with pytest.raises(DatasetError, match=why), open_reader(name, [part], [path], readers=1) as reader:
            reader.read(path)


def test_a_reader_that_there_is_not_is_named_with_those_that_there_are():
    with (
        pytest.raises(DatasetError, match="no reader 'ofsets'; take one of: h5py_threads, "),
        open_reader("ofsets", [], []),
    ):
        pass


def test_a_script_that_protects_nothing_is_told_how(files, tmp_path):
    path = write(tmp_path / "x.h5", values=[1])
    (tmp_path / "own.py").write_text(f"""
from jobs.data.readers import Part, open_reader
with open_reader("h5py_pool", [Part("x")], ["{path}"], readers=1):
    pass
""")

    ended = subprocess.run([sys.executable, tmp_path / "own.py"], capture_output=True, text=True, check=False)

    assert 'below `if __name__ == "__main__":`' in ended.stderr.splitlines()[-1]


def test_a_process_that_was_killed_is_no_endless_wait(files):
    paths, parts = files
    with open_reader("h5py_pool", parts, paths, readers=1) as reader:
        (only,) = reader.processes()
        os.kill(only, signal.SIGKILL)
        reads = (reader.read(path) for path in paths * 200)  # what was sent before it died may still be answered
        with pytest.raises(EngineError, match="was killed"):
            list(reads)


def test_processes_end_with_the_one_that_they_read_for_however_it_ends(files):
    paths, parts = files
    script = f"""
if __name__ == "__main__":
    from jobs.data.readers import Part, open_reader
    parts = [Part(*each) for each in {[tuple(part) for part in parts]}]
    with open_reader("h5py_pool", parts, {[str(path) for path in paths]}, readers=2) as reader:
        print(*reader.processes(), flush=True)
        input()
"""
    words = [sys.executable, "-c", script]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as main:
        readers = [os.pidfd_open(int(number)) for number in main.stdout.readline().split()]
        main.kill()

    for reader in readers:
        ended, _, _ = select.select([reader], [], [], 60)
        os.close(reader)
        assert ended


@pytest.mark.parametrize("name", ["h5py_threads", "h5py_pool", "offsets"])
def test_what_is_opened_and_read_is_in_a_log_of_who_did_it(files, tmp_path, name):
    paths, parts = files
    with (
        TimeLog(tmp_path / "a", rank=1, ranks=2, run="r") as log,
        open_reader(name, parts, paths, readers=1, log=log) as it,
    ):
        size = sum(each.nbytes for each in it.read(paths[0], ("train", 2, 5)))

    found, _ = read_logs(sorted(tmp_path.iterdir()))
    places = zip(found.events["rank"], found.events["phase"], found.events["epoch"], found.events["step"], strict=True)
    assert set(places) == {(1, PHASES.index("train"), 2, 5)}
    assert sorted(zip(found.events["kind"], found.events["bytes"], strict=True)) == sorted(
        [(found.actions.index("open"), -1), (found.actions.index("read"), size)]
    )
    assert {found.events.words["file"][file] for file in found.events["file"]} == {str(paths[0])}
