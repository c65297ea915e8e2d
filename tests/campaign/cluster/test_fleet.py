from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path

import pytest

from campaign.cells import record
from campaign.cluster import choice, fleet
from campaign.cluster.progress import Seen
from campaign.errors import UsageError
from campaign.slurm import client, job, scheduler
from campaign.slurm.client import Facts
from campaign.worker.batch import Batch, read_all
from tests.campaign.fake_slurm import Clock

UTC = "2026-11-21T09:00:00.000Z"
LATER = "2026-11-22T10:00:00.000Z"
NO_ACCOUNTING = Facts("AccountingStorageType = accounting_storage/none")
SLURMDBD = Facts("AccountingStorageType = accounting_storage/slurmdbd")
CONFIG = """\
Configuration data as of 2026-11-21T12:34:31
AccountingStorageHost   = localhost
AccountingStorageType   = accounting_storage/slurmdbd
ClusterName             = lab
JobCompHost             = localhost
JobCompLoc              = /var/log/slurm/job completions.log
JobCompType             = jobcomp/filetxt
MaxArraySize            = 2001
MinJobAge               = 3600 sec
SLURM_CONF              = /etc/slurm/slurm.conf
SLURM_VERSION           = 22.05.8
SlurmctldParameters     = enable_configless,idle_on_node_suspend=1

Slurmctld(primary) at n1 is UP
"""


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(fleet, "time", clock)  # not time.sleep itself: subprocess naps with it
    monkeypatch.setattr(scheduler, "time", clock)
    return clock


@pytest.fixture
def ids(cells):
    return [cell.id for cell in cells[0]]


@pytest.fixture
def batch(folder, ids):
    """A function that makes and saves a batch: the first worker has two cells, the second one."""

    def make(name="first-0", where="slurm", utc=UTC, **more):
        token = name.partition("-")[0]
        made = Batch(folder.workers / name, where, token, f"tfio-{token}", [ids[:2], ids[2:]], utc, **more)
        made.save()
        return made

    return make


@pytest.fixture
def recorded(folder, cells):
    """A function that writes the record of a cell, with one run that is open or over."""

    def write(number, status="running", token="first"):
        cell = cells[0][number]
        made = record.new(cell, {"token": token}, {})
        record.begin_run(made, "measured", token)["status"] = "running" if status == "running" else "valid"
        made["status"] = status
        record.write(folder.record(cell.id), made)
        return cell.id

    return write


def _task(batch, index, state, reason="None", node=""):
    return f"70|{index}|{state}|{reason}|{node}|{batch.folder}"


def _key(batch, index):
    return str(batch.folder), index


def _ended_fleet(folder, programs, batch, *states):
    """A fleet whose workers the controller shows as given."""
    programs.answer("squeue", *(_task(batch, index, state, node="n1") for index, state in enumerate(states)))
    found = fleet.of(folder, NO_ACCOUNTING)
    found.refresh()
    return found


def test_open_are_the_workers_on_the_cluster_of_which_nobody_knows_the_end(folder, batch):
    first, second = batch(), batch("second-0")
    batch("third-0", where="local")
    batch("fourth-0", refused="invalid partition")
    second.save_ends({0: "done"})

    found = fleet.of(folder, NO_ACCOUNTING)

    assert set(found.open) == {_key(first, 0), _key(first, 1), _key(second, 1)}
    assert found.seen == dict.fromkeys(found.open, Seen("unknown", "submitted"))
    assert found.batch(_key(second, 1)) == second


def test_facts_are_asked_of_the_cluster_where_nobody_knows_them_yet(folder, programs):
    programs("scontrol", "echo 'ClusterName = lab'")

    fleet.of(folder)

    assert programs.calls == ["scontrol show config"]


def test_workers_are_seen_queued_running_and_ended(folder, batch, programs):
    first, second = batch(), batch("second-0")
    programs.answer(
        "squeue",
        _task(first, 0, "PENDING", "Priority"),
        _task(first, 1, "RUNNING", node="n3"),
        _task(second, 0, "NODE_FAIL", "NodeDown", "n6"),
    )
    found = fleet.of(folder, NO_ACCOUNTING)

    seen = found.refresh()

    assert seen == {
        _key(first, 0): Seen("queued", "Priority", "70_0"),
        _key(first, 1): Seen("running", "", "n3"),
        _key(second, 0): Seen("ended", "NODE_FAIL on n6", ""),
        _key(second, 1): Seen("unknown", "submitted"),
    }
    assert set(found.open) == {_key(first, 0), _key(first, 1), _key(second, 1)}


