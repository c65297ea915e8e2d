"""What the verbs have in common: the campaign folder as an argument, and states told truthfully."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import Timeout

from campaign import record

if TYPE_CHECKING:
    from campaign.folder import CampaignFolder

_PREFIX = "campaign_dir="


def parser(verb: str, about: str, *, json: bool) -> argparse.ArgumentParser:
    """Make the parser of a verb that looks at one campaign folder."""
    made = argparse.ArgumentParser(prog=f"python -m campaign {verb}", description=about, allow_abbrev=False)
    if json:
        made.add_argument("--json", action="store_true", help="machine-readable, on stdout")
    return made


def add_folder(made: argparse.ArgumentParser) -> None:
    """Add the argument that names the campaign folder, as a path or as the main verb spells it."""
    made.add_argument(
        "campaign_dir",
        nargs="?",
        default="results",
        type=lambda text: Path(text.removeprefix(_PREFIX)).expanduser(),
        help="the campaign's folder (default: results)",
    )


def states(folder: CampaignFolder, campaign: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Look up every cell that the campaign was ever asked for, and every one that has a record.

    Returns
    -------
    dict
        For each cell id ``status``, ``reason``, ``valid`` and ``measured`` runs; a record that says ``running`` while
        no worker is at work is ``interrupted``.
    """
    asked = dict.fromkeys(cell for request in campaign["requests"] for cell in request["cells"])
    recorded = sorted(path.parent.name for path in folder.records.glob("*/record.json"))
    at_work = worker_at_work(folder)
    return {cell: _state(folder, cell, at_work=at_work) for cell in dict.fromkeys([*asked, *recorded])}


def worker_at_work(folder: CampaignFolder) -> bool | None:
    """Tell whether a worker holds its lock; None where this user may not try it."""
    if not folder.workers.is_dir():
        return False
    try:
        with folder.worker_lock().acquire(timeout=0):
            return False
    except Timeout:
        return True
    except OSError:
        return None


def find(folder: CampaignFolder, words: str) -> list[str]:
    """List the ids of the recorded cells that `words` may mean: a whole id, its start or its hash."""
    ids = sorted(path.parent.name for path in folder.records.glob("*/record.json"))
    return [words] if words in ids else [cell for cell in ids if cell.startswith(words) or cell.endswith(words)]


def _state(folder: CampaignFolder, cell: str, *, at_work: bool | None) -> dict[str, Any]:
    try:
        recorded = record.read(folder.record(cell))
    except (record.DamagedRecordError, record.NewerRecordError) as error:
        return {"status": "damaged", "reason": error.message, "valid": 0, "measured": 0}
    if recorded is None:
        return {"status": "planned", "reason": None, "valid": 0, "measured": 0}
    status = recorded["status"]
    if status == "running" and at_work is False:
        status = "interrupted"
    return {
        "status": status,
        "reason": recorded.get("reason"),
        "valid": len(record.measured(recorded, "valid")),
        "measured": len(record.measured(recorded)),
    }
