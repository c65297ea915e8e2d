"""The burst buffer where all goes well, and where it is used wrongly."""

import contextlib
import os
import signal
import subprocess

import pytest

from jobs.burst_buffer import BurstBuffer
from jobs.errors import RoomError
from jobs.system import clock
from tests.jobs.checkpoints.child import writer
from tests.jobs.checkpoints.shared import (
    ROOT,
    by_hand,
    command,
    drainer_lock,
    in_this_process,
    saved,
    steps,
    waits_for_drainer,
)  # fmt: skip
from tests.jobs.jobs_factory import eventually


def test_the_report_says_when_each_snapshot_was_durable_where(folders):
    with contextlib.closing(BurstBuffer(*folders, bandwidth_mb_per_s=1)) as buffer:
        saved = buffer.save(7, writer(7))
        ended = clock.current_moment()
        assert buffer.wait_until_drained(120)

    (line,) = buffer.report(ended)

    assert (line["step"], line["bytes"], line["retries"]) == (7, 300_101, 0)
    assert line["durable_fast_s"] == line["blocked_s"] == saved.blocked_s >= saved.write_s > 0
    assert line["drain_s"] >= 0.3  # 0.3 MB at 1 MB/s
    assert 0 < line["exposed_s"] <= line["drain_s"]
    assert line["durable_slow_s"] >= line["drain_s"]
    assert buffer.report()[0]["exposed_s"] == 0.0


def test_a_second_drainer_waits_for_the_first_and_says_so(folders, idle):
    saved(folders, 1)
    with drainer_lock(folders[0]):
        second = subprocess.Popen(command("drain", *folders), cwd=ROOT, stderr=subprocess.PIPE, text=True)
        assert eventually(lambda: waits_for_drainer(folders[0]))
        assert steps(folders[1]) == []

    said = f"waiting for the drainer of {folders[0]}, which stays as long as its trainer\n"
    assert (second.communicate(timeout=120)[1], second.returncode) == (said, 0)
    assert steps(folders[1]) == [1]


def test_too_little_room_for_one_snapshot_is_said_before_the_training(folders):
    with pytest.raises(RoomError, match="does not fit"):
        BurstBuffer(*folders, snapshot_bytes=10**16)


@pytest.mark.parametrize(
    "options",
    [
        *({"keep": 0}, {"streams": 0}, {"attempts": 0}, {"bandwidth_mb_per_s": 0}, {"backoff_s": -1}),
        *({"keep": 1.5}, {"attempts": "3"}),
    ],
)
def test_what_cannot_be_meant_is_refused(folders, options):
    with pytest.raises(ValueError, match=r"negative|1 or more|more than 0|whole numbers"):
        BurstBuffer(*folders, **options)


def test_what_is_listed_for_a_program_that_reads_no_more_is_no_error(folders, idle):
    with contextlib.closing(BurstBuffer(*folders)) as buffer:
        buffer.save(1, writer(1))
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as nobody:
        done = by_hand("list", *folders, stdout=nobody)

    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_a_folder_of_any_name_stands_on_one_line_and_acts_on_no_terminal(tmp_path, idle, capsys):
    places = [tmp_path / "two\nlines\x1b[31m" / side for side in ("fast", "slow")]
    places[0].parent.mkdir()
    saved(places, 1)

    said = [in_this_process(capsys, verb, *places) for verb in ("list", "clear", "list")]

    assert all("two\\nlines\\x1b[31m" in out + error and "\x1b" not in out + error for _, out, error in said)
    assert [out.count("\n") for _, out, _ in said] == [1, 1, 0]
