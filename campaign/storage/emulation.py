"""The emulated storages of a cell, so that all results can say that they are emulated."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from campaign.cells.cell import Cell
from campaign.errors import EnvironmentFaultError
from campaign.storage.checkpoint_targets import key_of, storages
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
    """Return the facts (`jobs.system.layers`) of a cell's emulated storages, by their settings keys.

    `targets`: the roots of the checkpoint target's storages, in the order of `jobs.checkpoints.run_snapshots.roles`;
    `copies`: the folder of the staged copies.
    """
    places = {"storage": dataset} | dict(zip(_keys(settings), targets, strict=True))
    places |= {"staging": copies} if copies else {}
    facts_of = {key: emulated_storage(Path(place).expanduser()) for key, place in places.items() if "://" not in place}
    return {key: facts for key, facts in facts_of.items() if facts is not None}


def with_expected(provenance: Provenance, data: Data, threads: int | None) -> Provenance:
    """Return a provenance with the expected speed (``expected``) of an emulated storage with a model.

    ``mb_per_s``: reading the data's files in shuffled order, `threads` at once; ``ceiling_mb_per_s``: with twice as
    many, because a disk arm that chooses among more requests is faster.
    """
    facts = (provenance.get("emulated") or {}).get("storage") or {}
    if not (facts.get("model") and threads and data.get("files") and data.get("bytes")):
        return provenance
    size = max(1, data["bytes"] // data["files"])
    wanted = StorageRequest.of(facts, None)
    depths = {"mb_per_s": threads, "ceiling_mb_per_s": peaks.AT_ONCE * threads}
    reads = {key: expected.reads_per_s(wanted, size, depth, data["bytes"]) for key, depth in depths.items()}
    speeds = {key: reads_per_s * size / 1e6 for key, reads_per_s in reads.items() if reads_per_s}
    return {**provenance, "emulated": {**provenance["emulated"], "storage": {**facts, "expected": speeds}}}


def as_found(provenance: Provenance) -> Provenance:
    """Return a provenance without the calculated speeds of its storages."""
    emulated_ = provenance.get("emulated") or {}
    storages = {
        key: {name: fact for name, fact in facts.items() if name != "expected"} for key, facts in emulated_.items()
    }
    return {**provenance, "emulated": storages} if emulated_ else provenance


def unbounded(places: Iterable[str]) -> str | None:
    """Return a sentence on an emulated storage whose limits are not as declared (its testbed is half down or changed).

    None if all are as declared, or if the kernel's limits cannot be read here.
    """
    for place in places:
        facts = emulated_storage(Path(place)) or {}
        if not facts.keys() >= BOUNDS:
            continue
        device = Path(place).stat().st_dev
        number, wanted = f"{os.major(device)}:{os.minor(device)}", StorageRequest.of(facts, None)
        why = _unlike(Path(place), wanted)
        with suppress(EnvironmentFaultError):
            bounded = not throttle.find_throttle().steps(number, wanted.limits())
            why = why or ("" if bounded else "the kernel does not bound it so")
        if why:
            return f"{place} is on an emulated {facts['name']} ({bounds(facts)}), and {why}: {_CURE}"
    return None


def _unlike(place: Path, wanted: StorageRequest) -> str:
    """Return how the serving model differs from the storage's declaration, in words; empty if both are the same."""
    model = model_behind(place)
    if model is None or wanted.model is None:
        return (
            "" if model is None and wanted.model is None else "no model serves it" if wanted.model else "a model does"
        )
    try:
        answer = ask_server(model)
    except (OSError, ValueError):
        return "its model does not answer"
    if faults := [f"{name} {value:g}" for name, value in answer["faults"].items() if value]:
        return f"its model was given faults ({', '.join(faults)})"
    words = (f"kind={answer['kind']}", *(f"{key}={value:.10g}" for key, value in answer["parameters"].items()))
    return "" if set(wanted.server_arguments()) <= set(words) else "its model has other parameters"


def names(settings: Settings, provenance: Provenance) -> list[str]:
    """Return the names, without repetition, of a recorded cell's storages that were emulated."""
    facts = provenance.get("emulated") or {}
    called = {"storage": settings["storage"], **_keys(settings)}
    return list(dict.fromkeys(str(called.get(key, each)["name"]) for key, each in facts.items()))


def notices(cells: Iterable[Cell]) -> list[str]:
    """Return one sentence per emulated storage of a grid, by its present state.

    Raises EnvironmentFaultError if a storage's model does not answer, before anything on it is touched.
    """
    used = {
        (storage["name"], str(storage["root"])): None
        for settings in (cell.settings for cell in cells)
        for storage in (settings["storage"], *_keys(settings).values())
        if "://" not in (storage.get("root") or "://")
    }
    for name, root in used:
        if model := silent_model(Path(root).expanduser()):
            raise EnvironmentFaultError(f"{name} is emulated, and its model, {model}, does not answer", _CURE)
    facts_of = ((name, emulated_storage(Path(root).expanduser())) for name, root in used)
    return list(dict.fromkeys(f"{name} is emulated: {bounds(facts)}" for name, facts in facts_of if facts))


def bounds(facts: Node) -> str:
    """Return the speed limits of an emulated storage in words; `facts`: of `layers.emulated_storage`."""
    if not facts.keys() >= BOUNDS:
        return "at an unknown speed"
    speeds = [f"{facts[key]:g} {unit}" for key, unit in _UNITS.items() if facts[key] is not None]
    sentence = f"at most {', '.join(speeds)}" if speeds else "as fast as what lies beneath"
    return f"{sentence}, by a {model['kind']} model" if (model := facts.get("model")) else sentence


def _keys(settings: Settings) -> dict[str, Node]:
    """Return the storages of a checkpoint target by their keys in the settings."""
    return {key_of(role): storage for role, storage in storages(settings).items()}