def test_a_worker_that_ended_is_said_to_have_been_where_it_ran(folder, batch, programs, clock):
    made = batch()
    programs.answer("squeue", _task(made, 0, "RUNNING", node="n3"))
    found = fleet.of(folder, NO_ACCOUNTING)
    found.refresh()
    programs.answer("squeue", _task(made, 0, "TIMEOUT", "TimeLimit", "n3"))

    clock.now += 2.0
    seen = found.refresh()

    assert seen[_key(made, 0)] == Seen("ended", "TIMEOUT on n3", "n3")


def test_a_worker_whose_cells_are_over_is_looked_for_no_more(folder, batch, programs):
    made = batch()
    found = fleet.of(folder, NO_ACCOUNTING)

    found.close([_key(made, 0), _key(made, 1), ("/elsewhere", 0)])
    seen = found.refresh()

    assert not found.open
    assert seen == {_key(made, 0): Seen("ended", "done"), _key(made, 1): Seen("ended", "done")}
    assert programs.calls == []


def test_a_known_end_is_not_taken_back_by_a_record_that_is_over(folder, batch, programs):
    made = batch()
    found = _ended_fleet(folder, programs, made, "NODE_FAIL", "RUNNING")

    found.close([_key(made, 0)])

    assert found.seen[_key(made, 0)].why == "NODE_FAIL on n1"


def test_the_scheduler_is_asked_every_two_seconds_at_first_and_every_fifteen_while_nothing_changes(
    folder, batch, programs, clock
):
    made = batch()
    programs.answer("squeue", _task(made, 0, "RUNNING", node="n1"), _task(made, 1, "RUNNING", node="n1"))
    found = fleet.of(folder, NO_ACCOUNTING)
    asked = []

    for _ in range(160):
        before = len(programs.calls)
        found.refresh()
        asked += [clock.now] * (len(programs.calls) - before)
        clock.now += 0.5

    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert pauses[0] == 2.0
    assert pauses == sorted(pauses)
    assert pauses[-1] == 15.0


def test_one_question_asks_for_all_batches_by_their_names(folder, batch, programs):
    made = [batch(), batch("second-0"), batch("second-1")]
    programs.answer("squeue", *(_task(each, index, "RUNNING") for each in made for index in (0, 1)))

    fleet.of(folder, NO_ACCOUNTING).refresh()

    (call,) = programs.calls
    assert "--name=tfio-first,tfio-second " in call


def test_the_accounting_is_asked_from_the_day_before_the_first_submission(folder, batch, programs, clock):
    batch()
    batch("second-0", utc=LATER)
    programs.answer("squeue")
    programs.answer("sacct")
    found = fleet.of(folder, SLURMDBD)
    found.refresh()

    clock.now += 2.0
    found.refresh()

    (since,) = [word for word in programs.calls[-1].split() if word.startswith("--starttime=")]
    assert since.partition("T")[0] == "--starttime=2026-11-20"


def test_settling_asks_until_every_end_is_explained(folder, batch, programs):
    made = batch()
    programs.answer("squeue", _task(made, 1, "RUNNING", node="n1"))
    programs.answer("sacct", f"70_0|OUT_OF_MEMORY|0:125|n1|None|{made.folder}")
    found = fleet.of(folder, SLURMDBD)

    found.settle()

    assert programs.asked == ["squeue", "sacct"]
    assert found.seen[_key(made, 0)].why == "OUT_OF_MEMORY, signal 125 on n1"
    assert set(found.open) == {_key(made, 1)}


def test_settling_ends_with_workers_lost_that_nobody_knows(folder, batch, programs):
    made = batch()
    programs.answer("squeue")
    programs.answer("sacct")
    found = fleet.of(folder, SLURMDBD)

    found.settle()

    assert programs.asked == ["squeue", "sacct", "squeue"]
    assert not found.open
    assert found.seen[_key(made, 0)].why.startswith("LOST: ")


def test_settling_does_not_wait_for_a_controller_that_is_down(folder, batch, programs):
    batch()
    programs("squeue", "exit 1")
    found = fleet.of(folder, NO_ACCOUNTING)

    found.settle()

    assert programs.asked == ["squeue"]
    assert len(found.open) == 2


def test_the_silence_of_the_controller_is_timed(folder, batch, programs, clock):
    batch()
    programs("squeue", "exit 1")
    found = fleet.of(folder, NO_ACCOUNTING)
    before = found.silent_s
    found.refresh()

    clock.now += 30.0

    assert (before, found.silent_s) == (0.0, 30.0)


