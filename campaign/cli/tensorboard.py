"""Run the verb `tensorboard`: write the cells as trials, and their profiles, into a folder for TensorBoard."""

from __future__ import annotations

import importlib.util
import shlex
from pathlib import Path

from campaign import console
from campaign.cells.folder import open_existing
from campaign.cells.verdicts import Verdicts
from campaign.cli import arguments
from campaign.errors import EnvironmentFaultError, UsageError
from jobs.system.files import resolve_links


def main(argv: list[str]) -> int:
    """Write the folder and print the TensorBoard command for it; return 1 if a cell was left out, else 0."""
    about = "Write the cells for TensorBoard, which shows them in HParams and in the Trace Viewer."
    parser = arguments.make_parser("tensorboard", about, json=False)
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="folder to write (default: tensorboard/ in the campaign folder)"
    )
    arguments.add_folder(parser)
    options = parser.parse_args(argv)
    folder, campaign = open_existing(options.campaign_dir)
    if not importlib.util.find_spec("tensorboard"):
        raise EnvironmentFaultError("TensorBoard is not installed", "pip install 'tfio-campaign[tensorboard]'")
    from campaign.tensorboard import write_trials  # noqa: PLC0415 - TensorBoard may be missing

    verdicts = Verdicts(folder, requests=campaign["requests"])
    judged = {path.parent.name: verdicts.read(path) for path in sorted(folder.records.glob("*/record.json"))}
    records = {cell: each for cell, (each, _) in judged.items() if each}
    if not records:
        raise UsageError(f"{folder.root} has no records", "first measure a campaign: python -m campaign -m threads=1,2")
    # Links are resolved only in the folder that the user names: a copied campaign folder may contain foreign links.
    logdir = resolve_links(options.out) if options.out else folder.root / "tensorboard"
    with console.progress() as show:
        faults = write_trials(logdir, folder, records, show)
    faults += [f"{cell}: {why}" for cell, (_, why) in judged.items() if why]
    console.show(f"{logdir}: {console.count_noun(len(records), 'cell')}")
    console.say_first([f"left out: {each}" for each in faults])
    console.say(f"to see the cells: tensorboard --logdir {shlex.quote(str(logdir))}")
    return 1 if faults else 0
