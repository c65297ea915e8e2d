"""The command that measures a recorded cell, as it is or with other settings.

A record may be a stranger's. So the command is made of the cell's settings, by the keys that the configuration has, and
of no word that the record has; how a campaign is run (its site, its cluster) comes from a request of this user.
"""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from campaign.cells.cell import make_cell
from campaign.config import command_line
from campaign.config.collect import choices, collect
from campaign.errors import UsageError
from jobs.model.conduct import Flat, Running
from jobs.model.record import Asked, Record
from jobs.model.settings import EVERY, flat

_OTHER_BENCHMARK = "benchmark.name"  # where it changes, of the cell's settings only those of its data mean anything
_DATA = ("dataset", "storage")
# A choice of somebody's own is made from the first of these whose key it has.
_ALIKE = {
    "dataset": {"path": "folder", "sigma": "demo", "samples": "hep", "height": "climate", "classes": "malware"},
    "storage": {"endpoint": "s3", "root": "local"},
    "checkpoint": {"fast": "burst_buffer", "every": "site"},
}
USUAL = {"benchmark": "micro", "dataset": "demo", "storage": "local", "checkpoint": "none"}
"""The choices of conf/config.yaml, which no word names."""
_NOT_AGAIN = {"campaign_dir", "detach", "profile", "redo", "size"}  # of conduct: said otherwise, or no part of it
_OF_CONDUCT = {"site", "cluster", "trace", "checks", *Running.__struct_fields__} - _NOT_AGAIN
_PLAIN = re.compile(r"[\w./:@%+-]*", re.ASCII)  # what Hydra reads without quotes


def cell_with(recorded: Record, changes: Mapping[str, Any]) -> str:
    """Return the id of the cell that differs in these settings, by dotted keys."""
    point: Any = copy.deepcopy(recorded["cell"]["settings"])
    for key, value in changes.items():
        node, (*path, last) = point, key.split(".")
        for part in path:
            node = node.setdefault(part, {})
        node[last] = value
    return make_cell(point).id


def words(recorded: Record, changes: Mapping[str, Any], folder: Path, request: Asked | None = None) -> list[str]:
    """Return the words that measure the cell with these settings in a campaign folder; as few as there can be.

    `request` is this user's own for the cell (`campaign.cells.requests`). An address (``https://…``) that it does not
    name is left out: whoever gives the command would send their credentials there. Raises UsageError where a setting
    is no key that a cell has, or cannot be said in a word.
    """
    conduct, wanted = _conduct(request), _wanted(recorded, changes)
    strange = changes if request else wanted
    wanted = {key: value for key, value in wanted.items() if key not in strange or "://" not in str(value)}
    chosen = _choices(wanted)
    points = collect([*conduct, *chosen])
    composed = dict(flat(points[0])) if points else {}
    settings = {key for key in composed if key.partition(".")[0] in EVERY}
    if unknown := sorted(wanted.keys() - settings - changes.keys()):
        raise UsageError(f"the record has '{unknown[0]}', which is no key of such a cell", "measure it by hand")
    own = [_word(key, value) for key, value in wanted.items() if composed.get(key) != value]
    place = [] if folder == Path("results").resolve() else [_word("campaign_dir", str(folder))]
    return [*conduct, *chosen, *own, *place]


def in_words(found: Sequence[str]) -> str:
    """Return the command for a shell."""
    return shlex.join(["python", "-m", "campaign", *found])


def _wanted(recorded: Record, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cell's settings with the changed ones; what is changed to None is as it is without a word."""
    settings = dict(flat(recorded["cell"]["settings"]))
    if _OTHER_BENCHMARK in changes:
        settings = {key: value for key, value in settings.items() if key.partition(".")[0] in _DATA}
    if "storage.name" in changes:
        settings = {key: value for key, value in settings.items() if not key.startswith("storage.")}
    unchanged = {key: value for key, value in settings.items() if key not in changes}
    return unchanged | {key: value for key, value in changes.items() if value is not None}


def _conduct(request: Asked | None) -> list[str]:
    """Return the words of a request that say how its campaign is run, and where its own configuration is."""
    if request is None:
        return []
    split = command_line.split(command_line.without_verb(request["words"]))
    own = [word for word in split.overrides if re.split(r"[.=]", word.lstrip("+"))[0] in _OF_CONDUCT]
    return [*split.flags, *own]


def _choices(wanted: Flat) -> list[str]:
    """Return the words that choose the groups of a cell, where they are not the usual ones, and what these require."""
    chosen: dict[str, Any] = {}
    for group, usual in USUAL.items():
        name = wanted.get(f"{group}.name", usual)
        choice = name if name in choices(group) else _alike(group, wanted)
        chosen |= {group: choice} if choice != usual else {}
        chosen |= {f"{group}.name": name} if choice != name else {}
    chosen |= {"dataset.path": wanted["dataset.path"]} if "dataset.path" in wanted else {}
    return [_word(key, value) for key, value in chosen.items()]


def _alike(group: str, wanted: Flat) -> str:
    """Return the choice that has the keys of one whose name is somebody's own."""
    for key, choice in _ALIKE.get(group, {}).items():
        if any(f"{each}.".startswith(f"{group}.{key}.") for each in wanted):
            return choice
    raise UsageError(f"{group}.name={wanted[f'{group}.name']} is no choice of {group}", "measure it by hand")


def _word(key: str, value: Any) -> str:
    """Return a word of Hydra's; several values are a grid. Raises UsageError for a text that is no plain value."""
    if "${" in str(value):
        raise UsageError(f"{key}={value} would be looked up, not taken as it is", "measure it by hand")
    if isinstance(value, tuple):
        return f"{key}={','.join(map(str, value))}"
    plain = {"None": "null", "True": "true", "False": "false"}.get(str(value), value)
    return f"{key}={command_line.quoted(plain) if isinstance(plain, str) and not _PLAIN.fullmatch(plain) else plain}"
