"""Write the command that measures a recorded cell, as it is or with other settings.

Another user may have written the record. So the command has only the cell's settings, under keys of our configuration,
and no other text of the record. The site and the cluster come from a request of this user.
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

_BENCHMARK_KEY = "benchmark.name"  # if it changes, only the settings of the data are kept
_DATA = ("dataset", "storage")
# A choice that is not shipped is replaced by the first of these choices whose key the cell's settings have.
_SIMILAR_CHOICES = {
    "dataset": {"path": "folder", "sigma": "demo", "samples": "hep", "height": "climate", "classes": "malware"},
    "storage": {"endpoint": "s3", "root": "local"},
    "checkpoint": {"fast": "burst_buffer", "every": "site"},
}
USUAL = {"benchmark": "micro", "dataset": "demo", "storage": "local", "checkpoint": "none"}
"""The choices in conf/config.yaml; a command need not name them."""
_NOT_AGAIN = {"campaign_dir", "detach", "profile", "redo", "size"}  # keys of conduct that are not repeated
_OF_CONDUCT = {"site", "cluster", "trace", "checks", *ConductKeys.__struct_fields__} - _NOT_AGAIN
_PLAIN = re.compile(r"[\w./:@%+-]*", re.ASCII)  # what Hydra reads without quotes


def changed_cell_id(recorded: Record, changes: Mapping[str, Any]) -> str:
    """Return the id of the cell that differs from a recorded one in these settings, by dotted keys."""
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
    """Return the arguments that measure the cell with these settings in a campaign folder, as few as possible.

    `request`: this user's own request for the cell (`campaign.cells.folder`). Without it, addresses (``https://…``) of
    the record are left out, because the command would send credentials there. Raises UsageError if a setting is not a
    key of such a cell, or cannot be written as an argument.
    """
    conduct, wanted = _conduct_arguments(request), _wanted_settings(recorded, changes)
    untrusted = changes if request else wanted
    wanted = {key: value for key, value in wanted.items() if key not in untrusted or "://" not in str(value)}
    choices = _choice_arguments(wanted)
    points = collect_points([*conduct, *choices])
    composed = dict(flat_items(points[0])) if points else {}
    settings = {key for key in composed if key.partition(".")[0] in EVERY}
    if unknown := sorted(wanted.keys() - settings - changes.keys()):
        raise UsageError(f"the record has '{unknown[0]}', which is no key of such a cell", "write its command by hand")
    overrides = [_format_override(key, value) for key, value in wanted.items() if composed.get(key) != value]
    campaign_folder = [] if folder == Path("results").resolve() else [_format_override("campaign_dir", str(folder))]
    return [*conduct, *choices, *overrides, *campaign_folder]


def format_command(arguments: Sequence[str]) -> str:
    """Return the command for a shell."""
    return shlex.join(["python", "-m", "campaign", *arguments])


def _wanted_settings(recorded: Record, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cell's settings with the changes; a setting that changes to None gets its default."""
    settings = dict(flat_items(recorded["cell"]["settings"]))
    if _BENCHMARK_KEY in changes:
        settings = {key: value for key, value in settings.items() if key.partition(".")[0] in _DATA}
    if "storage.name" in changes:
        settings = {key: value for key, value in settings.items() if not key.startswith("storage.")}
    unchanged = {key: value for key, value in settings.items() if key not in changes}
    return unchanged | {key: value for key, value in changes.items() if value is not None}


def _conduct_arguments(request: RecordedCall | None) -> list[str]:
    """Return the arguments of a request for the conduct of its campaign, and for its configuration folder."""
    if request is None:
        return []
    parsed = command_line.parse_command_line(command_line.strip_verb(request["words"]))
    conduct_overrides = [word for word in parsed.overrides if re.split(r"[.=]", word.lstrip("+"))[0] in _OF_CONDUCT]
    return [*parsed.config_dir_flags, *conduct_overrides]


def _choice_arguments(wanted: Flat) -> list[str]:
    """Return the arguments that choose the groups of a cell, without the default choices."""
    chosen: dict[str, Any] = {}
    for group, default in USUAL.items():
        name = wanted.get(f"{group}.name", default)
        choice = name if name in shipped_choices(group) else _similar_choice(group, wanted)
        chosen |= {group: choice} if choice != default else {}
        chosen |= {f"{group}.name": name} if choice != name else {}
    chosen |= {"dataset.path": wanted["dataset.path"]} if "dataset.path" in wanted else {}
    return [_format_override(key, value) for key, value in chosen.items()]


def _similar_choice(group: str, wanted: Flat) -> str:
    """Return the shipped choice of a group with the keys of the cell's settings, whose own choice is not shipped."""
    for group_key, choice in _SIMILAR_CHOICES.get(group, {}).items():
        if any(f"{setting}.".startswith(f"{group}.{group_key}.") for setting in wanted):
            return choice
    raise UsageError(f"{group}.name={wanted[f'{group}.name']} is no choice of {group}", "write its command by hand")


def _format_override(key: str, value: Any) -> str:
    """Return an override for Hydra; several values make a grid. Raises UsageError for a text with an interpolation."""
    if "${" in str(value):
        raise UsageError(f"{key}={value} has an interpolation, which Hydra would replace", "write its command by hand")
    if isinstance(value, tuple):
        return f"{key}={','.join(map(str, value))}"
    plain = {"None": "null", "True": "true", "False": "false"}.get(str(value), value)
    is_quoted = isinstance(plain, str) and not _PLAIN.fullmatch(plain)
    return f"{key}={command_line.quote_for_hydra(plain) if is_quoted else plain}"
