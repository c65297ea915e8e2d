"""Declare the tree of all settings, and convert composed values to the types of their settings.

Hydra composes plain values and refuses unknown keys. This module refuses values with a wrong type or out of range; its
messages name the dotted key. Rules about several settings are in `campaign.config.rules`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from campaign.config.rules import HERE, ON_SLURM
from campaign.errors import UsageError
from jobs.benchmarks.registry import benchmarks
from jobs.model.conduct import ConductKeys, Limits, LocalCluster, Point, SiteKeys, SlurmCluster, TraceSettings
from jobs.model.declared import MISSING, DeclaredSetting, Keys, declared_defaults, declared_settings
from jobs.model.settings import (
    Accelerator,
    BufferedCheckpoint,
    ClimateDataset,
    Common,
    DefinedAccelerator,
    DirectCheckpoint,
    ExecutableDataset,
    FolderDataset,
    HepDataset,
    ImageDataset,
    NodeWithName,
    ObjectStorage,
    Profile,
    SampleDataset,
    Storage,
    flat_items,
)
from jobs.parser import nearest_hint

Declaration = DeclaredSetting | tuple[type[Keys], ...]
"""The declaration of a key: a setting, or for a node the classes that may declare its settings."""
CHOICES: dict[str, dict[str, type[Keys]]] = {
    "benchmark": {name: each.keys for name, each in benchmarks().items()},
    "dataset": {
        "synthetic": ImageDataset,
        "executables": ExecutableDataset,
        "samples": SampleDataset,
        "hep": HepDataset,
        "climate": ClimateDataset,
        "folder": FolderDataset,
    },
    "site": {"site": SiteKeys},  # precedes the groups that use its values, so that errors name the site's key
    "storage": {"posix": Storage, "s3": ObjectStorage},
    "accelerator": {"accelerator": Accelerator, "defined": DefinedAccelerator},
    "checkpoint": {"none": NodeWithName, "direct": DirectCheckpoint, "buffered": BufferedCheckpoint},
    "cluster": {"here": LocalCluster, "slurm": SlurmCluster},
}
"""The groups of the configuration, each with the classes that declare the settings of its choices."""
NODES: dict[str, type[Keys]] = {"profile": Profile, "trace": TraceSettings, "checks": Limits}
ROOT: dict[str, Declaration] = {
    **{group: tuple(kinds.values()) for group, kinds in CHOICES.items()},
    **declared_settings(Common),
    **declared_settings(ConductKeys),
    **{name: (kind,) for name, kind in NODES.items()},
}
"""The top-level keys of the configuration with their declarations."""
LISTS = frozenset(
    f"{group}.{name}"
    for group, kinds in CHOICES.items()
    for kind in kinds.values()
    for name, each in declared_settings(kind).items()
    if each.scalar is list
)
"""The dotted keys whose values are lists. A comma in such a value separates items, and not the values of a sweep."""


def require_keys(node: Any, declarations: Mapping[str, Declaration] = ROOT, path: str = "") -> None:
    """Raise UsageError if a node, or a node below it, has unknown keys or lacks keys; values are not checked.

    `path` is the dotted key of the node with a final dot, or empty for the whole configuration.
    """
    if isinstance(node, str) and (node == MISSING or "${" in node):
        return
    _require_own_keys(node, declarations, path)
    for key, declaration in declarations.items():
        if isinstance(declaration, tuple):
            require_keys(node[key], declared_settings(closest_kind(node[key], declaration)), f"{path}{key}.")
        elif declaration.node is not None and declaration.node is declaration.type:
            require_keys(node[key], declared_settings(declaration.node), f"{path}{key}.")


def _require_own_keys(node: Any, declarations: Mapping[str, Declaration], path: str) -> None:
    """Raise UsageError if a node has unknown keys or lacks keys; the nodes below the node are not checked."""
    if not isinstance(node, dict):
        name, first = path.rstrip("."), next(iter(declarations))
        raise UsageError(f"{name}={node} is no choice, and no mapping of its keys", f"name a key: {name}.{first}=…")
    if unknown := [key for key in node if key not in declarations]:
        raise unknown_key_error(f"{path}{unknown[0]}", declarations)
    if missing := [key for key in declarations if key not in node]:
        more = "; a file of your own gets missing keys from another choice with the line defaults: [OTHER, _self_]"
        raise UsageError(
            f"{path}{missing[0]} is missing",
            f"give it a value: {path}{missing[0]}=…{more * (path[:-1] in CHOICES)}",
        )


def convert_point(point: Mapping[str, Any]) -> Point:
    """Return a composed configuration with each value in the type of its setting; raises UsageError."""
    point_settings = convert_node(point, ROOT)
    name, of_slurm = point_settings["cluster"]["name"], len(point_settings["cluster"]) > 1
    if of_slurm != (name in ON_SLURM) and name in (*ON_SLURM, *HERE):
        raise UsageError(f"cluster.name={name} does not fit the other keys of cluster", f"write cluster={name}")
    return point_settings


def convert_node(node: Any, declarations: Mapping[str, Declaration], path: str = "") -> dict[str, Any]:
    """Return a node, and all nodes below it, with each value in the type of its setting; raises UsageError.

    `path` is the dotted key of the node with a final dot, or empty for the whole configuration.
    """
    _require_own_keys(node, declarations, path)
    return {key: _convert(node[key], each, f"{path}{key}") for key, each in declarations.items()}


def _convert(value: Any, declaration: Declaration, key: str) -> Any:
    if isinstance(declaration, tuple):
        return convert_node(value, declared_settings(closest_kind(value, declaration)), f"{key}.")
    if declaration.node is None or not isinstance(value, dict):
        return convert_value(value, declaration, key)
    if declaration.node is declaration.type:
        return convert_node(value, declared_settings(declaration.node), f"{key}.")
    return {
        str(name): convert_node(
            {**declared_defaults(declaration.node), **named_node} if isinstance(named_node, dict) else named_node,
            declared_settings(declaration.node),
            f"{key}.{name}.",
        )
        for name, named_node in value.items()
    }


def convert_value(value: Any, declaration: DeclaredSetting, key: str) -> Any:
    """Convert a value to the type of its setting; raises UsageError, which names the dotted `key`."""
    try:
        return declaration.read(value)
    except ValueError as error:
        fault, cure = error.args
        raise UsageError(f"{key}={'null' if value is None else value} {fault}", cure) from error


def find_declaration(point: Mapping[str, Any], key: str) -> DeclaredSetting | None:
    """Return the declaration of a dotted key in a point, or None for an undeclared key, such as an sbatch option."""
    declarations: Mapping[str, Declaration] = ROOT
    node: Any = point
    *path, last = key.split(".")
    for part in path:
        if (node_declaration := declarations.get(part)) is None:
            return None
        node = node[part]
        if isinstance(node_declaration, tuple):
            declarations = declared_settings(closest_kind(node, node_declaration))
        elif node_declaration.node:
            declarations = (
                declared_settings(node_declaration.node)
                if node_declaration.node is node_declaration.type
                else dict.fromkeys(node, (node_declaration.node,))
            )
        else:
            return None
    declaration = declarations.get(last)
    return declaration if isinstance(declaration, DeclaredSetting) else None


def non_default_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that differ from their default, by dotted key."""
    declarations = ((key, value, find_declaration(settings, key)) for key, value in flat_items(settings))
    return {
        key: value
        for key, value, declaration in declarations
        if declaration and declaration.default not in (MISSING, value)
    }


def closest_kind(node: Any, kinds: tuple[type[Keys], ...]) -> type[Keys]:
    """Return the class of settings whose keys differ least from the keys of a node."""
    keys = set(node) if isinstance(node, dict) else set()
    return min(kinds, key=lambda kind: len(declared_settings(kind).keys() ^ keys))


def unknown_key_error(full_key: str, siblings: Iterable[Any]) -> UsageError:
    """Return the error for an unknown key, with the nearest key of the same node as the cure."""
    path, dot, word = full_key.rpartition(".")
    if full_key in ("paper", "size") or path == "cluster.extra":
        hint = f"write +{full_key}=…"
    elif path == "site.storages":
        hint = f"describe the storage in your site's file, or here: +{full_key}.root=…; or set storage.root=…"
    elif path == "cluster" and word in declared_settings(SlurmCluster):
        hint = f"only cluster=slurm has this key: cluster=slurm {full_key}=…"
    else:
        hint = nearest_hint(word, map(str, siblings), prefix=path + dot)
    return UsageError(f"unknown key '{full_key}'", hint)
