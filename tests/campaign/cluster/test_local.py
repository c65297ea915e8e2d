import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
import submitit

from campaign import console
from campaign.cells.cell_plan import PlannedCell
from campaign.cells.folder import CampaignFolder
from campaign.cluster import local
from campaign.cluster.local import LocalWorker, WorkerLostError
from campaign.cluster.progress import Follower
from campaign.errors import EnvironmentFaultError, NotQuietError
from campaign.worker import batch as batches
from campaign.worker.batch import CampaignCall
from tests.campaign.on_disk import leave_batch, leave_record
from tests.campaign.work_lists import UTC, work_list

_POLITE = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("asked to end", flush=True)))
print("up", flush=True)
time.sleep(60)
"""
_STUBBORN = """
import signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "60"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def batch(folder, cells):
    return leave_batch(folder, "mine-0", [[cell.id for cell in cells[0]]], "local")


@pytest.fixture
def started(batch):
    """A function that starts a process as the worker of the batch; returns both, and its first word."""
    processes = []

    def start(script, *words):
        process = subprocess.Popen([sys.executable, "-c", script, *words], stdout=subprocess.PIPE, text=True)
        processes.append(process)
        word = process.stdout.readline().strip()
        return LocalWorker(batch, psutil.Process(process.pid)), process, word

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def _ends(worker):
    deadline = time.monotonic() + 10
    while worker.alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    return not worker.alive()


def test_a_worker_lives_until_its_process_has_ended_and_is_asked_to_end_if_anybody_saw_it(started, batch):
    worker, process, _ = started(_POLITE)
    alive = worker.alive()

    for each in (worker, LocalWorker(batch, None)):
        each.stop()
        assert not each.alive()

    assert (alive, process.returncode, process.stdout.read()) == (True, None, "asked to end\n")


def test_a_worker_that_does_not_end_is_killed_with_all_that_it_started(started, batch, monkeypatch):
    monkeypatch.setattr(local, "_STOP_PATIENCE_S", 0.1)
    worker, process, child = started(_STUBBORN)
    child = psutil.Process(int(child))

    worker.stop()

    assert process.wait(timeout=10) == -signal.SIGKILL
    assert _ends(LocalWorker(batch, child))


def test_the_worker_of_an_earlier_command_is_found_by_its_folder_and_named_with_what_ends_it(
    batch, folder, started, monkeypatch
):
    said, held = [], folder.worker_lock()
    monkeypatch.setattr(local, "_PATIENCE_S", 0.01)
    monkeypatch.setattr(console, "say", lambda text: (said.append(text), held.release()))
    _, process, _ = started(_POLITE, "submitit.core._submit", str(batch.folder))

    held.acquire()
    local.wait_for_worker(folder)

    assert f"(process {process.pid})" in said[0]
    assert f"`python -m campaign cancel {folder.root}` ends the worker" in said[0]
    assert local.find_worker(CampaignFolder(folder.root.parent)) is None


def test_an_earlier_worker_is_waited_for_and_that_is_told(folder, monkeypatch):
    said, held = [], folder.worker_lock()
    monkeypatch.setattr(local, "_PATIENCE_S", 0.01)
    monkeypatch.setattr(console, "say", lambda text: (said.append((text, held.is_locked)), held.release()))

    local.wait_for_worker(folder)
    held.acquire()
    local.wait_for_worker(folder)

    ((text, waited),) = said  # nothing where no worker is at work
    assert "a worker of an earlier command is still running" in text
    assert waited
    assert folder.is_worker_running() is False


@pytest.fixture
def executor(monkeypatch, folder):
    """What the executor of submitit was told, and what lay on disk and was heeded when it was."""
    told = {"job_id": "999999999", "fault": None}

    class Job:
        job_id = told["job_id"]

        def exception(self):
            return told["fault"]

    class Executor:
        def __init__(self, folder, cluster):
            told.update(folder=folder, cluster=cluster)

        def update_parameters(self, **parameters):
            told.update(parameters)

        def submit(self, function, path):
            told["batches"] = batches.read_batches(folder)
            told["work"] = json.loads(told["batches"][0].work_list(0).read_text())
            told["path"], told["sigint"] = path, signal.getsignal(signal.SIGINT)
            return Job()

    monkeypatch.setattr(submitit, "AutoExecutor", Executor)
    return told


