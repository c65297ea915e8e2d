"""Work lists as the front process writes them, and workers that walk them with a template that forks nothing."""

import copy
import functools
import json
import operator
import pickle
from functools import cache

from campaign.cells.cell_plan import PlannedCell
from campaign.cells.verdicts import Verdicts
from campaign.config.compose import compose_points
from campaign.config.composer import Composer
from campaign.storage.locks import lock_path
from campaign.worker.__main__ import Worker
from campaign.worker.batch import CampaignCall
from jobs.model.record import terms_of_conduct
from tests.campaign.fake_template import FakeTemplate

UTC = "2026-11-21T09:00:00.000Z"
LATER = "2026-11-21T10:00:00.000Z"
WORDS = ("-m", "threads=1,2,4")
DIRECT = ("benchmark=alexnet", "checkpoint=local", "checkpoint.every=2")
BUFFERED = ("benchmark=alexnet", "checkpoint=burst_buffer", "checkpoint.every=2",
            "checkpoint.fast.root=fast", "checkpoint.slow.root=slow")  # fmt: skip


def grid(*words):
    """The points of these words, composed once; the caller's own copy."""
    return copy.deepcopy(_composed(*words))


def compose(*words):
    """The one point of these words."""
    (point,) = grid(*words)
    return point


def with_value(point, key, value):
    """A copy of a point with another value of a dotted key."""
    path, _, last = key.rpartition(".")
    changed = copy.deepcopy(point)
    functools.reduce(operator.getitem, filter(None, path.split(".")), changed)[last] = value
    return changed


def compose_once(patch):
    """Let Hydra answer each composer of one file of conf/ once for all tests; with a user's own folder it answers anew.

    A test gets what Hydra made for the same words as its own copy. An error is not kept.
    """
    for name in ("compose", "_find_options"):
        patch.setattr(Composer, name, _answered_once(getattr(Composer, name)))


def _answered_once(act):
    answers = {}

    @functools.wraps(act)
    def answer(self, *words):
        if self._search_path:
            return act(self, *words)
        asked = self._config, repr(words)
        if asked not in answers:
            answers[asked] = pickle.dumps(act(self, *words))  # in a third of the time of a copy
        return pickle.loads(answers[asked])  # noqa: S301 - our own

    return answer


@cache
def _composed(*words):
    with Composer() as composer:
        return list(compose_points(composer, words))


def slurm_conduct(conduct, **changed):
    """The same conduct under ``cluster=slurm``; `changed` are keys of the cluster."""
    return {**conduct, "cluster": {**compose("cluster=slurm")["cluster"], **changed}}


def work_list(folder, cells, conduct, cluster="local"):
    """A work list for these cells on one dataset, as the worker reads it."""
    root = folder.root.parent / "data"
    root.mkdir(exist_ok=True)
    data = {"path": str(root), "manifest": str(root), "lock": str(lock_path(root, folder.root)), "checksum": "c"}
    entries = [PlannedCell(cell, "planned", *[conduct["runs"] - conduct["warmup_runs"]] * 2) for cell in cells]
    request = CampaignCall(folder, conduct, "first", UTC, WORDS)
    return json.loads(json.dumps(request.work_list(cluster, entries, {cell.id: data for cell in cells})))


def asked_again(work, **changed):
    """The work list of a later submission."""
    return {**copy.deepcopy(work), "token": "second", "submitted_utc": LATER, **changed}


def walk(folder, work, *answers):
    """Let a worker do the list; returns its template and the records with the verdicts by its terms."""
    template = FakeTemplate(*answers)
    Worker(folder, work, template).run_all()
    return template, judged(folder, work)


def judged(folder, work):
    """The records of the cells of a list, with the verdicts by its terms."""
    verdicts = Verdicts(folder, terms_of_conduct(work["conduct"]))
    return [verdicts.read(folder.record(item["id"]))[0] for item in work["cells"]]
