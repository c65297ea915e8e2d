"""The words of `python -m campaign testbed up`, read by Hydra as a campaign's words are."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf, open_dict

from campaign.config.command_line import refuse_for_hydra
from campaign.config.compose import single
from campaign.config.composer import Composer
from campaign.config.defaults import TESTBED
from campaign.config.explain import explained
from campaign.config.tree import typed_node
from campaign.errors import UsageError, nearest
from campaign.testbed.keys import KINDS, Testbed
from campaign.testbed.s3 import Store
from campaign.testbed.spec import GB, Model, Speed, Wanted
from jobs.model.declared import declared

_FUSE = Path("/dev/fuse")


def requested(words: Sequence[str]) -> dict[str, Wanted]:
    """Return the storages that the words ask for, by name."""
    values = _composed(words)
    behaves = values["model"] == "physical" or (values["model"] == "auto" and lacking() is None)
    if values["model"] == "physical" and (what := lacking()):
        raise UsageError(f"model=physical needs {what}", "install it, or take model=rates")
    others = values["nodes"] or values["s3"]
    names = list(KINDS) * (not others) if values["storages"] is None else _chosen(values["storages"])
    storages = {name: _wanted(name, values[name], behaves=behaves) for name in names}
    node = Wanted(Speed(values["node"]["read_mb_per_s"], None), _bytes(values["node"]["size_gb"]), node=True)
    return storages | {f"node{rank}": node for rank in range(values["nodes"])}


def requested_store(words: Sequence[str]) -> Store | None:
    """Return the object store that the words ask for; None for none."""
    values = _composed(words)
    if (on := values["s3_on"]) is not None and on not in KINDS:
        raise UsageError(f"s3_on: there is no '{on}'", nearest(on, KINDS))
    return Store(on, round(values["s3_size_gb"] * GB), values["s3_cached"]) if values["s3"] else None


def _composed(words: Sequence[str]) -> dict[str, Any]:
    refuse_for_hydra(words)
    with Composer(config=TESTBED) as composer:
        config = composer.compose(single(composer, words, lists={"storages"}))
    with explained(), open_dict(config):
        config.pop("hydra")
        values: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment] # a mapping
    return typed_node(values, declared(Testbed))


def lacking() -> str | None:
    """Return what a model needs and this machine lacks."""
    if not _FUSE.exists():
        return "FUSE, which this kernel lacks (/dev/fuse)"
    return None if shutil.which("cc") else "a C compiler (cc)"


def _chosen(names: list[str]) -> list[str]:
    for name in names:
        if name not in KINDS:
            raise UsageError(f"storages: there is no '{name}'", nearest(name, KINDS))
    if not names:
        raise UsageError("storages=[] asks for nothing", f"legal here: {', '.join(KINDS)}")
    return list(dict.fromkeys(names))


def _wanted(name: str, values: dict[str, Any], *, behaves: bool) -> Wanted:
    kind = KINDS[name]
    size_bytes = _bytes(values.pop("size_gb"))
    speed = Speed(**{each.name: values.pop(each.name) for each in dataclasses.fields(Speed)})
    model = Model(kind.__name__.lower(), values) if behaves else None
    return Wanted(speed, size_bytes, model)


def _bytes(size_gb: float | None) -> int | None:
    return None if size_gb is None else round(size_gb * GB)
