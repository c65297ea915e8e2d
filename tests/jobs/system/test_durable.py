"""Storages that are full, or away for a while."""

import errno
import os
from types import SimpleNamespace

import pytest

from jobs.system import durable

NS = SimpleNamespace(f_bavail=3_000_000, f_blocks=9_000_000, f_bfree=5_000_000, f_frsize=4096, f_bsize=1 << 20)


def test_what_this_user_may_still_write_is_what_is_free(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda _: NS)

    assert durable.free_bytes(tmp_path) == 3_000_000 * 4096
    assert durable.lack_of_room(tmp_path, 3_000_000 * 4096) == ""
    lack = durable.lack_of_room(tmp_path, 17_000_000_000)
    assert lack == f"{tmp_path} needs 17,000 MB more, and its device has 12,288 MB free"
    assert durable.lack_of_room(tmp_path, 3_000_000 * 4096 + 1)


@pytest.mark.parametrize(
    ("error", "is_full"),
    [
        (OSError(errno.ENOSPC, "x"), True),
        (OSError(errno.EDQUOT, "x"), True),
        (OSError(errno.EIO, "x"), False),
        (ValueError("write: No space left on device [Op:SaveV2]"), True),
        (ValueError("Disk quota exceeded"), True),
        (ValueError("x"), False),
    ],
)
def test_a_full_storage_is_told_by_the_number_of_the_error_or_its_text(error, is_full):
    assert durable.is_full(error) is is_full


@pytest.fixture
def clock(clock, monkeypatch):
    monkeypatch.setattr("time.monotonic", clock.now)
    return clock


@pytest.mark.parametrize(
    ("fails", "timeout_s", "waited_s"), [(0, 0.0, 0.0), (3, 3.5, 3.5), (9, 60.0, 55.5), (3, 3.4, None)]
)
def test_a_write_is_tried_again_at_growing_intervals_for_as_long_as_is_allowed(
    fails, timeout_s, waited_s, clock, capfd
):
    began_s, left = clock.now(), [fails]

    def write():
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(errno.ENOSPC, "No space left on device", "/x")
        return "written"

    if waited_s is None:
        with pytest.raises(OSError, match="No space"):
            durable.keep_trying(write, timeout_s)
    else:
        assert durable.keep_trying(write, timeout_s) == "written"
        assert clock.now() - began_s == waited_s  # 0.5 + 1 + 2 + 4 + 8 + 10 ... s
        assert capfd.readouterr().err.count("cannot write /x (No space left on device)") == fails
