"""Find the emulated storages of a cell, so that every result can state whether the storage was emulated."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from campaign.cells.cell import Cell
from campaign.errors import EnvironmentFaultError
from campaign.storage.checkpoint_targets import settings_key, target_storages
from campaign.testbed import expected, throttle
from campaign.testbed.spec import StorageRequest
from jobs.judging import peaks
from jobs.model.record import Data, Provenance
from jobs.model.settings import Node, Settings
from jobs.system.layers import BOUNDS, ask_server, emulated_storage, model_behind, silent_model

_CURE = "python -m campaign testbed up"
_UNITS = {
    "read_mb_per_s": "MB/s read",
    "write_mb_per_s": "MB/s written",
    "read_iops": "reads/s",
    "write_iops": "writes/s",
}


def emulated_storages(
    settings: Settings, dataset: str, targets: Sequence[str], copies: str | None = None
) -> dict[str, Node]:
    """Return the name, limits and model of each emulated storage of a cell, by settings key (`jobs.system.layers`).

    `targets` are the roots of the checkpoint storages, in the order of `run_snapshots.storages_by_role`. `copies` is
    the folder of the staged copies.
    """
    paths = {"storage": dataset} | dict(zip(_target_storages(settings), targets, strict=True))
    paths |= {"staging": copies} if copies else {}
    facts_of = {key: emulated_storage(Path(path).expanduser()) for key, path in paths.items() if "://" not in path}
    return {key: facts for key, facts in facts_of.items() if facts is not None}


def add_expected_rates(provenance: Provenance, data: Data, threads: int | None) -> Provenance:
    """Return a provenance with the expected read speed (``expected``) of an emulated storage that has a model.

    For ``mb_per_s``, `threads` files are read at the same time, in shuffled order. For ``ceiling_mb_per_s``, twice as
    many files are read at the same time, because a disk arm that chooses among more requests is faster.
    """
    facts = (provenance.get("emulated") or {}).get("storage") or {}
    if not (facts.get("model") and threads and data.get("files") and data.get("bytes")):
        return provenance
    size = max(1, data["bytes"] // data["files"])
    declared = StorageRequest.from_facts(facts, None)
    depths = {"mb_per_s": threads, "ceiling_mb_per_s": peaks.AT_ONCE * threads}
    reads = {key: expected.reads_per_s(declared, size, depth, data["bytes"]) for key, depth in depths.items()}
    speeds = {key: reads_per_s * size / 1e6 for key, reads_per_s in reads.items() if reads_per_s}
    return {**provenance, "emulated": {**provenance["emulated"], "storage": {**facts, "expected": speeds}}}


def remove_expected_rates(provenance: Provenance) -> Provenance:
    """Return a provenance without the speeds that `add_expected_rates` has added."""
    facts_of = provenance.get("emulated") or {}
    found = {key: {name: fact for name, fact in facts.items() if name != "expected"} for key, facts in facts_of.items()}
    return {**provenance, "emulated": found} if found else provenance


def missing_limits(paths: Iterable[str]) -> str | None:
    """Return an error message for an emulated storage whose declared speed limits are not in force, or None.

    The limits are not in force if the testbed is partly down or was changed. Kernel limits that this process cannot
    read are not checked.
    """
    for path in paths:
        facts = emulated_storage(Path(path)) or {}
        if not facts.keys() >= BOUNDS:
            continue
        device = Path(path).stat().st_dev
        number, declared = f"{os.major(device)}:{os.minor(device)}", StorageRequest.from_facts(facts, None)
        fault = _model_difference(Path(path), declared)
        with suppress(EnvironmentFaultError):
            is_bounded = not throttle.find_throttle().steps(number, declared.limits())
            fault = fault or ("" if is_bounded else "the kernel does not apply these limits")
        if fault:
            return f"{path} is on an emulated {facts['name']} ({limits_in_words(facts)}), and {fault}: {_CURE}"
    return None


def _model_difference(path: Path, declared: StorageRequest) -> str:
    """Return a sentence if the running model of a storage differs from the declared model, else an empty text."""
    model = model_behind(path)
    if model is None or declared.model is None:
        if model is None and declared.model is None:
            return ""
        return "no model serves the storage" if declared.model else "a model serves the storage"
    try:
        answer = ask_server(model)
    except (OSError, ValueError):
        return "its model does not answer"
    acting = {name: value for name, value in answer["faults"].items() if value}
    if "spike_every" not in acting:
        acting.pop("spike_ms", None)  # the length of a spike acts only if there are spikes
    if faults := [f"{name} {value:g}" for name, value in acting.items()]:
        return f"its model injects faults ({', '.join(faults)})"
    words = (f"kind={answer['kind']}", *(f"{key}={value:.10g}" for key, value in answer["parameters"].items()))
    return "" if set(declared.server_arguments()) <= set(words) else "its model has other parameters"


def emulated_names(settings: Settings, provenance: Provenance) -> list[str]:
    """Return the names of a recorded cell's emulated storages, without duplicates."""
    facts_of = provenance.get("emulated") or {}
    storage_of = {"storage": settings["storage"], **_target_storages(settings)}
    return list(dict.fromkeys(str(storage_of.get(key, facts)["name"]) for key, facts in facts_of.items()))


def emulation_notices(cells: Iterable[Cell]) -> list[str]:
    """Return one sentence with the present speed limits for each emulated storage that the cells use.

    Raise EnvironmentFaultError if the model of a storage does not answer. This is checked before any file on the
    storage is touched, because such an access would hang.
    """
    roots = {
        (storage["name"], str(storage["root"])): None
        for settings in (cell.settings for cell in cells)
        for storage in (settings["storage"], *_target_storages(settings).values())
        if "://" not in (storage.get("root") or "://")
    }
    for name, root in roots:
        if model := silent_model(Path(root).expanduser()):
            raise EnvironmentFaultError(f"the model of the emulated storage {name}, {model}, does not answer", _CURE)
    facts_of = ((name, emulated_storage(Path(root).expanduser())) for name, root in roots)
    return list(dict.fromkeys(f"{name} is emulated: {limits_in_words(facts)}" for name, facts in facts_of if facts))


def limits_in_words(facts: Node) -> str:
    """Return the speed limits of an emulated storage as a phrase; `facts` comes from `layers.emulated_storage`."""
    if not facts.keys() >= BOUNDS:
        return "at an unknown speed"
    speeds = [f"{facts[key]:g} {unit}" for key, unit in _UNITS.items() if facts[key] is not None]
    sentence = f"at most {', '.join(speeds)}" if speeds else "as fast as the underlying storage"
    return f"{sentence}, by a {model['kind']} model" if (model := facts.get("model")) else sentence


def _target_storages(settings: Settings) -> dict[str, Node]:
    """Return the storages of a checkpoint target by settings key, for example ``checkpoint.fast``."""
    return {settings_key(role): storage for role, storage in target_storages(settings).items()}
