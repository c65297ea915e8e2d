"""Figures of tf-Darshan: windows on the line of the trace, bandwidth beside what is published, what a profile costs."""

import os

import numpy as np
import pytest

from analysis.records.frame import runs_frame
from analysis.traces import posix
from analysis.traces.system import TraceError
from jobs.profiler import Profile
from tests.analysis.claims.test_tfdarshan2020 import imagenet, malware
from tests.analysis.claims_factory import curve
from tests.analysis.record_factory import id_of, parse, record, run
from tests.analysis.training_factory import figures_of, trace_text, words

SIZE = 300_000


@pytest.fixture(scope="module")
def divided(tmp_path_factory):
    """A profile of five files in three parts, of one, three and one, and the Unix time of its start."""
    folder = tmp_path_factory.mktemp("data")
    with Profile(only=[folder]) as profile:
        for name in "abcde":
            if name in "be":
                profile.mark()
            (folder / name).write_bytes(bytes(SIZE))
            descriptor = os.open(folder / name, os.O_RDONLY)
            while os.read(descriptor, 1 << 20):
                pass
            os.close(descriptor)
    profile.save(folder / "profile-1.npz")
    return folder / "profile-1.npz", profile.window.started_ns / 1e9, profile.window


def test_the_parts_of_a_profile_hold_every_byte_once(divided):
    path, _, window = divided

    rows = posix.read_parts(posix.read_profile(path))

    moved = rows["read_mb_per_s"] * (rows["elapsed_s"] - rows["begin_s"])
    assert moved.tolist() == pytest.approx([SIZE / 1e6, 3 * SIZE / 1e6, SIZE / 1e6])
    assert rows["begin_s"].tolist() == pytest.approx([0, *((each - window.started_ns) / 1e9 for each in window.marks)])


@pytest.mark.parametrize("marks", [np.array([5], np.int64), np.array([1 << 62], np.int64), np.array([1.5])])
def test_marks_that_are_not_in_the_window_are_not_believed(divided, tmp_path, marks):
    with np.load(divided[0]) as arrays:
        np.savez(tmp_path / "odd.npz", **{**arrays, "marks": marks})

    with pytest.raises(TraceError, match=posix.UNREADABLE):
        posix.read_profile(tmp_path / "odd.npz")


def stored(folder, divided, rates, *, profile=True):
    """Return the record of a divided cell whose trace begins a second before its profile."""
    path, before, _ = divided
    runs = [
        run(n, 100.0 + n, profile={"file": f"profile-{n}.npz"}, trace={"file": f"trace-{n}.csv"}) for n in (1, 2, 3)
    ]
    made = record(runs, profile={"posix": "trace", "every": 5})
    home = folder / "records" / id_of(made)
    home.mkdir(parents=True)
    lines = trace_text(rates).splitlines()
    shifted = [f"{before - 1 + n}{line[line.index(',') :]}" for n, line in enumerate(lines[2:])]
    for n in (1, 2, 3):
        (home / f"trace-{n}.csv").write_text("\n".join([*lines[:2], *shifted]) + "\n")
        if profile:
            (home / f"profile-{n}.npz").write_bytes(path.read_bytes())
    return made


def test_windows_are_drawn_on_the_line_of_the_trace_and_their_agreement_is_a_number(divided, tmp_path):
    made = stored(tmp_path, divided, (0, *[4e9] * 60))
    folders = {id_of(made): tmp_path / "records" / id_of(made)}

    spec = figures_of(made, folder=tmp_path)["tfdarshan-windows"]

    parts = spec.frame[spec.frame["line"] == "window"]
    assert parts["trace_mb_per_s"].tolist() == pytest.approx([4000] * 3, rel=0.01)
    assert (parts["read_mb_per_s"] / parts["trace_mb_per_s"]).tolist() == pytest.approx(parts["over_trace"].tolist())
    assert "Of 3 windows the middle one has" in spec.caption
    figure = spec.drawn()
    assert "windows of the profile" in words(figure)
    (points,) = (line for line in figure.axes[0].lines if line.get_marker() == "o")
    assert points.get_ydata().tolist() == parts["read_mb_per_s"].tolist()
    assert points.get_xdata().tolist() == pytest.approx(((parts["begin_s"] + parts["elapsed_s"]) / 2).tolist())
    runs = posix.add_agreement(runs_frame([parse(made, folders[id_of(made)])]), folders)
    known = runs[posix.AGREEMENT].dropna()
    assert known.tolist() == pytest.approx([parts["over_trace"].median()] * 3)


def test_bandwidths_stand_beside_the_published_ones(tmp_path):
    cells = [malware(), malware(16, 80.0), malware(rate=120.0, staging="smallest")]

    spec = figures_of(*cells, folder=tmp_path)["tfdarshan-bandwidth"]

    shown = spec.frame.set_index(["threads", "staging"])[["posix_read_mb_per_s", "published"]]
    assert shown.loc[1, ""].tolist() == [94, 94]
    assert shown.loc[1, "smallest"].tolist() == pytest.approx([120, 94 * 1.19])
    assert shown.loc[16, ""].tolist() == [80, 77]
    assert {"1 thread\nsmallest staged\nwaits 96 %", "120"} <= set(words(spec.drawn()))


def test_a_cell_that_is_not_of_the_paper_has_no_published_bandwidth(tmp_path):
    spec = figures_of(imagenet("ssd"), imagenet("ssd", 28), folder=tmp_path)["tfdarshan-bandwidth"]

    assert spec.frame["published"].isna().all()
    assert not any("published" in each for each in words(spec.drawn()))


def test_what_a_profile_adds_is_drawn_beside_what_is_published(tmp_path):
    seen = record([100.0] * 3, storage="hdd", profile={"posix": "trace"})

    spec = figures_of(*curve("hdd", {4: 110.0}), seen, folder=tmp_path)["tfdarshan-overhead"]

    assert spec.frame["added"].tolist() == pytest.approx([0.1])
    assert "published: 10% to 20%, tf-Darshan (Chien et al. 2020)" in words(spec.drawn())
