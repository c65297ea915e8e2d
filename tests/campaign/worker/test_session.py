import contextlib
import copy
import json
import shutil
import signal

import pytest

from campaign.cells import record
from campaign.cells.folder import open_or_create
from campaign.config.collect import make_cells
from campaign.errors import EnvironmentFaultError, UsageError
from campaign.worker import session
from campaign.worker.__main__ import Worker
from campaign.worker.session import WorkerStoppedError
from jobs.system import files
from tests.campaign.fake_template import FakeTemplate, failed, figures, invalid
from tests.campaign.on_disk import leave_record
from tests.campaign.work_lists import LATER, UTC, asked_again, compose, judged, walk, work_list
from tests.jobs.durability import watched
from tests.jobs.objects.conftest import signed, store  # noqa: F401 - fixtures

pytestmark = pytest.mark.usefixtures("cpus")
EARLIER = "2026-11-21T08:00:00.000Z"


SPREAD = {"until_spread": 0.02, "max_runs": 9}
STOP, KILL, REDO = WorkerStoppedError(signal.SIGUSR2), KeyboardInterrupt(), {"redo": True}
# Sessions of one cell in their order: what a submission changes, what its runs are, and role, status and submission of
# all runs that stand in the record then.
STORIES = {
    "a later session warms up again and adds only what is missing": [
        ("first", {}, [*map(figures, (1, 2, 3)), STOP], "wv mv mv mf"),
        ("second", {}, [], "wv mv mv mf WV MV MV MV"),
    ],
    "a run that a killed worker left open is told": [
        ("first", {}, [figures(1), KILL], "wv mr"), ("second", {}, [], "wv mf WV MV MV MV MV MV"),
    ],
    "redo measures anew and goes on with its own record after a requeue": [
        ("first", {}, [], "wv mv mv mv mv mv"), ("second", REDO, [*map(figures, (1, 2)), STOP], "WV MV MF"),
        ("second", REDO, [], "WV MV MF WV MV MV MV MV"),
    ],
    "a cell that a later submission has is left to it": [
        ("second", {}, [figures(), STOP], "WV MF"), ("first", {}, [], "WV MF"),
    ],
    "runs are added where the median is not well known, up to max_runs": [
        ("first", SPREAD, [], "wv mv mv mv mv mv"),
        ("second", {**SPREAD, "runs": 7}, [*map(figures, (1, 900, 5))], "wv mv mv mv mv mv WV MV MV MV"),
    ],
    "what another start finished gets neither run nor warm-up": [
        ("first", {}, [*[figures()] * 4, invalid(), invalid()], "wv mv mv mv mi mi"),
        ("second", {}, [], "wv mv mv mv mi mi"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_a_session_goes_on_with_the_record_as_it_may(story, folder, one):
    path = folder.record(one["cells"][0]["id"])
    for token, changed, answers, runs in story:
        work = copy.deepcopy(one) if token == "first" else asked_again(one)
        work["conduct"] |= changed
        with contextlib.suppress(WorkerStoppedError, KeyboardInterrupt):
            walk(folder, work, *answers)

        found = judged(folder, work)[0]["runs"]
        kinds = [f"{run['role'][0]}{run['status'][0]}" for run in found]
        assert (
            " ".join(k.upper() if run["token"] == "second" else k for k, run in zip(kinds, found, strict=True)) == runs
        )
    old = [json.loads(each.read_text())["runs"] for each in path.parent.glob("superseded-*/record.json")]
    assert [len(runs) for runs in old] == [6] * (story[-1][1] is REDO)  # nothing is lost
    assert all(run["reason"].startswith("interrupted") for run in found if run["status"] == "failed")


def test_a_list_that_was_requeued_in_its_second_cell_repeats_nothing(folder, job):
    work = job()
    begun = [invalid(), figures(1), figures(2), figures(3), invalid(), invalid(), figures(4)]
    with pytest.raises(WorkerStoppedError):
        walk(folder, work, *begun, figures(5), WorkerStoppedError(signal.SIGUSR2))
    before = folder.record(work["cells"][0]["id"]).read_bytes()

    template, records = walk(folder, work)

    assert folder.record(work["cells"][0]["id"]).read_bytes() == before
    assert [(run["role"], run["status"]) for run in records[1]["runs"]] == [
        ("warmup", "valid"), ("measured", "valid"), ("measured", "failed"),
        ("warmup", "valid"), *[("measured", "valid")] * 4,
    ]  # fmt: skip
    assert len(template.asked) == 5 + 6
    assert len(records[1]["sittings"]) == 2


def test_what_was_given_up_or_finished_in_the_meantime_gets_neither_run_nor_warm_up(folder, job):
    work = job()
    with pytest.raises(WorkerStoppedError):
        walk(folder, work, failed(), failed(), WorkerStoppedError(signal.SIGUSR2))

    well = [Worker(folder, work, FakeTemplate()).run_cells([item]) for item in work["cells"]]
    again = asked_again(work)
    again["cells"] = again["cells"][1:]
    template, found = walk(folder, again)

    assert well == [False, True, True]
    assert len(record.read_record(folder.record(work["cells"][0]["id"]))["runs"]) == 2
    assert template.asked == []
    assert [(each["status"], len(each["runs"]), each["campaign"]["token"]) for each in found] == [
        ("done", 7, "second"), ("done", 6, "second")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("submitted", "status", "known"),
    [
        *((LATER, status, True) for status in ("running", "done", "failed")),  # a later submission's
        (UTC, "running", None), (UTC, "done", True), (UTC, "failed", False), (UTC, "invalid", False),
        *((EARLIER, status, None) for status in ("running", "done", "failed")),
        (None, None, None), ("damaged", None, None),
    ],
)  # fmt: skip
def test_what_a_later_submission_has_or_this_list_has_ended_is_left(submitted, status, known, cells, folder):
    (cell, *_), conduct = cells
    work = {"token": "first", "submitted_utc": UTC, "conduct": conduct}
    if submitted:
        of = {"token": "first" if submitted == UTC else "other", "submitted_utc": submitted}
        leave_record(folder, cell, status=status or "running", campaign=of)
    if submitted == "damaged":
        folder.record(cell.id).write_text("{")

    assert session.verdict_if_over(folder, work, cell.id) is known


@pytest.fixture
def begun_elsewhere(folder, one):
    """A function that measures the cell once and then changes its record, as if that had been elsewhere."""

    def begin(change):
        with pytest.raises(WorkerStoppedError):
            walk(folder, one, figures(111), figures(111), WorkerStoppedError())
        path = folder.record(one["cells"][0]["id"])
        recorded = record.read_record(path)
        change(recorded)
        record.write_record(path, recorded)
        return path

    return begin


@pytest.mark.parametrize(
    "change",
    [
        lambda recorded: recorded["dataset"].update(checksum="another"),
        lambda recorded: recorded["dataset"].update(path="/elsewhere"),
        lambda recorded: recorded["provenance"].update(cpu="Z80"),
        lambda recorded: recorded["provenance"]["versions"].update(tensorflow="1.10"),
        lambda recorded: recorded["provenance"]["conditions"]["process"].update(LD_PRELOAD="/x.so"),
    ],
    ids=["checksum", "path", "cpu", "tensorflow", "conditions"],
)
def test_runs_that_were_measured_elsewhere_are_kept_aside_with_their_logs_and_the_cell_is_measured_anew(
    change, folder, one, begun_elsewhere, monkeypatch
):
    path, deeds = begun_elsewhere(change), []
    (path.parent / "run-0.log").write_text("old words")
    watched(monkeypatch, deeds.append)

    _, (recorded,) = walk(folder, asked_again(one), *[figures(222)] * 6)

    (old,) = path.parent.glob("elsewhere-*")
    assert [run["images_per_s"] for run in recorded["runs"]] == [222] * 6
    runs = json.loads((old / "record.json").read_text())["runs"]
    assert [run.get("images_per_s") for run in runs] == [111, 111, None]
    assert [path for _, path in deeds if str(old) in path] == [f"{old}/run-0.log", f"{old}/record.json"]
    assert (old / "run-0.log").read_text() == "old words"
    assert not (path.parent / "run-0.log").exists()


@pytest.mark.parametrize(("shared", "aside"), [(True, 0), (False, 1)])
def test_nodes_of_one_kind_share_a_cell_where_they_share_the_storage(shared, aside, folder, one, begun_elsewhere):
    one["cells"][0]["access"]["shared"] = shared
    path = begun_elsewhere(lambda recorded: recorded["provenance"].update(host="n2"))

    _, (recorded,) = walk(folder, asked_again(one))

    assert len(list(path.parent.glob("elsewhere-*"))) == aside
    assert recorded["status"] == "done"
    assert {run["token"] for run in recorded["runs"]} == ({"second"} if aside else {"first", "second"})


@pytest.mark.parametrize("iterations", [2, 9])
def test_objects_that_only_a_job_can_make_or_list_are_found_there(iterations, folder, store, monkeypatch, tmp_path):  # noqa: F811
    monkeypatch.setenv("HOME", str(tmp_path))  # has the lock file of the bucket
    endpoint = f"storage.endpoint={store.storage['endpoint']}"
    words = ("storage=s3", endpoint, "storage.bucket=bucket", "dataset=folder", "dataset.path=photos")
    work = work_list(folder, *make_cells([compose(*words, "batch_size=10", f"iterations={iterations}")]))
    work["cells"][0] |= {"dataset": None, "root": None}

    _, (recorded,) = walk(folder, work)

    if iterations == 2:
        assert recorded["status"] == "done"
        assert (recorded["dataset"]["path"], recorded["dataset"]["files"]) == ("s3://bucket/photos", 20)
    else:
        assert recorded["status"] == "failed"
        assert "the dataset has 20" in recorded["reason"]


class TakenOver(FakeTemplate):
    """During its third run another worker begins with the cell; `theirs` is the record that this one leaves.

    With `late`, what the first worker was about to write comes after that.
    """

    def __init__(self, folder, work, *answers, late=False):
        super().__init__(*answers)
        self.folder, self.work, self.late = folder, work, late

    def run(self, *request):
        if len(self.asked) == 2:
            path = self.folder.record(self.work["cells"][0]["id"])
            before = path.read_bytes()
            recorded, _ = session.begin_session(self.folder, self.work, self.work["cells"][0])
            record.write_record(path, recorded)
            if self.late:
                path.write_bytes(before)
            self.theirs = path.read_bytes()
        return super().run(*request)


@pytest.mark.parametrize("late", [False, True])
def test_a_worker_that_slurm_took_for_lost_and_began_again_elsewhere_writes_nothing_more_and_ends(late, folder, job):
    work = job()
    template = TakenOver(folder, work, late=late)

    with pytest.raises(session.TakenOverError):
        Worker(folder, work, template).run_all()

    assert folder.record(work["cells"][0]["id"]).read_bytes() == template.theirs
    assert len(template.asked) == 3
    assert not folder.record(work["cells"][1]["id"]).exists()


@pytest.mark.parametrize(("later", "stopped"), [(True, False), (True, True), (False, True)])
def test_a_worker_whose_cell_another_took_leaves_it_and_goes_on_or_ends_if_it_is_stopped(later, stopped, folder, job):
    work = job()
    template = TakenOver(
        folder, asked_again(work) if later else work, *[figures()] * 2, *[WorkerStoppedError()] * stopped
    )

    with pytest.raises(WorkerStoppedError) if stopped else contextlib.nullcontext():
        assert Worker(folder, work, template).run_all()

    records = [folder.record(item["id"]) for item in work["cells"]]
    assert records[0].read_bytes() == template.theirs
    assert stopped or [each["status"] for each in judged(folder, work)[1:]] == ["done", "done"]


def test_of_two_workers_that_begin_at_once_the_later_one_has_the_cell_whoever_writes_first(folder, one):
    item = one["cells"][0]
    first, second = (session.begin_session(folder, one, item)[0] for _ in range(2))

    record.write_record(folder.record(item["id"]), first)

    session.require_lease(folder, second)
    with pytest.raises(session.TakenOverError):
        session.require_lease(folder, first)
    for spoil in (lambda claim: claim.write_text("{"), lambda claim: claim.unlink()):
        spoil(folder.lease(item["id"]))
        session.require_lease(folder, first)  # then it is nobody's


@pytest.mark.parametrize("cell", [0, 1])
def test_a_cell_that_its_node_has_no_data_for_fails_with_the_reason_and_the_others_run(
    cell, folder, job, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)  # nor is the root of its storage there
    work = job()
    data, work["cells"][cell]["dataset"] = work["cells"][cell]["dataset"], None

    def refuse(settings, where, progress):
        raise UsageError("iterations=9 need 72 images, the dataset has 24", "iterations=3 or fewer")

    monkeypatch.setattr("campaign.storage.datasets.dataset_on_this_node", refuse)
    _, records = walk(folder, work)
    refused = records[cell]
    work["cells"][cell]["dataset"] = data
    _, again = walk(folder, asked_again(work))

    assert [each["status"] for each in records] == ["failed" if each == cell else "done" for each in range(3)]
    assert [(run["status"], run["reason"]) for run in refused["runs"]] == [
        ("failed", "iterations=9 need 72 images, the dataset has 24; iterations=3 or fewer")
    ]
    assert "iterations=9 need 72 images" in refused["reason"]
    assert (again[cell]["status"], again[cell]["dataset"]) == ("done", data)


class Removed(FakeTemplate):
    """In its third run somebody removes the campaign folder; another campaign begins there, or none."""

    def __init__(self, folder, *, anew):
        super().__init__()
        self.folder, self.anew = folder, anew

    def run(self, *request):
        if len(self.asked) == 2:
            shutil.rmtree(self.folder.root)
            if self.anew:
                open_or_create(self.folder.root)
        return super().run(*request)


@pytest.fixture
def in_batch(folder, monkeypatch, clock):
    """As a job: in a folder of the campaign, and nobody waits for the clock, which is returned."""
    (folder.workers / "first-0").mkdir()
    monkeypatch.chdir(folder.workers / "first-0")
    return clock(files)


@pytest.mark.parametrize("anew", [False, True])
def test_a_job_whose_campaign_folder_was_removed_ends_and_makes_nothing_anew(anew, folder, job, in_batch):
    with pytest.raises(EnvironmentFaultError, match="was removed while a job of its campaign ran"):
        Worker(folder, job(), Removed(folder, anew=anew)).run_all()

    assert [*folder.records.glob("*")] == []
    assert folder.root.exists() is anew


def test_a_campaign_folder_that_is_removed_while_a_record_is_written_is_not_waited_for(
    folder, job, in_batch, monkeypatch
):
    checked, began = session.require_lease, in_batch.now
    monkeypatch.setattr(session, "require_lease", lambda *words: (checked(*words), shutil.rmtree(folder.root)))

    with pytest.raises(EnvironmentFaultError, match="was removed"):
        walk(folder, job(save_patience_s=600))
    assert in_batch.now == began


def test_a_campaign_folder_that_is_away_is_waited_for_and_not_made_anew(folder, job, clock):
    work, waiting = job(save_patience_s=30), clock(files)

    with pytest.raises(FileNotFoundError):
        Worker(folder, work, Removed(folder, anew=False)).run_all()

    assert waiting.now >= 1020
    assert not folder.root.exists()
