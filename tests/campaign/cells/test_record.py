import contextlib
import copy
import errno
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from campaign.cells import record
from campaign.cells.cell import make_cell
from jobs.judging import judge, stopping
from jobs.observe import conditions
from jobs.system import files, untrusted
from tests.campaign.fake_template import COLD, TERMS, failed, figures


def _record(point, *runs, status="ended"):
    """Make a record of runs of a role, a verdict to come, and a rate."""
    made = record.make_record(make_cell(point), {"token": "t"}, {"path": "/d"}, TERMS)
    for role, verdict, rate in runs:
        spoilt = figures(rate, resident_fraction=1.0)
        made_of = {"valid": figures(rate), "invalid": spoilt, "failed": failed("killed")}
        record.begin_run(made, role, "t").update(made_of[verdict])
    return {**made, "status": status}


def test_a_cell_with_enough_valid_runs_is_done_with_its_spread(point):
    made = _record(point, ("warmup", "valid", 900), *[("measured", "valid", rate) for rate in (100, 113, 91, 104, 98)])

    for limit, passed in ((0.219, False), (0.22, True), (0.221, True)):
        found = judge.judge_record(made, {**TERMS, "checks": {**TERMS["checks"], "spread_max": limit}})

        (spread,) = found["checks"]
        assert (found["status"], spread["observed"], spread["passed"]) == ("done", pytest.approx(0.22), passed)


LOOSE = {**TERMS, "checks": {**TERMS["checks"], "resident_max": 1.0}}


def test_a_verdict_has_nothing_of_one_by_other_terms_and_changes_no_record(point):
    made = _record(point, *[("measured", "invalid", rate) for rate in (100, 113, 91, 104, 98)])
    before = copy.deepcopy(made)

    loosely = judge.judge_record(made, LOOSE)

    assert (loosely["status"], len(loosely["looser_checks"])) == ("done", 1)
    assert judge.judge_record(loosely, TERMS) == judge.judge_record(made, TERMS)
    assert judge.judge_record(made, TERMS)["status"] == "invalid"
    assert made == before


@pytest.mark.parametrize(
    ("warmup", "measured", "status", "reason"),
    [
        ("invalid", ["valid"] * 3 + ["invalid"] * 2, "done", None),  # the warm-up counts neither for nor against
        ("valid", ["valid"] * 2, "done", None),  # fewer than the minimum were asked for
        ("valid", ["valid"] * 2 + ["invalid"] * 3, "invalid", "2 of 5 measured runs valid, 3 needed; " + COLD),
        ("failed", ["failed"], "failed", "0 of 1 measured runs valid, 1 needed; killed"),
        ("failed", ["invalid"], "invalid", "0 of 1 measured runs valid, 1 needed; " + COLD),
        ("invalid", ["failed"], "failed", "0 of 1 measured runs valid, 1 needed; killed"),
    ],
)
def test_the_measured_runs_decide_over_a_cell(warmup, measured, status, reason, point):
    made = _record(point, ("warmup", warmup, 9999), *[("measured", each, 100) for each in measured])

    found = judge.judge_record(made, {**TERMS, "runs": 1 + len(measured)})

    assert (found["status"], found["reason"]) == (status, reason)


def test_what_is_missing_follows_from_what_is_there(point):
    done, broken = (
        judge.judge_record(_record(point, *[("measured", "valid", 1)] * valid, ("measured", "invalid", 1)), TERMS)
        for valid in (4, 2)
    )

    assert stopping.missing_runs(None, TERMS) == 5
    assert stopping.missing_runs(done, TERMS) == 0
    assert stopping.missing_runs(done, {**TERMS, "runs": 8}) == 2
    assert stopping.missing_runs(broken, TERMS) == 3


@pytest.fixture
def written(point, tmp_path):
    """A good record on disk: its path and what is in it."""
    made = _record(point, ("measured", "valid", 1))
    path = tmp_path / made["cell"]["id"] / "record.json"
    record.write_record(path, made)
    return path, made


@pytest.mark.parametrize("bad", ["{", '{"schema": 1}'])
def test_a_damaged_record_is_told_and_left_as_it_is(bad, written):
    path, _ = written
    path.write_text(bad)

    with pytest.raises(record.DamagedRecordError, match=r"record\.json is damaged") as caught:
        record.read_record(path)

    assert path.read_text() == bad
    assert record.read_or_fault(path) == (None, caught.value.message)


def test_a_record_in_the_folder_of_another_cell_is_damaged(written):
    path, made = written
    record.write_record(path, {**made, "cell": {**made["cell"], "id": "another"}})

    with pytest.raises(record.DamagedRecordError, match="it is the record of another cell, another"):
        record.read_record(path)


def test_a_newer_record_is_refused_with_the_cure(tmp_path):
    path = tmp_path / "record.json"
    path.write_text(json.dumps({"schema": 2, "runs": [], "status": "done"}))

    with pytest.raises(record.NewerRecordError, match="newer") as caught:
        record.read_record(path)

    assert "update" in caught.value.hint
    assert caught.value.exit_code == 3


