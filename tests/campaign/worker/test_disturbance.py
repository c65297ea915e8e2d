"""What a worker does where others disturb its runs."""

import json

import pytest

from campaign.cluster import progress
from campaign.cluster.cell_state import WorkerState
from campaign.errors import EnvironmentFaultError, NotQuietError
from campaign.worker import __main__ as worker
from campaign.worker import session
from jobs import checks
from jobs.checks import Limits
from jobs.model.codes import wait_sentence
from tests.campaign.fake_template import FakeTemplate, figures
from tests.campaign.work_lists import judged, walk

pytestmark = pytest.mark.usefixtures("cpus")
BUSY = {"other_cpu": 1.83, "device_use": [], "elapsed_s": 1.0}


def disturbed():
    """A run that nothing but `quiet` fails."""
    return figures(**BUSY)


@pytest.fixture
def seconds(clock, monkeypatch):
    """A function that gives how others are in each second that is looked at, and are at last for ever."""
    given = clock(session)

    def others(*cores):
        seen = list(cores)

        def look(_folder, limits):
            given.sleep(1)
            busy = seen.pop(0) if len(seen) > 1 else seen[0]
            return checks.quiet({**BUSY, "other_cpu": busy}, Limits(**limits))

        monkeypatch.setattr(session, "check_quiet", look)
        return given

    return others


@pytest.mark.parametrize("patience_s", [0, 30])
def test_after_two_disturbed_runs_it_waits_for_quiet_and_then_ends(patience_s, folder, work, seconds):
    given = seconds(2.5)
    began = given.now
    work["conduct"]["wait_quiet_s"] = patience_s
    template = FakeTemplate(*[disturbed()] * 20)

    with pytest.raises(NotQuietError, match=r"2 runs in succession were disturbed, others kept 1\.83") as caught:
        worker.Worker(folder, work, template).run_all()

    assert len(template.asked) == 2
    assert patience_s <= given.now - began <= patience_s + 2
    assert "when the machine is quiet" in caught.value.hint
    found = judged(folder, work)[0]
    assert (found["status"], len(found["runs"])) == ("invalid", 2)
    assert not folder.record(work["cells"][1]["id"]).exists()


@pytest.mark.parametrize(
    ("others", "runs"),
    [
        ((2.5, 2.5, 0.1), ["invalid"] * 2 + ["valid"] * 4),  # until they are quiet again
        ((), ["valid", "invalid"] * 2 + ["valid"] * 2),
        ((0.1,), ["invalid"] * 4),  # what disturbs runs alone ends the cell, and not the others
    ],
)
def test_others_are_waited_for_after_two_disturbed_runs_in_succession(others, runs, folder, work, seconds):
    given = seconds(*others)
    began = given.now

    _, found = walk(folder, work, *(figures() if status == "valid" else disturbed() for status in runs))

    assert given.now - began == len(others)
    assert [run["status"] for run in found[0]["runs"]] == runs
    assert [each["status"] for each in found[1:]] == ["done", "done"]


def test_without_patience_runs_go_on_as_they_are(folder, one, seconds):
    seconds(2.5)
    one["conduct"]["wait_quiet_s"] = None

    template, _ = walk(folder, one, *[disturbed()] * 20)

    assert len(template.asked) == 6


def test_while_it_waits_that_is_shown_with_the_key_and_on_a_log_once(folder, one, seconds, monkeypatch, capsys):
    given = seconds(*[2.5] * 12, 0.1)
    share = progress.CellShare(one["cells"][0]["id"], 5, 5, one["cells"][0]["settings"])
    follower = progress.Follower(folder, [share], 1, one["token"])
    pictures, look = [], session.check_quiet

    def looked(*words):
        pictures.append(progress.WatchedWorkers({0: follower}).take_picture({0: WorkerState("running")}))
        return look(*words)

    monkeypatch.setattr(session, "check_quiet", looked)
    walk(folder, one, *[disturbed()] * 2)

    said = [*dict.fromkeys(wait_sentence(wait) for picture in pictures for wait in picture.waits)]
    assert len(said) == 3
    assert said[0].startswith("the machine to become quiet, 120 s at most (wait_quiet_s): 2 runs in succession")
    assert "others kept 1.83 cores busy" in said[0]
    assert "; now others kept 2.50 cores busy" in said[0]
    assert [each.rpartition(", ")[2] for each in said] == ["1 s so far", "6 s so far", "11 s so far"]
    with progress.open_display(lambda _: None) as show:
        for picture in pictures:
            show(picture)
    assert capsys.readouterr().err.count("become quiet") == 1
    assert given.now > 0


def test_the_front_process_is_told_that_another_try_may_do_better(folder, one, seconds, monkeypatch):
    seconds(2.5)
    path = folder.workers / "first-0" / "work-0.json"
    path.parent.mkdir()
    path.write_text(json.dumps(one))
    monkeypatch.setattr(worker, "Template", lambda *_: FakeTemplate(*[disturbed()] * 20))

    with pytest.raises(EnvironmentFaultError):
        worker.main(str(path))

    assert json.loads(path.with_suffix(".error.json").read_text())["not_quiet"] is True


def test_a_second_of_rest_is_judged_by_the_limits_of_the_runs(tmp_path):
    assert session.check_quiet(tmp_path, {"other_cpu_max": 1e4, "other_device_max": 1})["passed"] is not False
    limits = session.check_quiet(tmp_path, {"other_cpu_max": -1.0, "other_device_max": 0.25})["limit"]
    assert limits == {"other_cpu": -1.0, "other_device": 0.25}
