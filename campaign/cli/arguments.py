"""What the verbs have in common: the campaign folder as an argument, and a cell named in short."""

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


class Parser(argparse.ArgumentParser):
    """A parser whose errors show odd words as text."""

    def error(self, message: str) -> NoReturn:
        """Print usage and message, and exit with 2."""
        super().error(visible(message))


def parser(verb: str, about: str, *, json: bool) -> argparse.ArgumentParser:
    """Make the parser of a verb that reads one campaign folder."""
    made = Parser(prog=f"python -m campaign {verb}", description=about, allow_abbrev=False)
    if json:
        made.add_argument("--json", action="store_true", help="machine-readable, on stdout")
    return made


def add_folder(made: argparse.ArgumentParser) -> None:
    """Add the argument that names the campaign folder, as a path or as the main verb spells it."""
    made.add_argument(
        "campaign_dir",
        nargs="?",
        default=_DEFAULT,
        type=lambda text: Path(text.removeprefix(_PREFIX)).expanduser(),
        help="the campaign's folder (default: results)",
    )


def cells_and_folder(words: Sequence[str]) -> tuple[list[str], Path]:
    """Tell the cells that are named from the campaign folder: a folder that is there, or a path."""
    places = [word for word in words if word.startswith(_PREFIX) or "/" in word or Path(word).expanduser().is_dir()]
    if len(places) > 1:
        raise UsageError(f"one folder at a time: {', '.join(places)}", "give the command for each of them")
    folder = Path((places or [_DEFAULT])[0].removeprefix(_PREFIX)).expanduser()
    return [word for word in words if word not in places], folder


def find(folder: CampaignFolder, words: str) -> list[str]:
    """List the ids of the recorded cells that `words` may mean: a whole id, its start or its hash."""
    return matching(sorted(path.parent.name for path in folder.records.glob("*/record.json")), words)


def recorded(folder: CampaignFolder, words: str) -> Record:
    """Read the record of the one cell that `words` mean."""
    found, ids = find(folder, words), [path.name for path in folder.records.glob("*")]
    if not found:
        raise UsageError(f"no recorded cell '{words}'", nearest(words, ids) if ids else "nothing is recorded yet")
    if len(found) > 1:
        raise UsageError(f"'{words}' may be {len(found)} cells", "one of: " + ", ".join(found[:10]))
    if (read := record.read(folder.record(found[0]))) is None:
        raise EnvironmentFaultError(f"{folder.record(found[0])} is gone", "give the command again")
    return read


def judged(verdicts: Verdicts, words: str) -> Record:
    """Read the record of the one cell that `words` mean, with its verdicts."""
    return verdicts.judged(recorded(verdicts.folder, words))


def matching(ids: Sequence[str], words: str) -> list[str]:
    """List the ids that `words` may mean: a whole one, the start of some, or a hash."""
    return [words] if words in ids else [cell for cell in ids if cell.startswith(words) or cell.endswith(words)]
