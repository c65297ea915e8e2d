"""The datasets that emulated nodes read: made by the owner of what they read, while it can be written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from campaign import console
from campaign.config import command_line
from campaign.config.collect import collect
from campaign.ending import ended
from campaign.errors import UsageError
from campaign.storage import datasets
from campaign.testbed import apply
from campaign.testbed.spec import FOLDER_VARIABLE, NODES
from jobs.system.programs import python

if TYPE_CHECKING:
    from campaign.testbed.state import Storage


def fill(folder: Path, words: Sequence[str]) -> int:
    """Make the datasets of a campaign with these words on the nodes of a testbed; returns the exit code. Needs root."""

    def make(first: Storage) -> int:
        user, group = first.owner or apply.owner()
        # Never as root: the owner could have put a link there.
        with subprocess.Popen(
            python("-m", "campaign.testbed.fill", *words),
            env={**os.environ, FOLDER_VARIABLE: str(folder)},
            user=user, group=group, extra_groups=[],
        ) as child:  # fmt: skip
            try:
                return child.wait()
            except KeyboardInterrupt:
                child.terminate()
                return child.wait()

    with console.polite_end():
        return apply.fill(folder, make)


def make(words: list[str]) -> int:
    """Make the datasets where they can be written now; returns 0."""
    from campaign.cli.run import planned  # noqa: PLC0415 - the command line is above this

    points = collect([*words, "site=twin", f"storage={NODES}", "storage.node_root=null"])  # one node is there
    if points is None or command_line.split(words).dry_run:
        raise UsageError("testbed fill takes the words of a grid alone", "testbed fill +paper=hepcnn +size=smoke")
    plan = planned(points)
    datasets.require_possible(plan.entries)
    with console.polite_end(), console.progress() as progress:
        found = datasets.datasets(plan.entries, plan.folder, progress, redo=True)
    for data in {data["path"]: data for data in found.values()}.values():
        console.say(f"{data['path']}: {data.get('files', 0)} files, {data.get('bytes', 0) / 1e6:,.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(ended(sys.argv[1:], make))
