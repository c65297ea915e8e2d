"""Parse what the verbs share: flags, the words of a campaign, the campaign folder, cells by a part of their ids."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from campaign.cells import record
from campaign.cells.folder import CampaignFolder
from campaign.config import command_line
from campaign.errors import EnvironmentFaultError, UsageError
from jobs import parser
from jobs.model.record import Record
from jobs.parser import END_OF_FLAGS, nearest_hint

if TYPE_CHECKING:
    from campaign.cells.verdicts import Verdicts

_PREFIX, _DEFAULT = "campaign_dir=", "results"
_ALL = "python -m campaign status --all lists them"
_SHOWN = 10  # cells that an ambiguous name may mean


class CampaignParser(parser.ProgramParser):
    """A parser whose errors are those of a campaign."""

    def refuse(self, message: str, hint: str) -> NoReturn:
        """Raise UsageError."""
        raise UsageError(message, hint)


def make_parser(verb: str, about: str, usage: str = "", *, json: bool, open_ended: bool = False) -> CampaignParser:
    """Return the parser of a verb; `usage` are the words behind the verb, else argparse's."""
    program = f"python -m campaign {verb}"
    made = CampaignParser(program, f"{program} {usage}" if usage else None, about, open_ended=open_ended)
    if json:
        made.add_argument("--json", action="store_true", help="machine-readable, on stdout")
    return made


def take_options(
    verb: CampaignParser, argv: Sequence[str], flags: Collection[str] = ()
) -> tuple[argparse.Namespace, list[str]]:
    """Return the options of an open-ended verb, and its other words, which describe a campaign.

    Of the campaign's flags the verb takes `flags` and --config-dir; raises UsageError for others.
    """
    options, rest = verb.parse_known_args(argv)
    legal = {*verb.flags, *command_line.CONFIG_DIR, *command_line.MULTIRUN, *flags}
    for word in rest[: rest.index(END_OF_FLAGS)] if END_OF_FLAGS in rest else rest:
        if word.startswith("-") and (flag := word.partition("=")[0]) not in legal:
            raise UsageError(f"unknown flag '{flag}'", nearest_hint(flag, legal))
    return options, rest


def add_folder(verb: argparse.ArgumentParser, about: str = "the campaign's folder (default: results)") -> None:
    """Add the argument of the campaign folder: a path, or ``campaign_dir=PATH`` as in the main command."""
    verb.add_argument(
        "campaign_dir",
        nargs="?",
        default=_DEFAULT,
        type=lambda text: Path(text.removeprefix(_PREFIX)).expanduser(),
        help=about,
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
        raise UsageError(
            f"no recorded cell '{name}'",
            nearest_hint(name, ids, otherwise=_ALL * (len(ids) > _SHOWN)) if ids else "nothing is recorded yet",
        )
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
