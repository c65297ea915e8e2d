"""Parse what the verbs share: the argument of the campaign folder, and cells by a part of their ids."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from campaign.cells import record
from campaign.cells.folder import CampaignFolder
from campaign.errors import EnvironmentFaultError, UsageError, nearest
from jobs.model.record import Record
from jobs.terminal import visible

if TYPE_CHECKING:
    from campaign.cells.verdicts import Verdicts

_PREFIX, _DEFAULT = "campaign_dir=", "results"
_SHOWN = 10  # cells that an ambiguous name may mean


class Parser(argparse.ArgumentParser):
    """A parser whose errors show unprintable characters as text."""

    def error(self, message: str) -> NoReturn:
        """Print usage and message, and exit with 2."""
        super().error(visible(message))


def make_parser(verb: str, about: str, *, json: bool) -> argparse.ArgumentParser:
    """Return the parser of a verb that reads one campaign folder."""
    parser = Parser(prog=f"python -m campaign {verb}", description=about, allow_abbrev=False)
    if json:
        parser.add_argument("--json", action="store_true", help="machine-readable, on stdout")
    return parser


def add_folder(parser: argparse.ArgumentParser) -> None:
    """Add the argument of the campaign folder: a path, or ``campaign_dir=PATH`` as in the main command."""
    parser.add_argument(
        "campaign_dir",
        nargs="?",
        default=_DEFAULT,
        type=lambda text: Path(text.removeprefix(_PREFIX)).expanduser(),
        help="the campaign's folder (default: results)",
    )


def split_cells_and_folder(words: Sequence[str]) -> tuple[list[str], Path]:
    """Return the names of cells, and the campaign folder: the word that is a folder or a path."""
    places = [word for word in words if word.startswith(_PREFIX) or "/" in word or Path(word).expanduser().is_dir()]
    if len(places) > 1:
        raise UsageError(f"one folder at a time: {', '.join(places)}", "give the command for each of them")
    folder = Path((places or [_DEFAULT])[0].removeprefix(_PREFIX)).expanduser()
    return [word for word in words if word not in places], folder


def find_cells(folder: CampaignFolder, name: str) -> list[str]:
    """Return the ids of the recorded cells that a name may mean, as `matching_ids` says."""
    return matching_ids(sorted(path.parent.name for path in folder.records.glob("*/record.json")), name)


def read_one_record(folder: CampaignFolder, name: str) -> Record:
    """Return the record of the one cell that a name means; raises UsageError for none or several."""
    matches, ids = find_cells(folder, name), [path.name for path in folder.records.glob("*")]
    if not matches:
        raise UsageError(f"no recorded cell '{name}'", nearest(name, ids) if ids else "nothing is recorded yet")
    if len(matches) > 1:
        more = f" and {len(matches) - _SHOWN} more" if len(matches) > _SHOWN else ""
        raise UsageError(f"'{name}' may be {len(matches)} cells", f"one of: {', '.join(matches[:_SHOWN])}{more}")
    if (recorded := record.read_record(folder.record(matches[0]))) is None:
        raise EnvironmentFaultError(f"{folder.record(matches[0])} is gone", "give the command again")
    return recorded


def read_judged_record(verdicts: Verdicts, name: str) -> Record:
    """Return the record of the one cell that a name means, with its verdicts."""
    return verdicts.judged(read_one_record(verdicts.folder, name))


def matching_ids(ids: Sequence[str], name: str) -> list[str]:
    """Return the ids that a name may mean: a whole id, or all whose id, or the hash at its end, begins so."""
    if name in ids:
        return [name]
    return [cell for cell in ids if cell.startswith(name) or cell.rpartition("-")[2].startswith(name)]
