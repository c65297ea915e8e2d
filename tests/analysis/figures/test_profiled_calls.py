"""Figures of what profiled runs called, from profiles as `jobs.profiler` writes them."""

import io
import os

import numpy as np
import pytest
from matplotlib.collections import LineCollection

from analysis.figures import profiled_calls
from analysis.traces import posix
from analysis.traces.system import TraceError
from jobs.events.posix_window import END, OTHER, READ
from jobs.profiler import Profile
from tests.analysis.record_factory import id_of, left, record, run, unstable
from tests.analysis.training_factory import figures_of, words
from tests.jobs.events.windows import window

SMALL, LARGE = 3000, 200_000


def read_whole(path):
    """Read a file as TensorFlow does: to a read of nothing."""
    descriptor = os.open(path, os.O_RDONLY)
    while os.read(descriptor, 1 << 20):
        pass
    os.close(descriptor)


@pytest.fixture(scope="module")
def profiles(tmp_path_factory):
    """By mode a profile of two files, of which the large one was read first."""
    folder = tmp_path_factory.mktemp("data")
    for name, size in (("small", SMALL), ("large.jpg", LARGE)):
        (folder / name).write_bytes(bytes(size))
    for mode in ("trace", "counters"):
        with Profile(mode, only=[folder]) as profile:
            read_whole(folder / "large.jpg")
            read_whole(folder / "small")
        profile.save(folder / f"{mode}.npz")
    return {mode: (folder / f"{mode}.npz").read_bytes() for mode in ("trace", "counters")}


@pytest.fixture
def traced(profiles):
    return profiles["trace"]


def cell(folder, content, *, mode="trace", **settings):
    """Return the record of a profiled cell of which each run left this profile."""
    runs = [run(n, 100.0 + n, profile={"file": f"profile-{n}.npz", "mode": mode}) for n in (1, 2, 3)]
    made = record(runs, profile={"posix": mode}, **settings)
    home = folder / "records" / id_of(made)
    home.mkdir(parents=True)
    for n in (1, 2, 3) if content else ():
        (home / f"profile-{n}.npz").write_bytes(content)
    return made


@pytest.mark.parametrize("mode", ["trace", "counters"])
def test_sizes_and_order_are_drawn_of_both_modes_and_single_calls_of_a_trace(profiles, mode, tmp_path):
    specs = figures_of(*(cell(tmp_path, profiles[mode], mode=mode, threads=n) for n in (1, 2)), folder=tmp_path)

    named = ["sizes", "order", "rates", "files"][: 4 if mode == "trace" else 2]
    assert [stem for stem in specs if stem.startswith("posix")] == [f"posix-{name}" for name in named]
    sizes = specs["posix-sizes"].frame.query("threads == 1").set_index("upto")
    assert sizes["reads"][sizes["reads"] > 0].to_dict() == {"100 B": 2, "10 KiB": 1, "1 MiB": 1}
    assert sizes["share_of_files"][sizes["files"] > 0].to_dict() == {"10 KiB": 0.5, "1 MiB": 0.5}
    order = specs["posix-order"].frame.iloc[0]
    assert (order["reads"], order["consecutive"], order["sequential_only"], order["neither"]) == (4, 0.5, 0, 0.5)
    panels = specs["posix-sizes"].drawn().axes
    assert [axes.get_title() for axes in panels] == ["local, 1 thread", "local, 2 threads"]
    shares = specs["posix-sizes"].frame.query("threads == 2")[["share_of_reads", "share_of_files"]].to_numpy().T.ravel()
    assert [bar.get_height() for bar in panels[1].patches] == pytest.approx(shares * 100)
    bars = [(bar.get_y() + 0.35, bar.get_x(), bar.get_width()) for bar in specs["posix-order"].drawn().axes[0].patches]
    assert bars == [
        pytest.approx(each) for place in (0, 1) for each in ((place, 0, 50), (place, 50, 0), (place, 50, 50))
    ]
    assert {"local, 1 thread", "50"} <= set(words(specs["posix-order"].drawn()))


def test_a_trace_is_drawn_over_time_and_file_by_file(traced, tmp_path):
    specs = figures_of(cell(tmp_path, traced), folder=tmp_path)

    rates, files = specs["posix-rates"], specs["posix-files"]

    every = rates.frame["elapsed_s"].iloc[0]
    assert rates.frame["read_mb_per_s"].sum() * every == pytest.approx((SMALL + LARGE) / 1e6)
    assert rates.frame["calls_per_s"].sum() * every == pytest.approx(8)
    assert [axes.get_ylabel() for axes in rates.drawn().axes] == ["MB/s read", "calls/s"]
    calls = files.frame[["line", "kind", "bytes"]].to_numpy().tolist()
    one = [[OTHER, 0], [READ, None], [END, 0], [OTHER, 0]]
    sizes = (LARGE, SMALL)
    assert calls == [[n, kind, size if b is None else b] for n, size in enumerate(sizes) for kind, b in one]
    figure = files.drawn()
    drawn = [each for each in figure.axes[0].collections if isinstance(each, LineCollection)]
    assert sum(len(each.get_segments()) for each in drawn) == 8
    assert {"large.jpg", "small", END} <= set(words(figure))


