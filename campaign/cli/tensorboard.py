"""Run `tensorboard`: write the cells as trials, and their profiles, into a folder that TensorBoard reads."""

from __future__ import annotations

import importlib.util
import shlex
from pathlib import Path

from campaign import console
from campaign.cells.folder import open_existing
from campaign.cells.verdicts import Verdicts
from campaign.cli import arguments
from campaign.errors import EnvironmentFaultError, UsageError


def main(argv: list[str]) -> int:
    """Write the folder and print how to look at it; return exit code 1 if a cell was left out, else 0."""
    parser = arguments.make_parser("tensorboard", "Show the cells in TensorBoard: HParams, Trace Viewer.", json=False)
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="folder to write (default: tensorboard/ in the campaign's)"
    )
    arguments.add_folder(parser)
    options = parser.parse_args(argv)
    folder, campaign = open_existing(options.campaign_dir)
    if not importlib.util.find_spec("tensorboard"):
        raise EnvironmentFaultError("TensorBoard is not installed", "pip install 'tfio-campaign[tensorboard]'")
    from campaign.tensorboard import write_trials  # noqa: PLC0415 - it may be missing

    verdicts = Verdicts(folder, requests=campaign["requests"])
    judged = {path.parent.name: verdicts.read(path) for path in sorted(folder.records.glob("*/record.json"))}
    records = {cell: each for cell, (each, _) in judged.items() if each}
    if not records:
        raise UsageError(
            f"nothing is recorded in {folder.root}", "measure something: python -m campaign -m threads=1,2"
        )
    # A link in a folder that was copied is not followed; one that the user names is.
    logdir = options.out.expanduser().resolve() if options.out else folder.root / "tensorboard"
    with console.progress() as show:
        faults = write_trials(logdir, folder, records, show)
    faults += [f"{cell}: {why}" for cell, (_, why) in judged.items() if why]
    console.show(f"{logdir}: {console.count_noun(len(records), 'cell')}")
    console.say_first([f"left out: {each}" for each in faults])
    console.say(f"look at it: tensorboard --logdir {shlex.quote(str(logdir))}")
    return 1 if faults else 0
