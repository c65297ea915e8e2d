"""The work list of a worker: cells, and the part of the configuration that it needs.

Annotations are evaluated here: `jobs.model.reading` asks which keys are required.
"""

from typing import NotRequired, TypedDict

from jobs.model.conduct import Conduct
from jobs.model.record import Access, Data
from jobs.model.settings import Settings


class _Item(TypedDict):
    id: str
    benchmark: str
    version: int
    settings: Settings
    access: Access
    targets: list[str]
    root: NotRequired[str | None]  # of its storage, absolute: a worker starts in another folder; None: it has none
    position: int
    missing: int
    at_most: int


class ListedItem(_Item):
    """One cell of a work list; ``dataset`` is None where the worker itself makes it."""

    dataset: Data | None


class WorkItem(_Item):
    """One cell of a work list whose data exist."""

    dataset: Data


class WorkList(TypedDict):
    """The work list of a worker; ``cluster`` is slurm, local or debug."""

    token: str
    words: list[str]
    submitted_utc: str
    campaign_dir: str
    campaign_id: str
    cluster: str
    conduct: Conduct
    cells: list[ListedItem]
    to_make: NotRequired[list[ListedItem]]  # cells of other lists, whose data this worker makes
    attempt: NotRequired[int]
