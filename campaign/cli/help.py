"""`python -m campaign --help`: printed from the configuration files, without starting Hydra."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from campaign.config.command_line import CONFIG_DIR_VARIABLE
from campaign.config.reference import as_text, yaml_files
from jobs.model.codes import ExitCode

_HEAD = """\
How fast does this storage feed TensorFlow, and can the number be believed?

usage: python -m campaign [-m] [KEY=VALUE[,VALUE...] ...] [--only CELL[,CELL...]] [--dry-run] [--yes]
       python -m campaign reproduce [+size=smoke] [KEY=VALUE ...]   (the whole paper)
       python -m campaign status | watch | cancel | clean | why | advise | report | verdicts | compare A B
       python -m campaign stall --data DIR -- PROGRAM ...           (does any program wait for its storage?)
       python -m campaign doctor | stage | tensorboard | testbed    (each verb has --help)
       python -m analysis CAMPAIGN_DIR

Several values for a key make a grid; what is recorded is not measured again. --dry-run prints the cells and their
state (on Slurm also the node-hours and what sbatch would get), and starts nothing. On a terminal it asks
before it spends node-hours; with --yes or CAMPAIGN_YES=1 it does not ask. --only measures only some cells of the grid:
each is named by its id, the start of its id, or the hash at the end of its id."""
_TAIL = f"""\
Exit codes: {", ".join(f"{code} {code.meaning}" for code in ExitCode)}.

Your own choices of a group come from --config-dir DIR or $CAMPAIGN_CONFIG_DIR. Hydra's own flags work too: --cfg job
shows a composed configuration, --info its sources, --hydra-help the rest."""


def main() -> int:
    """Print groups with their choices, then every key with its default and meaning."""
    print("\n".join(_fitting(_text(), shutil.get_terminal_size((120, 24)).columns)))
    return 0


def _text() -> Iterator[str]:
    conf = files("conf")
    yield _HEAD
    yield "\nGroups (GROUP=CHOICE; +GROUP=CHOICE for paper and size):"
    for group, choices in sorted(_groups(conf).items()):
        yield f"  {group:11} {', '.join(sorted(choices))}"
    yield from as_text()
    yield f"\n{_TAIL}"


def _fitting(texts: Iterable[str], width: int) -> Iterator[str]:
    """Yield their lines, each that is wider folded below its comment, or else below its second word."""
    for line in itertools.chain.from_iterable(text.split("\n") for text in texts):
        below = re.match(r"[^#]*# |  \w+ +|\s*", line)
        indent = re.sub("[^#]", " ", below[0]) if below else ""
        if not indent or len(indent) > width // 2:
            indent = "    # " if "#" in line else "    "
        yield from textwrap.wrap(
            line, max(width, 40), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        ) or [""]


def _groups(conf: Traversable) -> dict[str, set[str]]:
    """List the groups of the package and of the user's own configuration folder."""
    own = os.environ.get(CONFIG_DIR_VARIABLE)
    groups: dict[str, set[str]] = {}
    for root in (conf, *([Path(own)] if own and Path(own).is_dir() else [])):
        for entry in root.iterdir():
            choices = {file.name.removesuffix(".yaml") for file in yaml_files(entry)}
            if choices:
                groups.setdefault(entry.name, set()).update(choices)
    return groups


def body_of(file: Traversable) -> str:
    """Return what stands between a file's defaults list and its ``hydra`` node: keys, values and comments."""
    body: list[str] = []
    in_defaults = False
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("hydra:"):
            break
        in_defaults = line.startswith("defaults:") or (in_defaults and line.startswith("  "))
        if not in_defaults:
            body.append(f"  {line}".rstrip())
    return "\n".join(body).strip("\n")