def test_how_workers_ended_is_written_beside_their_work_lists(folder, batch, programs, recorded):
    made = batch()
    for number in range(3):
        recorded(number, "done")
    found = _ended_fleet(folder, programs, made, "COMPLETED", "RUNNING")

    said = fleet.settle_records(folder, found)

    assert said == []
    assert json.loads((made.folder / "ended.json").read_text()) == {"0": "COMPLETED on n1"}
    assert [each.open_workers() for each in read_all(folder)] == [[1]]


def test_a_run_that_a_worker_left_open_is_failed_for_the_reason_of_its_end(folder, batch, programs, recorded, ids):
    made = batch()
    recorded(0, "done")
    recorded(1)
    found = _ended_fleet(folder, programs, made, "NODE_FAIL", "RUNNING")

    said = fleet.settle_records(folder, found)

    left = record.read(folder.record(ids[1]))
    assert said == [f"{ids[1]}: Slurm: NODE_FAIL on n1"]
    assert [(run["status"], run["reason"]) for run in left["runs"]] == [
        ("failed", "interrupted: Slurm: NODE_FAIL on n1")
    ]
    assert (left["status"], left["reason"]) == ("running", "Slurm: NODE_FAIL on n1")
    assert json.loads((made.folder / "ended.json").read_text()) == {"0": "Slurm: NODE_FAIL on n1"}


def test_a_record_that_is_over_is_not_touched_by_the_end_of_its_worker(folder, batch, programs, recorded, ids):
    made = batch()
    recorded(0, "done")
    recorded(1)
    before = folder.record(ids[0]).read_bytes()
    found = _ended_fleet(folder, programs, made, "NODE_FAIL")

    fleet.settle_records(folder, found)

    assert folder.record(ids[0]).read_bytes() == before


def test_the_records_of_a_worker_that_lives_are_its_own(folder, batch, programs, recorded, ids):
    made = batch()
    recorded(0)
    before = folder.record(ids[0]).read_bytes()
    found = _ended_fleet(folder, programs, made, "RUNNING", "PENDING")

    said = fleet.settle_records(folder, found)

    assert said == []
    assert folder.record(ids[0]).read_bytes() == before
    assert not (made.folder / "ended.json").exists()


def test_cells_that_were_not_begun_are_left_too_and_get_no_record(folder, batch, programs, ids):
    made = batch()
    found = _ended_fleet(folder, programs, made, "CANCELLED")

    said = fleet.settle_records(folder, found)

    assert said == [f"{ids[0]} and 1 more: Slurm: CANCELLED on n1"]
    assert not folder.record(ids[0]).exists()


def test_the_record_of_an_earlier_submission_is_left_as_it_is(folder, batch, programs, recorded, ids):
    made = batch()
    recorded(2, token="earlier")
    before = folder.record(ids[2]).read_bytes()
    found = _ended_fleet(folder, programs, made, "RUNNING", "CANCELLED")

    said = fleet.settle_records(folder, found)

    assert said == [f"{ids[2]}: Slurm: CANCELLED on n1"]
    assert folder.record(ids[2]).read_bytes() == before


def test_a_record_that_is_damaged_does_not_keep_the_ends_from_being_written(folder, batch, programs, recorded, ids):
    made = batch()
    recorded(2)
    folder.record(ids[2]).write_text("{")
    found = _ended_fleet(folder, programs, made, "RUNNING", "TIMEOUT")

    said = fleet.settle_records(folder, found)

    assert said == [f"{ids[2]}: Slurm: TIMEOUT on n1"]
    assert folder.record(ids[2]).read_text() == "{"
    assert json.loads((made.folder / "ended.json").read_text()) == {"1": "Slurm: TIMEOUT on n1"}


def test_what_a_worker_said_of_its_end_is_told_rather_than_slurm_s_word(folder, batch, programs, recorded, ids):
    made = batch()
    recorded(2)
    made.work_list(1).with_suffix(".error.json").write_text('{"message": "no such module: CUDA", "hint": ""}')
    found = _ended_fleet(folder, programs, made, "RUNNING", "FAILED")

    said = fleet.settle_records(folder, found)

    assert said == [f"{ids[2]}: no such module: CUDA"]
    assert record.read(folder.record(ids[2]))["runs"][0]["reason"] == "interrupted: no such module: CUDA"
    assert json.loads((made.folder / "ended.json").read_text()) == {"1": "no such module: CUDA"}


