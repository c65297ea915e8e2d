"""The words of `python -m campaign testbed up`, read by Hydra as a campaign's words are."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hydra import compose, initialize_config_module
from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, OmegaConf

from campaign.config.closed import check_node
from campaign.config.explain import explained
from campaign.errors import UsageError, nearest
from campaign.testbed.spec import GB, Speed, Wanted
from jobs.settings import key, ranges

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass
class Device:
    """One emulated storage."""

    size_gb: float | None = key(MISSING, 0.06, 1e6)  # below, ext4 has no room for its journal and for files
    read_mb_per_s: float | None = key(MISSING, 0.1, 1e6)
    write_mb_per_s: float | None = key(MISSING, 0.1, 1e6)
    read_iops: int | None = key(MISSING, 1, 1e8)
    write_iops: int | None = key(MISSING, 1, 1e8)


@dataclass
class Testbed:
    """The whole of ``conf/testbed.yaml``."""

    __test__ = False  # no class of tests, whatever pytest makes of its name

    storages: list[str] = MISSING
    hdd: Device = field(default_factory=Device)
    ssd: Device = field(default_factory=Device)
    optane: Device = field(default_factory=Device)
    lustre: Device = field(default_factory=Device)


_STORAGES = tuple(each.name for each in dataclasses.fields(Testbed) if each.name != "storages")


def requested(words: Sequence[str]) -> dict[str, Wanted]:
    """Return the storages that the words ask for, by name."""
    ConfigStore.instance().store(group="schema", name="testbed", node=Testbed, package="_global_")
    with explained(), initialize_config_module("conf", version_base="1.3"):
        composed = compose("testbed", overrides=list(words))
        values: dict[str, Any] = OmegaConf.to_container(composed, resolve=True)  # type: ignore[assignment] # a mapping
    check_node("", values, Testbed)
    return {name: _wanted(name, values[name]) for name in _chosen(values["storages"])}


def _chosen(names: list[str]) -> list[str]:
    for name in names:
        if name not in _STORAGES:
            raise UsageError(f"storages: there is no '{name}'", nearest(name, _STORAGES))
    if not names:
        raise UsageError("storages=[] asks for nothing", f"legal here: {', '.join(_STORAGES)}")
    return list(dict.fromkeys(names))


def _wanted(name: str, values: dict[str, Any]) -> Wanted:
    for each, (least, most) in ranges(Device).items():
        value = values[each]
        if value is not None and not least <= value <= most:
            raise UsageError(f"{name}.{each}={value} is out of range", f"legal: {least:g} to {most:g}, or null")
    size_gb = values.pop("size_gb")
    return Wanted(Speed(**values), None if size_gb is None else round(size_gb * GB))
