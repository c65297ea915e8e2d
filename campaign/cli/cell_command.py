"""Write the shell command that measures a recorded cell again, with the same or with changed settings.

Another user may have written the record. So the command takes from the record only values of known settings, and no
other text. The site and the cluster come from a recorded request of the present user.
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
from campaign.config.collect import collect_points, shipped_choices
from campaign.errors import UsageError
from jobs.model.conduct import ConductKeys, Flat
from jobs.model.record import Record, RecordedCall
from jobs.model.settings import EVERY, flat_items
from jobs.system.files import resolve_links

_BENCHMARK_KEY = "benchmark.name"  # a command with another benchmark has only the settings in _DATA of the cell
_DATA = ("dataset", "storage")
# If the cell's choice of a group is not in our conf/, the command names the first of these choices instead whose key
# is among the cell's settings.
_SIMILAR_CHOICES = {
    "dataset": {"path": "folder", "sigma": "demo", "samples": "hep", "height": "climate", "classes": "malware"},
    "storage": {"endpoint": "s3", "root": "local"},
    "checkpoint": {"fast": "burst_buffer", "every": "site"},
}
USUAL = {"benchmark": "micro", "dataset": "demo", "storage": "local", "checkpoint": "none"}
"""The default choices in conf/config.yaml; a command need not name these choices."""
_NOT_AGAIN = {"campaign_dir", "detach", "profile", "redo", "size"}  # settings of the request that a test must not have
_WRITE_IT = "write the command for this cell yourself"
_OF_CONDUCT = {"site", "cluster", "trace", "checks", *ConductKeys.__struct_fields__} - _NOT_AGAIN
_PLAIN = re.compile(r"[\w./:@%+-]*", re.ASCII)  # a text that Hydra reads correctly without quotes


def changed_cell_id(recorded: Record, changes: Mapping[str, Any]) -> str:
    """Return the id of the cell that differs from a recorded cell only in `changes`, settings by dotted keys."""
    point: Any = copy.deepcopy(recorded["cell"]["settings"])
    for key, value in changes.items():
        node, (*path, last) = point, key.split(".")
        for part in path:
            node = node.setdefault(part, {})
        node[last] = value
    return make_cell(point).id


def arguments_for(
    recorded: Record, changes: Mapping[str, Any], folder: Path, request: RecordedCall | None = None
) -> list[str]:
    """Return the shortest list of arguments that measures a recorded cell with `changes` in a campaign folder.

    `request` is the present user's own request for the cell (`campaign.cells.folder`). Without a request, addresses
    (``https://…``) of the record are left out, because the command would send credentials to these addresses. Raises
    UsageError if a setting is not a key of such a cell, or cannot be written as an argument.
    """
    conduct, wanted = _conduct_arguments(request), _wanted_settings(recorded, changes)
    untrusted = changes if request else wanted
    wanted = {key: value for key, value in wanted.items() if key not in untrusted or "://" not in str(value)}
    choices = _choice_arguments(wanted)
    points = collect_points([*conduct, *choices])
    composed = dict(flat_items(points[0])) if points else {}
    settings = {key for key in composed if key.partition(".")[0] in EVERY}
    if unknown := sorted(wanted.keys() - settings - changes.keys()):
        raise UsageError(f"the record has '{unknown[0]}', which is no key of such a cell", _WRITE_IT)
    overrides = [_format_override(key, value) for key, value in wanted.items() if composed.get(key) != value]
    campaign_folder = [] if folder == resolve_links("results") else [_format_override("campaign_dir", str(folder))]
    return [*conduct, *choices, *overrides, *campaign_folder]


def format_command(arguments: Sequence[str]) -> str:
    """Return the shell command that runs `python -m campaign` with these arguments."""
    return shlex.join(["python", "-m", "campaign", *arguments])


def _wanted_settings(recorded: Record, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cell's settings with the changes."""
    settings = dict(flat_items(recorded["cell"]["settings"]))
    if _BENCHMARK_KEY in changes:
        settings = {key: value for key, value in settings.items() if key.partition(".")[0] in _DATA}
    return settings | dict(changes)


def _conduct_arguments(request: RecordedCall | None) -> list[str]:
    """Return the arguments of a request that say how to run the campaign: site, cluster, checks, --config-dir."""
    if request is None:
        return []
    parsed = command_line.parse_command_line(command_line.strip_verb(request["words"]))
    conduct_overrides = [word for word in parsed.overrides if re.split(r"[.=]", word.lstrip("+"))[0] in _OF_CONDUCT]
    return [*parsed.config_dir_flags, *conduct_overrides]


def _choice_arguments(wanted: Flat) -> list[str]:
    """Return the arguments ``GROUP=CHOICE`` of a cell; leave out the default choices."""
    chosen: dict[str, Any] = {}
    for group, default in USUAL.items():
        name = wanted.get(f"{group}.name", default)
        choice = name if name in shipped_choices(group) else _similar_choice(group, wanted)
        chosen |= {group: choice} if choice != default else {}
        chosen |= {f"{group}.name": name} if choice != name else {}
    chosen |= {"dataset.path": wanted["dataset.path"]} if "dataset.path" in wanted else {}
    return [_format_override(key, value) for key, value in chosen.items()]


def _similar_choice(group: str, wanted: Flat) -> str:
    """Return a choice of a group in our conf/ that has the keys of the cell's settings.

    It replaces the cell's own choice, whose file belongs to somebody else. Raises UsageError if no choice fits.
    """
    for group_key, choice in _SIMILAR_CHOICES.get(group, {}).items():
        if any(f"{setting}.".startswith(f"{group}.{group_key}.") for setting in wanted):
            return choice
    raise UsageError(f"{group}.name={wanted[f'{group}.name']} is no choice of {group}", _WRITE_IT)


def _format_override(key: str, value: Any) -> str:
    """Return an override ``KEY=VALUE`` for Hydra; a tuple of values makes a grid.

    Raises UsageError if the value contains an interpolation (``${…}``).
    """
    if "${" in str(value):
        raise UsageError(f"{key}={value} has an interpolation, which Hydra would replace", _WRITE_IT)
    if isinstance(value, tuple):
        return f"{key}={','.join(map(str, value))}"
    plain = {"None": "null", "True": "true", "False": "false"}.get(str(value), value)
    is_quoted = isinstance(plain, str) and not _PLAIN.fullmatch(plain)
    return f"{key}={command_line.quote_for_hydra(plain) if is_quoted else plain}"