def test_what_a_completed_worker_wrote_may_come_into_sight_late(folder, batch, programs, recorded, clock):
    made = batch()
    found = _ended_fleet(folder, programs, made, "RUNNING", "COMPLETED")
    pauses = []
    clock.sleep = lambda pause: (pauses.append(pause), len(pauses) == 3 and recorded(2, "done"))

    said = fleet.settle_records(folder, found)

    assert said == []
    assert json.loads((made.folder / "ended.json").read_text()) == {"1": "COMPLETED on n1"}


def test_what_a_completed_worker_never_wrote_was_left_behind(folder, batch, programs, ids, clock):
    made = batch()
    found = _ended_fleet(folder, programs, made, "COMPLETED", "COMPLETED")
    before = clock.now

    said = fleet.settle_records(folder, found)

    assert said == [f"{ids[0]} and 1 more: Slurm: COMPLETED on n1", f"{ids[2]}: Slurm: COMPLETED on n1"]
    assert clock.now - before == 5.0  # once for all workers


def test_for_what_a_worker_that_failed_left_behind_nobody_waits(folder, batch, programs, clock):
    batch()
    found = _ended_fleet(folder, programs, batch("second-0"), "FAILED", "TIMEOUT")
    before = clock.now

    fleet.settle_records(folder, found)

    assert clock.now == before


TRACES = ("SLURM_JOB_ID", "SBATCH_PARTITION", "SRUN_DEBUG", "SQUEUE_FORMAT", "SACCT_FORMAT", "SCANCEL_USER")
KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURMISH")


@pytest.fixture
def traces(monkeypatch):
    """An environment as inside a job."""
    for name in (*TRACES, *KEPT):
        monkeypatch.setenv(name, "x")


def test_a_client_does_not_see_the_job_that_asks_and_still_finds_its_cluster(programs, traces):
    programs("squeue", "env")

    environment = {line.partition("=")[0] for line in client.ask("squeue").splitlines()}

    assert environment.isdisjoint(TRACES)
    assert environment.issuperset(KEPT)


def test_the_environment_is_scrubbed_for_a_while_and_comes_back(traces):
    with client.scrubbed():
        during = dict(os.environ)

    assert during.keys().isdisjoint(TRACES)
    assert during.keys() >= set(KEPT)
    assert {os.environ.get(name) for name in TRACES} == {"x"}


def test_the_environment_comes_back_also_after_an_error(traces):
    with pytest.raises(OSError, match="sbatch"), client.scrubbed():
        raise OSError("sbatch")

    assert {os.environ.get(name) for name in TRACES} == {"x"}


def test_a_client_answers_with_what_it_prints(programs):
    programs("squeue", "echo 'one  two'; echo noise >&2")

    assert client.ask("squeue", "-h", "-r") == "one  two\n"
    assert programs.calls == ["squeue -h -r"]


def test_what_a_client_prints_may_hold_bytes_that_are_no_text(programs):
    programs("squeue", "printf 'J\\303n 70'")

    assert client.ask("squeue") == "J\ufffdn 70"


@pytest.mark.parametrize("text", [None, "echo half; exit 1", "echo half; exec sleep 60"])
def test_a_client_that_is_missing_fails_or_hangs_does_not_answer(text, programs, monkeypatch):
    monkeypatch.setattr(client, "_TIMEOUT_S", 0.5)
    if text:
        programs("squeue", text)

    assert client.ask("squeue") is None


@pytest.mark.parametrize(
    ("sinfo", "is_cluster"),
    [
        ("echo debug", True),
        ("echo 'slurm_load_partitions: Unable to contact slurm controller (connect failure)' >&2; exit 1", True),
        ("echo 'sinfo: fatal: Could not establish a configuration source' >&2; exit 1", False),
        (None, True),
    ],
)
def test_a_cluster_is_where_the_clients_know_where_it_is_even_if_it_is_down(sinfo, is_cluster, programs):
    programs("sbatch", "exit 1")
    if sinfo:
        programs("sinfo", sinfo)

    assert client.found() is is_cluster


def test_a_controller_that_never_answers_is_a_cluster(programs, monkeypatch):
    monkeypatch.setattr(client, "_TIMEOUT_S", 0.5)
    programs("sbatch", "exit 1")
    programs("sinfo", "exec sleep 60")

    assert client.found() is True


def test_a_machine_that_cannot_submit_is_no_cluster(programs):
    programs("sinfo", "echo debug")

    assert client.found() is False
    assert programs.calls == []


def test_facts_are_read_from_what_scontrol_says(programs):
    programs.answer("scontrol", *CONFIG.splitlines())
    programs("sacct", "exit 1")

    facts = client.facts()

    assert (facts.version, facts.cluster, facts.accounting) == ("22.05.8", "lab", True)
    assert facts.completion_log == Path("/var/log/slurm/job completions.log")
    assert (facts.remembers_s, facts.tasks_at_most) == (3600, 2001)