@pytest.fixture
def mood(monkeypatch):
    """A function that lets the file system answer so many reads with this error; returns the folders then opened."""

    def answer(number, times):
        left, opened, read, scan = [number] * times, [], untrusted.read_bounded, os.scandir

        def read_file(*words):
            if left:
                raise OSError(left.pop(), "the file system's mood")
            return read(*words)

        monkeypatch.setattr(untrusted, "read_bounded", read_file)
        monkeypatch.setattr("campaign.cells.record.os.scandir", lambda folder: (opened.append(folder), scan(folder))[1])
        return opened

    return answer


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ESTALE])
def test_what_an_nfs_client_remembers_of_a_record_is_asked_for_anew(number, written, mood):
    path, made = written
    opened = mood(number, 1)

    assert record.read_record(path) == made
    assert opened == [path.parent.parent, path.parent]
    path.unlink()
    assert record.read_or_fault(path) == (None, None)


@pytest.mark.parametrize(
    ("number", "times", "cure"),
    [(errno.ESTALE, 2, "repair the file"), (errno.EIO, 1, "repair the file"), (errno.EACCES, 1, "private")],
)
def test_a_record_that_the_file_system_does_not_give_is_not_called_damaged(number, times, cure, written, mood):
    mood(number, times)

    with pytest.raises(record.UnreadableRecordError, match="cannot read") as caught:
        record.read_record(written[0])

    assert not isinstance(caught.value, record.DamagedRecordError)
    assert caught.value.exit_code == 3
    assert cure in caught.value.hint


def test_a_record_of_a_node_that_cannot_tell_what_the_data_lie_on_is_read(written, tmp_path):
    path, made = written

    record.write_record(path, made | {"provenance": conditions.describe_node(tmp_path / "not here: a bucket, say")})

    assert record.read_record(path)["provenance"]["mount"] == conditions.UNKNOWN


def test_a_record_is_whole_whenever_its_writer_is_killed(written):
    path, made = written
    made["runs"] = [{**made["runs"][0], "filler": "x" * 20000}] * 20
    for rounds in (1, 2, 5, 9):
        seen, tell = os.pipe()
        writer = os.fork()
        if not writer:
            try:
                while True:
                    record.write_record(path, made)
                    os.write(tell, b".")
            finally:
                os._exit(1)
        for _ in range(rounds):
            os.read(seen, 1)

        os.kill(writer, signal.SIGKILL)

        assert os.waitstatus_to_exitcode(os.waitpid(writer, 0)[1]) == -signal.SIGKILL
        assert len(record.read_record(path)["runs"]) == 20
        os.close(seen)
        os.close(tell)


@pytest.fixture
def time(clock):
    return clock(files)


@pytest.fixture
def broken_disk(small_disk, time):
    """A function that fills a small disk or makes it read-only; it is mended as soon as somebody waits for it."""

    def broken(how):
        def remount(mode):
            subprocess.run(["mount", "-o", f"remount,{mode}", str(small_disk)], check=True)

        if how == "full":
            (small_disk / "ballast").write_bytes(b"x" * 65536)
        else:
            remount("ro")
        time.sleep = lambda _: (small_disk / "ballast").unlink() if how == "full" else remount("rw")
        return small_disk

    return broken


@pytest.mark.parametrize("disk", [("full", "No space left on device"), ("ro", "Read-only file system"), ("full", None)])
def test_a_disk_that_is_full_or_read_only_for_a_while_is_waited_for(disk, broken_disk, point, monkeypatch, capfd):
    (how, said), made = disk, _record(point, ("measured", "valid", 1))
    path = broken_disk(how) / made["cell"]["id"] / "record.json"

    with Path(os.devnull if said else "/dev/full").open("w") as log:
        if not said:  # the log is full, too
            monkeypatch.setattr("sys.stderr", log)
        record.write_record(path, made, patience_s=10)
        monkeypatch.undo()
        with contextlib.suppress(OSError):
            log.close()

    assert record.read_record(path) == made
    assert not said or f"{said}); trying again" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("patience_s", "pauses"), [(0, []), (60, [0.5, 1, 2, 4, 8, 10, 10, 10, 10])], ids=["none", "a minute"]
)
def test_past_its_patience_a_record_that_cannot_be_written_is_an_error_and_the_old_one_is_whole(
    patience_s, pauses, small_disk, point, time
):
    made, waited, sleep = _record(point, ("measured", "valid", 1)), [], time.sleep
    path = small_disk / made["cell"]["id"] / "record.json"
    record.write_record(path, made)
    (small_disk / "ballast").write_bytes(b"x" * (os.statvfs(small_disk).f_bavail * 4096))
    time.sleep = lambda seconds: (waited.append(seconds), sleep(seconds))

    with pytest.raises(OSError, match="No space left"):
        record.write_record(path, {**made, "filler": "y" * 70000}, patience_s=patience_s)

    assert record.read_record(path) == made
    assert waited == pauses
