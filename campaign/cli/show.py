"""Run the verb `show CELL`: print runs and checks of a cell, what bounds it, and the command that would help."""

from __future__ import annotations

import shlex
import statistics
from pathlib import Path
from typing import Any

from campaign import console
from campaign.cells.folder import CampaignFolder, last_own_request, open_existing
from campaign.cells.verdicts import Verdicts, require_usable
from campaign.cli import arguments, cell_command, print_cell
from campaign.cli.cell_hints import hints_on
from campaign.cluster.survey import cell_states
from campaign.config.command_line import command_to_continue
from campaign.errors import UsageError
from jobs.judging import stopping
from jobs.judging.bound import Bound
from jobs.judging.save_interval import save_interval
from jobs.judging.work_done import metric_values
from jobs.model.codes import CellState
from jobs.model.record import Record, RecordedCall

_ABOUT = (
    "Show every run of a cell with every check. Then show what bounds the cell, by which numbers, what would help, and"
    " the command that tries it."
)
_CELL = "a cell, named by the start of its id or hash"


def main(argv: list[str]) -> int:
    """Print a cell; return 0 if the cell is done, else 1."""
    parser = arguments.make_parser("show", _ABOUT, json=True)
    parser.add_argument("cell", metavar="CELL", help=_CELL)
    arguments.add_folder(parser)
    options = parser.parse_intermixed_args(argv)  # a flag may stand between cell and folder
    _require_cell(options.cell, options.campaign_dir)
    folder, campaign = open_existing(options.campaign_dir)
    verdicts = Verdicts(folder, requests=campaign["requests"])
    recorded = arguments.read_judged_record(verdicts, options.cell)
    cell = recorded["cell"]["id"]
    state = cell_states(folder, campaign)[cell]
    with require_usable(folder.record(cell)):
        answer = _answer(verdicts, recorded, last_own_request(folder.root, campaign, recorded))
        if options.json:
            console.show_json({**recorded, **{key: state[key] for key in ("status", "reason", "end")}, **answer})
        else:
            print_cell.print_record(recorded, state, str(folder.cell(cell)))
            print_cell.print_answer(answer)
    return int(state["status"] != CellState.DONE)


def _require_cell(name: str, folder: Path) -> None:
    """Raise UsageError for a name that is empty or that is the path of a file or of a folder."""
    if not name.strip():
        words = shlex.join(["status", "--all", str(folder)])
        raise UsageError("the name of the cell is empty", f"python -m campaign {words} lists all cells")
    named = Path(name).expanduser()
    if named.is_file():
        cure = f"python -m analysis profile, trace or timelog {shlex.quote(name)} reads it"
        raise UsageError(f"'{name}' is a file, and show takes a cell", cure)
    if named.is_dir():
        cure = f"python -m campaign show {shlex.join([str(folder), name])}"
        raise UsageError(f"'{name}' is a folder, and show takes a cell as its first argument", cure)


def _answer(verdicts: Verdicts, recorded: Record, request: RecordedCall | None) -> dict[str, Any]:
    """Return what `show` says beside the record: the command again, the median, the bound, and what would help."""
    bound = verdicts.bound(recorded)
    return {
        "again": _command_to_repeat(verdicts.folder, recorded, request),
        "measured": _median_of(recorded),
        "bound": bound and bound.as_json,
        "tried": _command_to_try(verdicts, recorded, bound, request) if bound and bound.try_ else None,
        "hints": hints_on(recorded, bound) if bound else [],
        "save_interval": save_interval(recorded["runs"]),
    }


def _median_of(recorded: Record | None) -> dict[str, Any]:
    """Return the median of a cell's metric over its valid runs, with its unit and the number of the runs."""
    if recorded is None:
        return {"median": None, "unit": None, "runs": 0}
    values = metric_values(stopping.measured_runs(recorded, "valid"), recorded["cell"]["figure"])
    median = statistics.median(values) if values else None
    return {"median": median, "unit": recorded["cell"]["unit"], "runs": len(values)}


def _command_to_try(
    verdicts: Verdicts, recorded: Record, bound: Bound, request: RecordedCall | None
) -> dict[str, Any] | None:
    """Return the command that measures the cell with the settings that would help, and what this cell gave so far.

    Return None if no command can be made of the record, and no cell if the command measures a grid.
    """
    folder, cell = verdicts.folder, None
    try:
        words = cell_command.arguments_for(recorded, bound.try_, folder.root, request)
        if not any(isinstance(value, tuple) for value in bound.try_.values()):
            cell = cell_command.changed_cell_id(recorded, bound.try_)
    except UsageError:
        return None
    found = _median_of(verdicts.read(folder.record(cell))[0] if cell else None)
    return {"command": cell_command.format_command(words), "cell": cell, **found}


def _command_to_repeat(folder: CampaignFolder, recorded: Record, request: RecordedCall | None) -> str:
    """Return the line with the command that runs a cell again.

    It is the user's recorded command, or a command made from the cell's settings if somebody else measured the cell.
    """
    if request:
        return f"run the cell again: {command_to_continue(request['words'], recorded['cell']['id'])}"
    try:
        words = cell_command.arguments_for(recorded, {}, folder.root)
    except UsageError as error:
        return f"no command can run this cell again: {error.message}"
    why = "made from the cell's settings, because you did not start it in this folder"
    return f"run the cell again ({why}): {cell_command.format_command(words)}"
