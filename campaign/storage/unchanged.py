"""Find what changed under a recorded cell: the user's own data, or the speed of an emulated storage.

A verb that only repeats recorded numbers calls these functions first, because the numbers would be those of other data.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from campaign.errors import UsageError
from campaign.storage.datasets import list_own_files
from jobs.errors import DatasetError
from jobs.model.record import Record
from jobs.system.layers import BOUNDS, emulated_storage


def require_unchanged(recorded: Record, more: Iterable[str] = (), *, redo: bool = True) -> None:
    """Raise UsageError if the data or the emulated storage of a judged record changed after the cell was measured.

    `more` has names of other things that changed; the first of all changed things is named. `redo` tells whether the
    verb takes the setting ``redo=true``.
    """
    changed = [*filter(None, (_changed_data(recorded), _changed_emulation(recorded))), *more]
    if any(run["status"] in ("valid", "invalid") for run in recorded["runs"]) and changed:
        raise UsageError(
            f"{recorded['cell']['id']} was measured before {changed[0]} changed",
            f"{'measure the cell again with redo=true, or ' * redo}keep the old results and use another folder:"
            " campaign_dir=…",
        )


def _changed_data(recorded: Record) -> str:
    """Return the folder of the user's own data if files were added, removed or changed, else an empty text."""
    dataset, data = recorded["cell"]["settings"].get("dataset", {}), recorded["dataset"]
    if "path" not in dataset or "://" in data["path"]:
        return ""
    with suppress(DatasetError, OSError):  # the run that reads the data will report these errors
        listed = list_own_files(recorded["cell"]["settings"])
        newest_ns = max(Path(data["path"], file.name).stat().st_ctime_ns for file in listed.files)
        # A baseline reads a file of its own: of the data it takes names and sizes alone, so its record has no time.
        if listed.checksum != data["checksum"] or newest_ns > data.get("listed_ns", newest_ns):
            return str(dataset["path"])
    return ""


def _changed_emulation(recorded: Record) -> str:
    """Return which emulated storage now has other limits than the cell had, or an empty text."""
    storage = recorded["cell"]["settings"]["storage"]
    before = (recorded["provenance"].get("emulated") or {}).get("storage")
    now = emulated_storage(Path(storage["root"]).expanduser()) if before and storage["root"] else None
    if before and now and any(before.get(name) != now.get(name) for name in (*BOUNDS, "model")):
        return f"the emulated storage {storage['name']}"
    return ""
