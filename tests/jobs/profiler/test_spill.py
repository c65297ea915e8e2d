"""A window whose memory is a file: what is left in it, and what is refused."""

import signal

import pytest

from jobs.events.posix_window import MODES
from jobs.events.table import EventsError
from jobs.profiler import Profile, ProfilerError, profile, saved_profiles
from tests.jobs.profiler.test_beside import python
from tests.jobs.profiler.test_exact import calls

KILLED = """
import os, sys, time
from jobs.profiler import Profile
Profile(mode=sys.argv[3], only=[sys.argv[1]], spill=sys.argv[2], events=1000, max_files=10).start()
fd = os.open(sys.argv[1], os.O_RDONLY)
opened = time.time_ns()
assert len(os.read(fd, 20_000)) == 10_000
print(opened, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("mode", MODES)
def test_what_a_killed_process_had_seen_is_left_in_its_spill(mode, data, tmp_path):
    spill = tmp_path / "spill"

    opened_ns = int(python(KILLED, data, spill, mode, ends=-signal.SIGKILL))

    window = saved_profiles.read_profile(spill)
    assert window.files[str(data)]["POSIX_BYTES_READ"] == 10_000
    assert not window.ended
    assert window.ended_ns > opened_ns  # the read came after the open
    assert "ended within the window" in window.blind_spot()
    with pytest.raises(ProfilerError, match="exists already"):
        Profile(spill=spill).start()


@pytest.mark.parametrize("mode", MODES)
def test_the_spill_of_a_window_that_ended_is_all_of_it(mode, data, tmp_path):
    with Profile(mode, only=[data], spill=tmp_path / "spill", events=1000, max_files=10) as watched:
        data.read_bytes()

    again = saved_profiles.read_profile(tmp_path / "spill")

    assert (again.ended, again.blind_spot(), again.wall_s) == (True, None, watched.window.wall_s)
    assert {path: dict(each) for path, each in again.files.items()} == dict(watched.files.items())


@pytest.mark.parametrize("at", [44, 54])  # of the first event: its file, its operation
def test_a_spill_that_was_torn_is_an_error(at, data, tmp_path):
    with Profile(only=[data], spill=tmp_path / "spill", events=1000, max_files=10):
        data.read_bytes()
    with (tmp_path / "spill").open("r+b") as file:
        file.seek(4096 + at)
        file.write(b"\xff\x7f")

    with pytest.raises(EventsError, match="its events do not match its files"):
        saved_profiles.read_profile(tmp_path / "spill")


@pytest.mark.parametrize(
    ("name", "events", "why"),
    [
        ("spill", 1 << 30, "could not be read again"),
        ("none/spill", 10, r"/none/spill cannot be made: No such file.*; name a file in a"),
    ],
)
def test_a_spill_that_could_not_be_read_again_or_cannot_be_made_is_refused(name, events, why, tmp_path):
    with pytest.raises(ProfilerError, match=why):
        Profile(spill=tmp_path / name, events=events).start()


def test_a_window_that_cannot_open_leaves_the_other_and_no_spill(data, tmp_path, monkeypatch):
    with Profile(only=[data]) as watched:
        with pytest.raises(ProfilerError, match="only one"):
            Profile(spill=tmp_path / "spill", events=10).start()
        monkeypatch.setattr(profile, "_open_profiles", list)
        with pytest.raises(ProfilerError, match="cannot open a window"):
            Profile(spill=tmp_path / "spill", events=10, max_files=10).start()
        data.read_bytes()

    assert calls(watched)["open"] == 1
    assert not (tmp_path / "spill").exists()
