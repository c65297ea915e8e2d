"""Our windows in TensorFlow's own traces, held against what TensorFlow recorded in the same traces."""

import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobs.profiler import ProfileCallback, ProfilerError, TensorFlowProfile, tensorflow_profiles
from jobs.profiler.tensorboard_files import LINES
from tests.jobs.events.spaces import messages

FILES, BYTES = 12, 3000


@pytest.fixture
def traces(job, tmp_path):
    """Return what lies in a folder of TensorBoard's: the planes of each trace by name, in order of time."""
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    for place in range(FILES):
        (data / f"{place:02}").write_bytes(bytes(BYTES))
    job("three_ways", of="tests.jobs.profiler.tensorflow_jobs", folder=str(data), out=str(out))
    found = {}
    for path in sorted(out.rglob("*.xplane.pb")):
        space = messages().XSpace.FromString(path.read_bytes())
        found.setdefault(path.relative_to(out).parts[0], []).append({plane.name: plane for plane in space.planes})
    assert not [path for path in out.rglob(".*") if path.is_dir()]  # nothing on the way is left
    assert len(list((out / "fit").glob("events.out.tfevents.*"))) == 2
    return found


def _events(plane, name):
    """Return start and end (ps) of the events of a name, on the clock of the whole trace."""
    return [
        (begin := line.timestamp_ns * 1000 + event.offset_ps, begin + event.duration_ps)
        for line in plane.lines
        for event in line.events
        if plane.event_metadata[event.metadata_id].name == name
    ]


def _bytes_read(plane):
    """Return what the reads of our plane have returned, added."""
    numbers = {key: each.name for key, each in plane.stat_metadata.items()}
    stats = (
        stat
        for line in plane.lines
        for event in line.events
        if plane.event_metadata[event.metadata_id].name == "pread"
        for stat in event.stats
    )
    return sum(stat.int64_value for stat in stats if numbers[stat.metadata_id] == "returned")


def test_each_way_of_profiling_has_our_window_in_tensorflows_trace(traces):
    assert {name: len(found) for name, found in traces.items()} == {
        "block": 2,
        "failed": 1,
        "fit": 2,
        "remote": 1,
        "taken": 1,
    }
    for planes in traces["block"]:
        ours, host = planes[LINES], planes["/host:CPU"]
        assert [line.name.rpartition("/")[2] for line in ours.lines] != []
        assert len({line.name for line in ours.lines}) == len(ours.lines) == FILES
        ops = _events(host, "ReadFile:ReadFile")
        assert len(ops) == FILES
        for name, count in (("open", 1), ("pread", 2), ("close", 1)):
            calls = _events(ours, name)
            assert len(calls) == count * FILES
            # TensorFlow's own clock: each call lies in one of its operations, which is a proof of ours.
            assert all(any(begin <= start and end <= until for begin, until in ops) for start, end in calls)
        assert _bytes_read(ours) == FILES * BYTES
    for planes in traces["fit"]:
        names = planes["/host:CPU"].event_metadata.values()
        assert Counter(meta.name for meta in names)["train"] == 1
        assert len(_events(planes["/host:CPU"], "train")) == 2  # a marker for each of the batches asked for
    (remote,) = traces["remote"]
    assert _bytes_read(remote[LINES]) == BYTES * len(_events(remote[LINES], "pread")) // 2 > 0
    (taken,) = traces["taken"]
    assert ["a window is open already" in line.name for line in taken[LINES].lines] == [True]


def test_what_was_not_started_is_not_stopped(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    kept = tmp_path / "file"
    kept.touch()

    with pytest.raises(ProfilerError, match="no profile was started"):
        TensorFlowProfile(tmp_path).stop()

    assert kept.exists()


@pytest.mark.parametrize("asked", [{"batches": (3, 2)}, {"batches": (-1, 2)}, {"batches": (2, 9), "every": 7}])
def test_batches_that_are_no_range_are_refused(asked, tmp_path):
    with pytest.raises(ProfilerError, match="batches"):
        ProfileCallback(tmp_path, **asked)


def test_traces_of_one_second_get_names_of_their_own_and_a_window_that_others_ended_is_told(tmp_path, monkeypatch):
    def start(folder):
        made = Path(folder, "plugins/profile/2026")
        made.mkdir(parents=True)
        (made / "vm.xplane.pb").touch()

    profiler = SimpleNamespace(start=start, stop=lambda **_: None)
    fake = SimpleNamespace(profiler=SimpleNamespace(experimental=profiler))
    monkeypatch.setattr(tensorflow_profiles, "tf", fake)
    monkeypatch.setattr(tensorflow_profiles, "join_tensorflow", lambda **_: None)
    monkeypatch.setattr(tensorflow_profiles, "SESSION", SimpleNamespace(fault=None, profile=True, window=None))
    for _ in range(3):
        profile = TensorFlowProfile(tmp_path)
        profile.start()
        with pytest.raises(ProfilerError, match="other code ended the window"):
            profile.stop()

    assert sorted(path.name for path in (tmp_path / "plugins/profile").iterdir()) == ["2026", "2026_2", "2026_3"]
    assert [path.name for path in tmp_path.iterdir()] == ["plugins"]