def test_a_call_counts_where_it_ended():
    profile = window([(1, 200_000_000, 1_910_000_000, 5_000_000)], 0, 2 * 10**9, (500_000_000,))

    rates = posix.rates_over_time(profile).set_index("elapsed_s")[["read_mb_per_s", "calls_per_s"]]
    assert rates[rates["calls_per_s"] > 0].to_records().tolist() == [pytest.approx((1.92, 250.0, 50.0))]
    assert posix.read_parts(profile).to_numpy().tolist() == [pytest.approx([0.5, 2.0, 5 / 1.5])]


def test_a_cell_without_a_profile_that_can_be_read_says_so_in_its_place(traced, tmp_path):
    broken = cell(tmp_path, traced[: len(traced) // 2], threads=1)
    gone = cell(tmp_path, None, threads=2)
    failed = left(cell(tmp_path, traced, threads=4), "failed")
    good = unstable(cell(tmp_path, traced, threads=8))

    specs = figures_of(broken, gone, failed, good, folder=tmp_path)

    for stem in ("posix-sizes", "posix-order"):
        status = [posix.UNREADABLE, posix.MISSING, "failed", "done"]
        assert specs[stem].frame.drop_duplicates("cell")["status"].tolist() == status
        assert {posix.UNREADABLE, posix.MISSING, "failed"} <= set(words(specs[stem].drawn()))
    assert not [stem for stem in figures_of(gone, folder=tmp_path) if stem.startswith("posix")]


def test_only_the_first_cells_are_drawn_and_the_caption_counts_them(traced, tmp_path, monkeypatch):
    monkeypatch.setattr("analysis.figures.profiled_calls.MOST_CELLS", 2)
    made = [cell(tmp_path, traced, threads=n, storage=name) for name in ("hdd", "ssd") for n in (1, 2)]

    spec = figures_of(*made, folder=tmp_path)["posix-sizes"]

    assert [axes.get_title() for axes in spec.drawn().axes] == ["hdd, 1 thread", "hdd, 2 threads"]
    assert "The first 2 of 4 cells." in spec.caption


def rewritten(content, **members):
    """Return a profile of which members were replaced by others."""
    file = io.BytesIO()
    np.savez(file, **{**np.load(io.BytesIO(content)), **members})
    return file.getvalue()


@pytest.mark.parametrize(
    "members",
    [
        {"paths": np.frombuffer(b"one\0", np.uint8)},
        {"counters": np.zeros(2)},
        {"head": np.frombuffer(b"{}", np.uint8)},
        {"stdio": np.zeros((2, 2), bool)},
        {"events": np.zeros(1, np.uint8)},
        {"marks": np.zeros(1, np.int64)},
        {"paths": np.zeros(1 << 20, np.uint8)},
    ],
)
def test_a_profile_that_contradicts_itself_is_not_drawn(traced, members, tmp_path):
    (tmp_path / "profile-1.npz").write_bytes(rewritten(traced, **members))

    with pytest.raises(TraceError, match=posix.UNREADABLE):
        posix.read_profile(tmp_path / "profile-1.npz")


@pytest.mark.parametrize(("name", "value"), [("file", 7), ("end", 0), ("operation", 999)])
def test_calls_of_no_file_or_of_another_time_are_not_drawn(traced, name, value, tmp_path):
    events = np.load(io.BytesIO(traced))["events"].copy()
    events[name][0] = value
    (tmp_path / "profile-1.npz").write_bytes(rewritten(traced, events=events))

    with pytest.raises(TraceError, match=posix.UNREADABLE):
        posix.read_profile(tmp_path / "profile-1.npz")


def test_a_call_beyond_the_window_is_left_out_and_counted(traced, tmp_path):
    events = np.load(io.BytesIO(traced))["events"].copy()
    events["end"][-1] += 10**12
    specs = figures_of(cell(tmp_path, rewritten(traced, events=events)), folder=tmp_path)

    assert specs["posix-files"].frame["kind"].size == 7
    assert "Calls beyond the window, left out: 1." in specs["posix-files"].caption
    assert "beyond the window" not in specs["posix-sizes"].caption


def test_no_name_in_the_order_of_reads_has_two_meanings():
    assert profiled_calls.IN_WORDS["sequential_only"].startswith("sequential, not consecutive")
    assert profiled_calls.IN_WORDS["neither"] == "not sequential"
