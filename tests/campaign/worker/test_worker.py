import errno
import json
import signal
from contextlib import nullcontext
from pathlib import Path

import pytest

from campaign.cells import record
from campaign.errors import EnvironmentFaultError, NotQuietError
from campaign.worker import __main__ as worker
from campaign.worker import session
from campaign.worker.__main__ import Worker
from campaign.worker.batch import CampaignCall
from campaign.worker.session import WorkerStoppedError
from tests.campaign.fake_template import FakeTemplate, failed, figures, invalid
from tests.campaign.work_lists import UTC, walk

pytestmark = pytest.mark.usefixtures("cpus")


def test_each_cell_gets_its_warm_up_and_its_measured_runs_as_the_cell_says(folder, work):
    work["conduct"]["run_timeout_s"] = 77

    template, records = walk(folder, work)

    assert len(template.asked) == 18
    for recorded in records:
        assert recorded["status"] == "done"
        assert [run["role"] for run in recorded["runs"]] == ["warmup", *["measured"] * 5]
        assert [run["run"] for run in recorded["runs"]] == [0, 1, 2, 3, 4, 5]
    argument, log, timeout_s = template.asked[0]
    assert argument["settings"] == work["cells"][0]["settings"]
    assert (log, timeout_s) == (folder.cell(work["cells"][0]["id"]) / "run-0.log", 77)


@pytest.mark.parametrize(("answer", "is_there"), [({"name": "gpu"}, True), (failed("no GPU is visible"), False)])
def test_where_any_cell_needs_a_gpu_it_is_looked_for_before_all_runs(answer, is_there, folder, work):
    work["cells"][1]["settings"]["accelerator"] = {"name": "gpu"}
    template = FakeTemplate(answer)

    with nullcontext() if is_there else pytest.raises(EnvironmentFaultError, match="no GPU is visible"):
        Worker(folder, work, template).run_all()

    assert template.asked[0][2:] == (120.0, "jobs.benchmarks.accelerator:probe_accelerator")
    assert len(template.asked) == (19 if is_there else 1)


def test_the_record_is_on_disk_before_during_and_after_each_run(folder, one):
    seen = []
    path = folder.record(one["cells"][0]["id"])

    class Looking(FakeTemplate):
        def run(self, *request):
            seen.append([run["status"] for run in record.read_record(path)["runs"]])
            return super().run(*request)

    Worker(folder, one, Looking()).run_all()

    assert seen[:3] == [["running"], ["ended", "running"], ["ended", "ended", "running"]]


@pytest.mark.parametrize(
    ("answers", "runs", "status"),
    [
        ([figures(), failed()], ["valid", "failed", *["valid"] * 4], "done"),
        ([failed(), failed()], ["failed"] * 2, "failed"),
        ([invalid()] * 6, ["invalid"] * 6, "invalid"),
    ],
    ids=["one fails", "two in a row end the cell", "invalid ones are kept"],
)
def test_what_fails_takes_no_other_cell_down(answers, runs, status, folder, work):
    _, records = walk(folder, work, *answers)

    assert [run["status"] for run in records[0]["runs"]] == runs
    assert [recorded["status"] for recorded in records] == [status, "done", "done"]
    assert {run.get("log_tail") for run in records[0]["runs"] if run["status"] == "failed"} <= {"the last words"}
    assert status != "failed" or "killed by signal 9" in records[0]["reason"]


def test_a_stopped_worker_keeps_what_was_measured_and_tells_of_the_run_under_way(folder, work):
    with pytest.raises(WorkerStoppedError):
        walk(folder, work, figures(), figures(), WorkerStoppedError())

    recorded = record.read_record(folder.record(work["cells"][0]["id"]))
    assert [run["status"] for run in recorded["runs"]] == ["ended", "ended", "failed"]
    assert recorded["runs"][2]["end"] == {"code": "stopped"}
    assert recorded["status"] == "running"


def test_no_warm_up_where_none_is_asked_for(folder, work):
    work["conduct"]["warmup_runs"] = 0

    _, records = walk(folder, work)

    assert [run["role"] for run in records[0]["runs"]] == ["measured"] * 6


@pytest.mark.parametrize(
    ("trace", "asked"),
    [
        ({"interval_s": 0.5, "tail_s": 2.0}, {"interval_s": 0.5, "tail_s": 2.0, "file": "trace-0.csv"}),
        ({"interval_s": None, "tail_s": 0.0}, None),
    ],
)
def test_a_run_is_traced_as_it_is_asked_for(folder, work, trace, asked):
    work["conduct"]["trace"] = trace

    template, _ = walk(folder, work)

    found = template.asked[0][0]["trace"]
    assert found and found | {"file": Path(found["file"]).name} == asked if asked else found is None


