"""Make the data sets that emulated nodes read, while the file system of the nodes is mounted for writing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from campaign import console
from campaign.config import command_line
from campaign.config.collect import collect_points
from campaign.errors import UsageError, run_to_exit_code
from campaign.storage import datasets
from campaign.testbed import apply
from campaign.testbed.spec import FOLDER_VARIABLE, NODES
from jobs.system.programs import python_command

if TYPE_CHECKING:
    from campaign.testbed.state import StorageState


def fill_nodes(folder: Path, words: Sequence[str]) -> int:
    """Make the data sets of a campaign on the emulated nodes of a testbed; return the exit code.

    `words` are the command-line arguments of `run` for this campaign.
    """

    def make(first: StorageState) -> int:
        user, group = first.owner or apply.find_owner()
        # The process runs as the owner of the files. Root would follow a link that the owner has put into the folder.
        with subprocess.Popen(
            python_command("-m", "campaign.testbed.fill", *words),
            env={**os.environ, FOLDER_VARIABLE: str(folder)},
            user=user, group=group, extra_groups=[],
        ) as child:  # fmt: skip
            try:
                return child.wait()
            except KeyboardInterrupt:
                child.terminate()
                return child.wait()

    with console.interrupt_on_kill():
        return apply.write_on_first_node(folder, make)


def make_node_data(words: list[str]) -> int:
    """Make the data sets of the campaign with the arguments `words` on the writable node; return 0."""
    from campaign.cli.run import plan_points  # noqa: PLC0415 - the package cli imports this package

    # Set `storage.node_root=null`, because only one emulated node is mounted now.
    points = collect_points([*words, "site=twin", f"storage={NODES}", "storage.node_root=null"])
    if points is None or command_line.parse_command_line(words).dry_run:
        raise UsageError(
            "testbed fill accepts only the settings of a grid, no options",
            "for example: testbed fill +paper=hepcnn +size=smoke",
        )
    plan = plan_points(points)
    datasets.require_possible(plan.entries)
    with console.interrupt_on_kill(), console.progress() as progress:
        data_sets = datasets.prepare_datasets(plan.entries, plan.folder, progress, redo=True)
    for data in {data["path"]: data for data in data_sets.values()}.values():
        console.say(f"{data['path']}: {data.get('files', 0)} files, {data.get('bytes', 0) / 1e6:,.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(run_to_exit_code(sys.argv[1:], make_node_data))
