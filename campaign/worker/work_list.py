"""Work lists: what a worker is to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from campaign.cells.cell_plan import Entry
from campaign.cells.folder import CampaignFolder
from campaign.storage import checkpoint_targets
from jobs.model.conduct import Conduct
from jobs.model.record import Data
from jobs.model.terms import OF_SITE
from jobs.model.work import ListedItem, WorkList

_FOR_SLURM = {
    *("partition", "account", "qos", "constraint", "pool", "exclude", "dependency", "licenses"),
    *("wckey", "comment", "modules", "prelude", "extra"),
}


@dataclass(frozen=True)
class Request:
    """One call of the command: who asks, for what, and how it is conducted."""

    folder: CampaignFolder
    conduct: Conduct
    token: str  # eight hex digits that everything of this submission carries
    utc: str  # when; a later request's worker has precedence over an earlier one's
    words: Sequence[str]
    attempt: int = 0  # of ``retries``
    first: str = ""  # token of the campaign's first request, where this is a later one

    @property
    def campaign_id(self) -> str:
        """Of this campaign alone."""
        return checkpoint_targets.campaign_id(self.folder, self.first or self.token)

    def work_list(
        self, cluster: str, entries: Sequence[Entry], data: Mapping[str, Data | None], first: int = 0
    ) -> WorkList:
        """Write down what a worker is to do under ``slurm``, ``local`` or ``debug``.

        `data` holds the dataset of each cell id, None where the worker makes it; `first` is the position of the first
        entry in the shuffled order of the whole submission.
        """
        return {
            "token": self.token,
            "words": list(self.words),
            "submitted_utc": self.utc,
            "attempt": self.attempt,
            "campaign_dir": str(self.folder.root),
            "campaign_id": self.campaign_id,
            "cluster": cluster,
            "conduct": _needed(self.conduct),
            "cells": [_item(entry, place, data) for place, entry in enumerate(entries, start=first)],
        }


def _needed(conduct: Conduct) -> Conduct:
    """Leave out the words that are for Slurm: a worker needs none, and they may hold a secret (``${oc.env:…}``)."""
    cluster = {key: value for key, value in conduct["cluster"].items() if key not in _FOR_SLURM}
    site = {key: value for key, value in conduct["site"].items() if key in ("name", *OF_SITE)}
    return {**conduct, "cluster": cluster, "site": site}


def _item(entry: Entry, position: int, data: Mapping[str, Data | None]) -> ListedItem:
    cell = entry.cell
    return {
        "id": cell.id,
        "benchmark": cell.benchmark,
        "version": cell.version,
        "settings": cell.settings,
        "access": {**cell.access},
        "dataset": data[cell.id],
        "root": str(Path(root).expanduser().resolve()) if (root := cell.settings["storage"].get("root")) else None,
        "targets": checkpoint_targets.roots(cell.settings),
        "position": position,
        "missing": entry.missing,
        "at_most": entry.at_most,
    }
