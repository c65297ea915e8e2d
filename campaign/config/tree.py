"""The tree of the settings: the keys of the configuration with their types.

Hydra composes plain values and refuses unknown keys. This module refuses wrong types and ranges, with messages that
name the dotted key. Rules about several settings are in `campaign.config.rules`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from campaign.config.rules_of_slurm import HERE, ON_SLURM
from campaign.errors import UsageError, nearest
from jobs.benchmarks.registry import benchmarks
from jobs.model.conduct import Here, Point, Running, SiteKeys, Slurm, Trace
from jobs.model.declared import MISSING, Declared, Keys, declared, defaults
from jobs.model.limits import Limits
from jobs.model.settings import (
    Accelerator,
    Buffered,
    Climate,
    Common,
    Direct,
    Executables,
    Folder,
    Hep,
    Named,
    ObjectStorage,
    Profile,
    Storage,
    Synthetic,
    flat,
)

Known = Declared | tuple[type[Keys], ...]
"""The declaration of a key: a setting, or the kinds of settings that a node may have."""
CHOICES: dict[str, dict[str, type[Keys]]] = {
    "benchmark": {name: each.keys for name, each in benchmarks().items()},
    "dataset": {"synthetic": Synthetic, "executables": Executables, "hep": Hep, "climate": Climate, "folder": Folder},
    "site": {"site": SiteKeys},  # before what it hands values on to, so that a wrong one is told by its own key
    "storage": {"posix": Storage, "s3": ObjectStorage},
    "accelerator": {"accelerator": Accelerator},
    "checkpoint": {"none": Named, "direct": Direct, "buffered": Buffered},
    "cluster": {"here": Here, "slurm": Slurm},
}
"""The groups, with the kinds of settings of their choices."""
NODES: dict[str, type[Keys]] = {"profile": Profile, "trace": Trace, "checks": Limits}
ROOT: dict[str, Known] = {
    **{group: tuple(kinds.values()) for group, kinds in CHOICES.items()},
    **declared(Common),
    **declared(Running),
    **{name: (kind,) for name, kind in NODES.items()},
}
"""The keys of the configuration."""
LISTS = frozenset(
    f"{group}.{name}"
    for group, kinds in CHOICES.items()
    for kind in kinds.values()
    for name, each in declared(kind).items()
    if each.scalar is list
)
"""The keys, all below a group, whose values are lists: a comma separates items, and no values of a sweep."""


def require_keys(node: Any, known: Mapping[str, Known] = ROOT, path: str = "") -> None:
    """Refuse a node that has unknown keys or lacks some, here or below, before its values are looked up.

    `path` ends in a dot, or is empty at the top.
    """
    if isinstance(node, str) and (node == MISSING or "${" in node):
        return
    _require_keys(node, known, path)
    for key, each in known.items():
        if isinstance(each, tuple):
            require_keys(node[key], declared(fitting(node[key], each)), f"{path}{key}.")
        elif each.node is not None and each.node is each.type:
            require_keys(node[key], declared(each.node), f"{path}{key}.")


def _require_keys(node: Any, known: Mapping[str, Known], path: str) -> None:
    if not isinstance(node, dict):
        name, first = path.rstrip("."), next(iter(known))
        raise UsageError(f"{name}={node} is no choice, and no mapping of its keys", f"name a key: {name}.{first}=…")
    if unknown := [key for key in node if key not in known]:
        raise unknown_key(f"{path}{unknown[0]}", known)
    if missing := [key for key in known if key not in node]:
        own = "; a file of your own takes the rest from another choice: defaults: [OTHER, _self_]"
        raise UsageError(
            f"{path}{missing[0]} is missing",
            f"do not delete it; give it a value: {path}{missing[0]}=…{own * (path[:-1] in CHOICES)}",
        )


def typed(point: Mapping[str, Any]) -> Point:
    """Return a composed configuration with each value in the type of its setting; raises UsageError for a wrong one."""
    found = typed_node(point, ROOT)
    name, of_slurm = found["cluster"]["name"], len(found["cluster"]) > 1
    if of_slurm != (name in ON_SLURM) and name in (*ON_SLURM, *HERE):
        raise UsageError(f"cluster.name={name} does not fit the other keys of cluster", f"write cluster={name}")
    return found


def typed_node(node: Any, known: Mapping[str, Known], path: str = "") -> dict[str, Any]:
    """Do the same for one node and the nodes below it; `path` ends in a dot, or is empty at the top."""
    _require_keys(node, known, path)
    return {key: _typed(node[key], each, f"{path}{key}") for key, each in known.items()}


def _typed(value: Any, each: Known, key: str) -> Any:
    if isinstance(each, tuple):
        return typed_node(value, declared(fitting(value, each)), f"{key}.")
    if each.node is None or not isinstance(value, dict):
        return typed_value(value, each, key)
    if each.node is each.type:
        return typed_node(value, declared(each.node), f"{key}.")
    return {
        str(name): typed_node(
            {**defaults(each.node), **one} if isinstance(one, dict) else one, declared(each.node), f"{key}.{name}."
        )
        for name, one in value.items()
    }


def typed_value(value: Any, each: Declared, key: str) -> Any:
    """Return one value in the type of its setting, or raise UsageError; `key` is its dotted key."""
    try:
        return each.read(value)
    except ValueError as error:
        what, cure = error.args
        raise UsageError(f"{key}={'null' if value is None else value} {what}", cure) from error


def known_of(point: Mapping[str, Any], key: str) -> Declared | None:
    """Return the declaration of a dotted key in a point; None for a free key, such as an option of sbatch."""
    known: Mapping[str, Known] = ROOT
    node: Any = point
    *path, last = key.split(".")
    for part in path:
        if (each := known.get(part)) is None:
            return None
        node = node[part]
        if isinstance(each, tuple):
            known = declared(fitting(node, each))
        elif each.node:
            known = declared(each.node) if each.node is each.type else dict.fromkeys(node, (each.node,))
        else:
            return None
    found = known.get(last)
    return found if isinstance(found, Declared) else None


def unusual(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that differ from their default, by dotted key."""
    known = ((key, value, known_of(settings, key)) for key, value in flat(settings))
    return {key: value for key, value, each in known if each and each.default not in (MISSING, value)}


def fitting(node: Any, kinds: tuple[type[Keys], ...]) -> type[Keys]:
    """Return the kind of settings whose keys are most like those of a node."""
    keys = set(node) if isinstance(node, dict) else set()
    return min(kinds, key=lambda kind: len(declared(kind).keys() ^ keys))


def unknown_key(full_key: str, siblings: Iterable[Any]) -> UsageError:
    """Return the error for an unknown key, with the nearest key of the same node as the cure."""
    path, dot, word = full_key.rpartition(".")
    if full_key in ("paper", "size") or path == "cluster.extra":
        hint = f"write +{full_key}=…"
    elif path == "site.storages":
        hint = f"describe it in your site's file, or here: +{full_key}.root=…; or set storage.root=…"
    elif path == "cluster" and word in declared(Slurm):
        hint = f"it is a key of cluster=slurm: cluster=slurm {full_key}=…"
    else:
        hint = nearest(word, map(str, siblings), prefix=path + dot)
    return UsageError(f"unknown key '{full_key}'", hint)
