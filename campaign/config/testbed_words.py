"""Compose the settings of `python -m campaign testbed up` with Hydra, as the settings of a campaign are composed."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf, open_dict

from campaign.config.command_line import refuse_hydra_keys
from campaign.config.compose import single_assignments
from campaign.config.composer import TESTBED, Composer, explain_errors
from campaign.config.tree import convert_node
from campaign.errors import UsageError
from campaign.testbed.s3 import StoreRequest
from campaign.testbed.spec import GB, KINDS, Model, Speed, StorageRequest, Testbed
from jobs.model.declared import declared_settings
from jobs.parser import nearest_hint

_FUSE = Path("/dev/fuse")


def requested_storages(words: Sequence[str]) -> dict[str, StorageRequest]:
    """Return the emulated storages that the overrides request, by name; raises UsageError for wrong overrides."""
    values = _compose_values(words)
    has_models = values["model"] == "physical" or (values["model"] == "auto" and missing_for_models() is None)
    if values["model"] == "physical" and (missing := missing_for_models()):
        raise UsageError(f"model=physical needs {missing}", "install what is missing, or set model=rates")
    has_other_parts = values["nodes"] or values["s3"]
    names = list(KINDS) * (not has_other_parts) if values["storages"] is None else _check_names(values["storages"])
    storages = {name: _wanted_storage(name, values[name], has_models=has_models) for name in names}
    node = StorageRequest(
        Speed(values["node"]["read_mb_per_s"], None), _size_in_bytes(values["node"]["size_gb"]), node=True
    )
    return storages | {f"node{rank}": node for rank in range(values["nodes"])}


def requested_store(words: Sequence[str]) -> StoreRequest | None:
    """Return the object store that the overrides request, or None if they request no object store.

    Raises UsageError for wrong overrides.
    """
    values = _compose_values(words)
    if (storage := values["s3_on"]) is not None and storage not in KINDS:
        raise UsageError(f"s3_on: there is no '{storage}'", nearest_hint(storage, KINDS))
    return StoreRequest(storage, round(values["s3_size_gb"] * GB), values["s3_cached"]) if values["s3"] else None


def _compose_values(words: Sequence[str]) -> dict[str, Any]:
    """Return the settings of the testbed as a nested dictionary of checked values."""
    refuse_hydra_keys(words)
    with Composer(config=TESTBED) as composer:
        config = composer.compose(single_assignments(composer, words, lists={"storages"}))
    with explain_errors(), open_dict(config):
        config.pop("hydra")
        values: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment] # a mapping
    return convert_node(values, declared_settings(Testbed))


def missing_for_models() -> str | None:
    """Return which program or device this machine lacks for models of storages, or None if nothing is missing."""
    if not _FUSE.exists():
        return "FUSE, which this kernel lacks (/dev/fuse)"
    return None if shutil.which("cc") else "a C compiler (cc)"


def _check_names(names: list[str]) -> list[str]:
    """Return the names of storages without repetitions; raises UsageError for an unknown name or an empty list."""
    for name in names:
        if name not in KINDS:
            raise UsageError(f"storages: there is no '{name}'", nearest_hint(name, KINDS))
    if not names:
        raise UsageError("storages=[] names no storage", f"legal here: {', '.join(KINDS)}")
    return list(dict.fromkeys(names))


def _wanted_storage(name: str, values: dict[str, Any], *, has_models: bool) -> StorageRequest:
    """Return the requested speed, size and model of a storage; remove size and speed from `values`."""
    kind = KINDS[name]
    size_bytes = _size_in_bytes(values.pop("size_gb"))
    speed = Speed(**{limit.name: values.pop(limit.name) for limit in dataclasses.fields(Speed)})
    model = Model(kind.__name__.lower(), values) if has_models else None
    return StorageRequest(speed, size_bytes, model)


def _size_in_bytes(size_gb: float | None) -> int | None:
    """Return the number of bytes of a size in GB, or None if the size is None."""
    return None if size_gb is None else round(size_gb * GB)