def test_a_controller_that_is_down_leaves_the_defaults_of_slurm(programs):
    programs("scontrol", "exit 1")
    programs("sacct", "exit 1")

    facts = client.facts()

    assert (facts.version, facts.cluster, facts.accounting) == ("unknown", "unknown", True)
    assert facts.completion_log is None
    assert (facts.remembers_s, facts.tasks_at_most) == (300, 1001)


@pytest.mark.parametrize(
    ("kind", "sacct", "worth_asking"),
    [
        ("accounting_storage/slurmdbd", True, True),
        ("accounting_storage/slurmdbd", False, False),
        ("accounting_storage/none", True, False),
        ("(null)", True, False),
    ],
)
def test_the_accounting_is_worth_a_question_where_there_is_one_and_sacct(kind, sacct, worth_asking, programs):
    if sacct:
        programs("sacct", "exit 1")

    assert Facts(f"AccountingStorageType   = {kind}").accounting is worth_asking


@pytest.mark.parametrize("kind", ["jobcomp/none", "jobcomp/elasticsearch", "(null)"])
def test_a_completion_log_that_is_no_text_is_none(kind):
    assert Facts(f"JobCompLoc = /var/log/x\nJobCompType = {kind}").completion_log is None


def test_a_cluster_that_takes_no_arrays_takes_single_tasks():
    assert Facts("MaxArraySize = 0").tasks_at_most == 1


def test_a_job_counts_how_often_it_was_requeued(monkeypatch):
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)
    before = job.restarts()

    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")

    assert (before, job.restarts()) == (0, 2)


def test_a_job_is_described_by_what_was_granted(programs, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    programs.answer(
        "scontrol",
        "JobId=77 JobName=tfio NodeList=n1 TRES=cpu=4,mem=8G UserId=me(1000) OverSubscribe=NO Licenses=(null)",
    )

    described = job.described()

    assert programs.calls == ["scontrol -o show job 77"]
    assert described == {
        "JobId": "77",
        "JobName": "tfio",
        "NodeList": "n1",
        "TRES": "cpu=4,mem=8G",
        "OverSubscribe": "NO",
        "Licenses": "(null)",
    }


def test_a_job_that_slurm_does_not_answer_is_not_described(programs, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    programs("scontrol", "exit 1")

    assert job.described() == {}
    assert programs.asked == ["scontrol"]


def test_outside_a_job_there_is_nothing_to_describe_or_to_requeue(programs, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    programs("scontrol", "echo JobId=1")

    assert (job.described(), job.requeue()) == ({}, False)
    assert programs.calls == []


@pytest.mark.parametrize(("code", "requeued"), [(0, True), (1, False)])
def test_a_job_requeues_itself_unless_slurm_refuses(code, requeued, programs, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    programs("scontrol", f"exit {code}")

    assert job.requeue() is requeued
    assert programs.calls == ["scontrol requeue 77"]


def _conduct(name, *, detach=False):
    return {"cluster": {"name": name}, "detach": detach}


@pytest.mark.parametrize(("is_cluster", "name"), [(True, "slurm"), (False, "local")])
def test_auto_is_slurm_where_there_is_a_cluster_and_says_which_it_took(is_cluster, name, monkeypatch):
    said = []
    monkeypatch.setattr(client, "found", lambda: is_cluster)
    monkeypatch.setattr(choice.console, "say", said.append)

    chosen = choice.chosen([], _conduct("auto"))

    assert chosen == name
    assert said == [f"cluster=auto: {'Slurm' if is_cluster else 'this machine (there is no Slurm cluster)'}"]


@pytest.mark.parametrize("name", ["slurm", "local", "debug"])
def test_a_cluster_that_was_named_is_taken_without_a_question(name, programs):
    programs("sbatch", "exit 1")
    programs("sinfo", "echo debug")

    assert choice.chosen([], _conduct(name)) == name
    assert programs.calls == []


@pytest.mark.parametrize("name", ["auto", "local", "debug"])
def test_work_cannot_be_left_to_a_slurm_that_is_not_there(name, programs):
    with pytest.raises(UsageError) as refused:
        choice.chosen([], _conduct(name, detach=True))

    assert "detach=true" in str(refused.value)
    assert "nohup" in refused.value.hint


def test_work_may_be_left_to_slurm(monkeypatch):
    monkeypatch.setattr(client, "found", lambda: True)

    assert [choice.chosen([], _conduct(name, detach=True)) for name in ("auto", "slurm")] == ["slurm", "slurm"]
