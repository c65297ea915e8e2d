"""A window whose memory is a file: what is left in it, and what is refused."""

import signal

import pytest

from jobs.events.posix_window import MODES
from jobs.profiler import Profile, ProfilerError, saved_profiles
from tests.jobs.profiler.test_beside import python

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