def test_the_provenance_stands_in_the_record(folder, work):
    _, records = walk(folder, work)

    provenance = records[0]["provenance"]
    assert provenance["versions"]["tensorflow"][0].isdigit()
    assert provenance["mount"]["fstype"]
    assert provenance["started_utc"] < provenance["finished_utc"]
    assert records[0]["campaign"] == {
        "token": "first", "words": ["-m", "threads=1,2,4"], "submitted_utc": UTC, "position": 0, "order_seed": 0,
        "attempt": 0, "size": None, "site": "none",
    }  # fmt: skip
    assert [each["token"] for each in records[0]["sittings"]] == ["first"]
    where = {"host": "h", "node": "n1", "job": "77", "cpus": 4}
    assert all(run.items() >= where.items() for run in records[0]["runs"])


def test_in_a_job_with_fewer_cpus_than_threads_the_cell_is_refused_at_once(folder, job, cpus):
    cpus(2)

    template, records = walk(folder, job())

    assert [recorded["status"] for recorded in records] == ["done", "done", "failed"]
    assert [argument["settings"]["threads"] for argument, _, _ in template.asked] == [1] * 6 + [2] * 6
    (run,) = records[2]["runs"]
    assert run["status"] == "failed"
    assert run["reason"].startswith("threads=4 and the job may use 2 CPUs; set cluster.cpus_per_task=4")
    assert "threads=4 and the job may use 2 CPUs" in records[2]["reason"]


@pytest.mark.parametrize("where", ["a job that asks for it", "this machine"])
def test_a_cell_may_have_more_threads_than_cpus_where(where, folder, job, work, cpus):
    cpus(1)

    _, records = walk(folder, work if where == "this machine" else job(oversubscribe=True))

    assert [recorded["status"] for recorded in records] == ["done"] * 3
    assert records[2]["runs"][0]["cpus"] == 1


@pytest.mark.parametrize(
    ("asked_for", "hows"),
    [
        ("lock", ["lock", "lock"]),
        ("license", ["license", "lock"]),
        ("singleton", ["singleton", "lock"]),
        ("none", ["none", "none"]),
    ],
)
def test_outside_slurm_the_lock_stands_for_what_only_slurm_can_do(asked_for, hows, folder, job, work):
    remote = job()
    remote["cells"], work["cells"] = remote["cells"][:1], work["cells"][1:2]
    for item in (*remote["cells"], *work["cells"]):
        item["access"]["exclusive"] = asked_for

    found = [walk(folder, each)[1][0]["runs"][0]["exclusive"]["how"] for each in (remote, work)]

    assert found == hows


@pytest.fixture
def listed(tmp_path):
    """A function that writes a work list to a file and returns its path."""

    def write(work):
        path = tmp_path / "work-0.json"
        path.write_text(json.dumps(work))
        return path

    return write


@pytest.fixture
def answers(monkeypatch):
    """What the templates that `worker.main` starts answer."""
    given = []
    monkeypatch.setattr(worker, "Template", lambda *_: FakeTemplate(*given))
    return given


@pytest.mark.parametrize(
    ("given", "code"),
    [([], 0), ([failed(), failed()], 1), ([WorkerStoppedError(signal.SIGTERM)], 143)],
)
def test_the_exit_code_tells_slurm_how_the_list_ended_and_the_handlers_are_given_back(
    given, code, job, listed, answers
):
    answers += given
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR2)]

    assert worker.main(str(listed(job()))) == code
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR2)] == before


def test_a_job_that_makes_data_makes_all_of_them_and_has_no_run(job, listed, answers, monkeypatch):
    made, work = [], job()
    monkeypatch.setattr(session, "make_missing_data", lambda folder, item, progress: made.append(item["id"]))
    work |= {"cells": [], "to_make": work["cells"]}

    assert worker.main(str(listed(work))) == 0
    assert made == [item["id"] for item in work["to_make"]]


def test_a_campaign_is_known_by_its_first_request(folder, work):
    first, later, other = (
        CampaignCall(folder, work["conduct"], token, UTC, (), first_token=first)
        for token, first in (("first", ""), ("second", "first"), ("second", ""))
    )

    assert work["campaign_id"] == first.campaign_id == later.campaign_id != other.campaign_id


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (EnvironmentFaultError("no TensorFlow", "install it"), {"message": "no TensorFlow", "hint": "install it"}),
        (
            OSError(errno.ENOSPC, "No space left on device", "/f"),
            {
                "message": "the worker cannot continue: /f: No space left on device",
                "hint": "the disk is full: free some space, then run the same command again: recorded runs are kept",
            },
        ),
    ],
)
def test_an_error_of_the_whole_worker_is_left_for_the_front_process_and_forgotten_at_the_next_start(
    error, fault, job, listed, answers
):
    path = listed(job())
    answers.append(error)
    with pytest.raises(type(error)):
        worker.main(str(path))
    left = json.loads(path.with_suffix(".error.json").read_text())
    answers.clear()

    code = worker.main(str(path))

    assert left == fault
    assert code == 0
    assert not path.with_suffix(".error.json").exists()