@pytest.fixture
def submit(folder, cells):
    """A function that hands three cells to a worker; its words are keys of the conduct."""

    def submit(cluster="local", **changed):
        conduct = {**cells[1], "cluster": {"name": cluster}, **changed}
        request = CampaignCall(folder, conduct, "mine", UTC, ["threads=1,2,4"])
        todo = [PlannedCell(cell, "planned", 5, 5) for cell in cells[0]]
        return local.start_worker(request, todo, {cell.id: None for cell in cells[0]})

    return submit


@pytest.mark.parametrize(("name", "cluster"), [("local", "local"), ("auto", "local"), ("debug", "debug")])
def test_the_batch_and_its_work_list_are_on_disk_before_the_worker_starts(name, cluster, executor, submit, cells):
    before = signal.getsignal(signal.SIGINT)

    started = submit(name, run_timeout_s=600)

    assert executor["cluster"] == executor["work"]["cluster"] == started.batch.cluster == cluster
    assert executor["batches"] == [started.batch]
    assert started.batch.cells == [[cell.id for cell in cells[0]]]
    assert executor["path"] == str(started.batch.work_list(0))
    assert (executor["work"]["token"], executor["work"]["submitted_utc"]) == ("mine", UTC)
    assert [item["position"] for item in executor["work"]["cells"]] == [0, 1, 2]
    assert executor["timeout_min"] == 18 * 10 + 60  # for every run up to its limit
    # Ctrl-C does not reach the worker; one that ended before it was found is no error yet.
    assert (executor["sigint"] == signal.SIG_IGN, signal.getsignal(signal.SIGINT)) == (cluster == "local", before)
    assert started.process is None


def test_in_the_front_process_the_error_of_the_worker_is_its_own(executor, submit):
    executor["fault"] = EnvironmentFaultError("no TensorFlow", "install it")

    with pytest.raises(EnvironmentFaultError, match="no TensorFlow"):
        submit("debug")


@pytest.fixture
def ended(folder, cells, batch, monkeypatch):
    """A function that lets the worker have ended, and the front process explain it."""
    batch.work_list(0).write_text(json.dumps(work_list(folder, *cells)))

    def explain():
        local._explain_early_end(batch, Follower.of_worker(folder, batch, 0))  # noqa: SLF001

    return explain


def test_a_worker_that_did_its_whole_list_needs_no_explanation(ended, folder, cells):
    for cell in cells[0]:
        leave_record(folder, cell, status="done", token="mine")

    ended()


@pytest.mark.parametrize(
    ("left", "kind", "said"),
    [
        ({"work-0.error.json": '{"message": "no space", "hint": "free"}'}, EnvironmentFaultError, ("no space", "free")),
        ({"work-0.error.json": '{"message": "loud", "hint": "h", "not_quiet": true}'}, NotQuietError, ("loud", "h")),
        ({"1_0_log.err": "Traceback …\nEnd\n"}, WorkerLostError, ("ended with 3 unfinished cells: End", "mine-0")),
        ({}, WorkerLostError, ("3 unfinished cells: its log is empty", "mine-0")),
    ],
    ids=["its error", "others were loud", "the last line of its log", "nothing"],
)
def test_what_the_worker_left_explains_its_end(left, kind, said, ended, batch):
    for name, text in left.items():
        (batch.folder / name).write_text(text)

    with pytest.raises(kind, match=said[0]) as caught:
        ended()

    assert said[1] in caught.value.hint
    assert not (batch.folder / "probe.json").exists()


def test_a_worker_that_could_write_nothing_or_is_still_at_work_is_told_as_that(ended, folder, monkeypatch):
    with folder.worker_lock(), pytest.raises(WorkerLostError, match="the worker is still running"):
        ended()
    monkeypatch.setattr(local, "write_json", lambda *_: os.write(os.open("/dev/full", os.O_WRONLY), b"x"))
    with pytest.raises(EnvironmentFaultError, match=r"nothing can be written in .*: No space left on device"):
        ended()
