"""Parse the arguments that several verbs share: flags, KEY=VALUE words, the campaign folder and names of cells."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Sequence
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
_ALL = "python -m campaign status --all lists all cells"
_SHOWN = 10  # an error message about an ambiguous name lists at most so many cells


class CampaignParser(parser.ProgramParser):
    """Parse a command line, and raise UsageError if the command line is wrong."""

    def refuse(self, message: str, hint: str) -> NoReturn:
        """Raise UsageError."""
        raise UsageError(message, hint)


def make_parser(verb: str, about: str, usage: str = "", *, json: bool, open_ended: bool = False) -> CampaignParser:
    """Return the parser of a verb; `usage` replaces the usage line that argparse would write after the verb."""
    program = f"python -m campaign {verb}"
    made = CampaignParser(program, f"{program} {usage}" if usage else None, about, open_ended=open_ended)
    if json:
        made.add_argument("--json", action="store_true", help="print the result as JSON on stdout")
    return made


def take_options(
    verb: CampaignParser, argv: Sequence[str], flags: Collection[str] = ()
) -> tuple[argparse.Namespace, list[str]]:
    """Return the options of a verb, and its other arguments, which describe a campaign.

    From the flags of `python -m campaign`, the verb accepts `flags`, --config-dir and --multirun.
    Raises UsageError for any other flag.
    """
    options, rest = verb.parse_known_args(argv)
    legal = {*verb.flags, *command_line.CONFIG_DIR, *command_line.MULTIRUN, *flags}
    for word in rest[: rest.index(END_OF_FLAGS)] if END_OF_FLAGS in rest else rest:
        if word.startswith("-") and (flag := word.partition("=")[0]) not in legal:
            raise UsageError(f"unknown flag '{flag}'", nearest_hint(flag, legal))
    return options, rest


def whole_number(most: int | None = None) -> Callable[[str], int]:
    """Return the type of a flag whose value is a whole number from 1 on, and at most `most` if `most` is given."""

    def number(text: str) -> int:
        if text.isdecimal() and int(text) and (most is None or int(text) <= most):
            return int(text)
        legal = "of 1 or more" if most is None else f"from 1 to {most:,}"
        raise argparse.ArgumentTypeError(f"{text} is not a whole number {legal}")

    return number


def add_folder(verb: argparse.ArgumentParser, about: str = "the campaign folder (default: results)") -> None:
    """Add the argument for the campaign folder: a path, or ``campaign_dir=PATH`` as in the main command."""
    verb.add_argument(
        "campaign_dir",
        nargs="?",
        default=_DEFAULT,
        type=lambda text: Path(text.removeprefix(_PREFIX)).expanduser(),
        help=about,
    )


def split_cells_and_folder(words: Sequence[str]) -> tuple[list[str], Path]:
    """Return the names of cells, and the campaign folder, which is the word that is a folder or a path."""
    places = [word for word in words if word.startswith(_PREFIX) or "/" in word or Path(word).expanduser().is_dir()]
    if len(places) > 1:
        raise UsageError(f"several campaign folders are named: {', '.join(places)}", "run the command once per folder")
    folder = Path((places or [_DEFAULT])[0].removeprefix(_PREFIX)).expanduser()
    return [word for word in words if word not in places], folder


def find_cells(folder: CampaignFolder, name: str) -> list[str]:
    """Return the ids of the recorded cells that match a name by the rules of `matching_ids`."""
    return matching_ids(sorted(path.parent.name for path in folder.records.glob("*/record.json")), name)


def read_one_record(folder: CampaignFolder, name: str) -> Record:
    """Return the record of the cell that a name matches; raises UsageError if it matches no cell or several cells."""
    matches, ids = find_cells(folder, name), [path.name for path in folder.records.glob("*")]
    if not matches:
        raise UsageError(
            f"no recorded cell '{name}'",
            nearest_hint(name, ids, otherwise=_ALL * (len(ids) > _SHOWN)) if ids else "nothing is recorded yet",
        )
    if len(matches) > 1:
        more = f" and {len(matches) - _SHOWN} more" if len(matches) > _SHOWN else ""
        raise UsageError(f"'{name}' matches {len(matches)} cells", f"name one of: {', '.join(matches[:_SHOWN])}{more}")
    if (recorded := record.read_record(folder.record(matches[0]))) is None:
        raise EnvironmentFaultError(f"{folder.record(matches[0])} was removed meanwhile", "run the command again")
    return recorded


def read_judged_record(verdicts: Verdicts, name: str) -> Record:
    """Return the record of the cell that a name matches, with the verdicts on its runs."""
    return verdicts.judge(read_one_record(verdicts.folder, name))


def matching_ids(ids: Sequence[str], name: str) -> list[str]:
    """Return the ids that match a name: the equal id, or else all ids that start with it or whose hash does.

    The hash is the last part of an id, behind the last hyphen.
    """
    if name in ids:
        return [name]
    return [cell for cell in ids if cell.startswith(name) or cell.rpartition("-")[2].startswith(name)]