def test_on_this_machine_there_is_one_worker_at_a_time_in_a_folder_and_in_jobs_there_are_many(
    folder, job, work, listed, monkeypatch
):
    at_work = []
    template = FakeTemplate()
    template.start = lambda: at_work.append(folder.is_worker_running())
    monkeypatch.setattr(worker, "Template", lambda *_: template)
    for each in (work, job()):
        worker.main(str(listed(each)))

    assert at_work == [True, False]


def test_a_worker_that_lost_its_list_ends_with_a_failure_and_leaves_no_word_in_the_other_s_place(
    job, listed, monkeypatch
):
    def taken(*_):
        raise session.TakenOverError(same_list=True)

    monkeypatch.setattr(worker, "Template", lambda *_: FakeTemplate())
    monkeypatch.setattr(session, "require_lease", taken)
    path = listed(job())

    code = worker.main(str(path))

    assert code == 1
    assert not path.with_suffix(".error.json").exists()


def _in_turn(folder, work, *answers):
    work["conduct"]["in_turn"] = True
    template, records = walk(folder, work, *answers)
    names = {item["settings"]["threads"]: index for index, item in enumerate(work["cells"])}
    return [names[asked[0]["settings"]["threads"]] for asked in template.asked], records


def test_cells_take_turns_there_and_back_and_the_runs_of_one_turn_are_a_pair(folder, work):
    order, records = _in_turn(folder, work)

    assert order == [0, 1, 2, 2, 1, 0] * 3
    assert [[run.get("pair") for run in each["runs"]] for each in records] == [[None, 1, 2, 3, 4, 5]] * 3
    assert [each["status"] for each in records] == ["done"] * 3


def test_a_cell_that_is_given_up_leaves_the_others_to_take_turns(folder, work):
    order, records = _in_turn(folder, work, failed(), figures(), figures(), figures(), figures(), failed())

    assert order == [0, 1, 2, 2, 1, 0, 1, 2, 2, 1, 1, 2, 2, 1]
    assert [each["status"] for each in records] == ["failed", "done", "done"]


def test_cells_in_turn_that_were_stopped_go_on_with_new_pairs(folder, work):
    with pytest.raises(WorkerStoppedError):
        _in_turn(folder, work, *[figures()] * 7, WorkerStoppedError())

    _, records = _in_turn(folder, work)

    pairs = [[run["pair"] for run in each["runs"] if "pair" in run and run["status"] != "failed"] for each in records]
    assert pairs == [[1, 2, 4, 5, 6], [1, 4, 5, 6, 7], [1, 4, 5, 6, 7]]
    assert [each["status"] for each in records] == ["done"] * 3


def test_where_the_machine_does_not_become_quiet_all_cells_in_turn_are_settled(folder, work, monkeypatch):
    def never(*_):
        raise NotQuietError("loud", "later")

    monkeypatch.setattr(worker.Disturbance, "may_continue", never)

    with pytest.raises(NotQuietError):
        _in_turn(folder, work)

    found = [record.read_record(folder.record(item["id"])) for item in work["cells"]]
    assert [each and each["status"] for each in found] == ["ended", None, None]


_FEED = {"name": "feed", "engine": "raw", "source": "storage"}


@pytest.mark.parametrize(
    ("benchmarks", "imported"),
    [
        ([{"name": "command"}], False),
        ([{"name": "command"}, {"name": "micro"}], True),
        ([_FEED], False),
        ([_FEED | {"engine": "tf"}], True),
        ([_FEED | {"engine": "tf", "source": "memory"}], False),
    ],
)
def test_tensorflow_is_imported_for_those_who_need_it(benchmarks, imported, one, tmp_path, monkeypatch):
    made, item = [], one["cells"][0]
    one["cells"] = [
        {**item, "benchmark": node["name"], "settings": {**item["settings"], "benchmark": node}} for node in benchmarks
    ]
    (tmp_path / "work-0.json").write_text(json.dumps(one))
    monkeypatch.setattr(worker, "Template", lambda _, preload: made.append(preload) or FakeTemplate())
    monkeypatch.setattr(Worker, "run_all", lambda _: True)

    assert worker.main(str(tmp_path / "work-0.json")) == 0
    assert ("tensorflow" in made[0]) is imported
