"""The defaults of the settings as Hydra composes them, and the resolvers (``${name:…}``) of conf/."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from campaign.config.tree import CHOICES, NODES
from campaign.storage.roots import storage_of
from campaign.testbed.keys import Testbed
from jobs.benchmarks.registry import benchmarks, names_of
from jobs.model.conduct import Running
from jobs.model.declared import MISSING, Declared, Keys, declared, defaults
from jobs.model.settings import Common, ObjectStorage, Storage
from jobs.objects.address import address_of

TESTBED = "testbed"
"""The name of the configuration of a testbed."""


@cache
def register() -> None:
    """Make the defaults and the resolvers known to Hydra; the defaults are plain values below ``declared/``."""
    store = ConfigStore.instance().store
    plain = {**defaults_of(Common), **defaults_of(Running), **{name: defaults_of(kind) for name, kind in NODES.items()}}
    store(group="declared", name="campaign", node=dict.fromkeys(CHOICES, MISSING) | plain, package="_global_")
    store(name=TESTBED, node=defaults_of(Testbed))
    for group, kinds in CHOICES.items():
        for name, kind in kinds.items():
            store(group=f"declared/{group}", name=name, node=defaults_of(kind))
    by_site = (_site_storage, _site_storage_root, _storage_of, _site_accelerator)
    for resolver in (*by_site, _if_emulated, _by_size, _of_benchmark):
        OmegaConf.register_new_resolver(resolver.__name__.removeprefix("_"), resolver, replace=True)


def defaults_of(kind: type[Keys]) -> dict[str, Any]:
    """Return the defaults of a node as Hydra composes them; a default that depends on the size is an interpolation."""

    def default(each: Declared) -> Any:
        if each.node is each.type:
            return defaults_of(each.node) | msgspec.to_builtins(each.default)
        if each.setting.smoke is None:
            return defaults(kind).get(each.name, MISSING)
        return f"${{by_size:{json.dumps(each.default)},{json.dumps(each.setting.smoke)}}}"

    return {name: default(each) for name, each in declared(kind).items()}


def _site_storage(key: str, default: Any = MISSING, *, _root_: DictConfig) -> Any:
    """Return a key of the chosen storage from the site's file; else its default."""
    said = _root_.site.storages.get(_root_.storage.name)
    value = None if said is None else said.get(key)
    kind = ObjectStorage if "endpoint" in _root_.storage else Storage
    usual = defaults(kind).get(key) if default == MISSING else default
    return usual if value is None else value


def _site_storage_root(name: str, default: Any, *, _root_: DictConfig) -> Any:
    """Return the root of a storage by its name, be it the chosen one or one of the site; of a bucket its address."""
    said = _root_.storage if _root_.storage.name == name else _root_.site.storages.get(name)
    if said is not None and said.get("endpoint") and said.get("bucket"):
        return address_of(said)
    return default if said is None or said.get("root") is None else said.root


def _storage_of(path: str, key: str, *, _root_: DictConfig) -> str:
    """Return ``name`` or ``root`` of the storage of a folder."""
    roots = {str(name): root for name, said in _root_.site.storages.items() if (root := said.get("root")) is not None}
    name, root = storage_of(Path(path).expanduser(), roots)
    return {"name": name, "root": root}[key]


def _site_accelerator(*, _root_: DictConfig) -> Any:
    """Return the accelerator of the site; ``auto`` for a benchmark that computes nothing."""
    name = _root_.benchmark.name
    if _root_.site.accelerator == "auto" and name in names_of("emulates"):
        return "emulated"
    return _root_.site.accelerator if name in names_of("computes") else "auto"


def _if_emulated(accelerator: str, step_s: float) -> float | None:
    """Return the seconds of a step of the emulated accelerator; None for the other accelerators."""
    return step_s if accelerator == "emulated" else None


def _of_benchmark(name: str, default: Any = None, *, _root_: DictConfig) -> Any:
    """Return a benchmark's own default of a common setting, else the common default."""
    chosen = benchmarks().get(_root_.benchmark.name)
    usual = defaults(Common).get(name, default)
    return chosen.own_defaults.get(name, usual) if chosen else usual


def _by_size(paper: Any, smoke: Any, lab: Any = None, *, _root_: DictConfig) -> Any:
    """Return a recipe's number for the size: ``paper``, ``smoke`` or ``lab``, which is ``smoke`` if it has none."""
    small = {"smoke": smoke, "lab": smoke if lab is None else lab}
    return small.get(_root_.size, paper)
