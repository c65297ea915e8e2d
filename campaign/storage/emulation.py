"""Which storages of a cell are emulated, so that whatever is shown of them can say so."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from campaign.cells.cell import Cell
from campaign.errors import EnvironmentFaultError
from campaign.storage.checkpoint_targets import key_of, storages
from campaign.testbed import expected, throttle
from campaign.testbed.spec import Wanted
from jobs.judging import peaks
from jobs.model.record import Data, Provenance
from jobs.model.settings import Node, Settings
from jobs.system.emulated import BOUNDS, emulated, model_behind, served, silent_model

_CURE = "python -m campaign testbed up"
_UNITS = {
    "read_mb_per_s": "MB/s read",
    "write_mb_per_s": "MB/s written",
    "read_iops": "reads/s",
    "write_iops": "writes/s",
}


def found(settings: Settings, dataset: str, targets: Sequence[str], copies: str | None = None) -> dict[str, Node]:
    """Return what `jobs.system.emulated` says of those storages of a cell that are emulated, by their settings' keys.

    `targets` are the roots of the checkpoint target's storages, in the order of
    `jobs.checkpoints.run_snapshots.roles`; `copies` is where staged files lie.
    """
    places = {"storage": dataset} | dict(zip(_keys(settings), targets, strict=True))
    places |= {"staging": copies} if copies else {}
    said = {key: emulated(Path(place).expanduser()) for key, place in places.items() if "://" not in place}
    return {key: facts for key, facts in said.items() if facts is not None}


def with_expected(provenance: Provenance, data: Data, threads: int | None) -> Provenance:
    """Return a provenance in which an emulated storage with a model says what it gives to the readers of a cell.

    ``expected`` has ``mb_per_s`` of the data's files in shuffled order, `threads` of them at once, and of twice as many
    ``ceiling_mb_per_s``: an arm that chooses among more requests is faster.
    """
    facts = (provenance.get("emulated") or {}).get("storage") or {}
    if not (facts.get("model") and threads and data.get("files") and data.get("bytes")):
        return provenance
    size = max(1, data["bytes"] // data["files"])
    wanted = Wanted.of(facts, None)
    depths = {"mb_per_s": threads, "ceiling_mb_per_s": peaks.AT_ONCE * threads}
    reads = {key: expected.reads_per_s(wanted, size, depth, data["bytes"]) for key, depth in depths.items()}
    told = {key: reads_per_s * size / 1e6 for key, reads_per_s in reads.items() if reads_per_s}
    return {**provenance, "emulated": {**provenance["emulated"], "storage": {**facts, "expected": told}}}


def as_found(provenance: Provenance) -> Provenance:
    """Return a provenance without what was calculated of its storages."""
    emulated_ = provenance.get("emulated") or {}
    told = {key: {name: fact for name, fact in facts.items() if name != "expected"} for key, facts in emulated_.items()}
    return {**provenance, "emulated": told} if emulated_ else provenance


def unbounded(places: Iterable[str]) -> str | None:
    """Return which emulated storage is not as slow as it says: its testbed is half down, or was given other bounds.

    None where all are, or where the kernel's bounds cannot be seen from here.
    """
    for place in places:
        facts = emulated(Path(place)) or {}
        if not facts.keys() >= BOUNDS:
            continue
        device = Path(place).stat().st_dev
        number, wanted = f"{os.major(device)}:{os.minor(device)}", Wanted.of(facts, None)
        why = _unlike(Path(place), wanted)
        with suppress(EnvironmentFaultError):
            bounded = not throttle.find().steps(number, wanted.limits())
            why = why or ("" if bounded else "the kernel does not bound it so")
        if why:
            return f"{place} is on an emulated {facts['name']} ({bounds(facts)}), and {why}: {_CURE}"
    return None


def _unlike(place: Path, wanted: Wanted) -> str:
    """Return how a model serves a storage otherwise than the storage says; empty where it does as it says."""
    model = model_behind(place)
    if model is None or wanted.model is None:
        return (
            "" if model is None and wanted.model is None else "no model serves it" if wanted.model else "a model does"
        )
    try:
        said = served(model)
    except (OSError, ValueError):
        return "its model does not answer"
    if faults := [f"{name} {value:g}" for name, value in said["faults"].items() if value]:
        return f"its model was given faults ({', '.join(faults)})"
    words = (f"kind={said['kind']}", *(f"{key}={value:.10g}" for key, value in said["parameters"].items()))
    return "" if set(wanted.words()) <= set(words) else "its model has other parameters"


def names(settings: Settings, provenance: Provenance) -> list[str]:
    """Return the names of the storages of a recorded cell that were emulated, each once."""
    facts = provenance.get("emulated") or {}
    called = {"storage": settings["storage"], **_keys(settings)}
    return list(dict.fromkeys(str(called.get(key, each)["name"]) for key, each in facts.items()))


def notices(cells: Iterable[Cell]) -> list[str]:
    """Return in words which storages of a grid are emulated, as they are now.

    Raises EnvironmentFaultError for one whose model does not answer, before anything on it is touched.
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
    found = ((name, emulated(Path(root).expanduser())) for name, root in used)
    return list(dict.fromkeys(f"{name} is emulated: {bounds(facts)}" for name, facts in found if facts))


def bounds(facts: Node) -> str:
    """Return in words how fast an emulated storage is at most; `facts` are those of `jobs.system.emulated.emulated`."""
    if not facts.keys() >= BOUNDS:
        return "at an unknown speed"
    known = [f"{facts[key]:g} {unit}" for key, unit in _UNITS.items() if facts[key] is not None]
    told = f"at most {', '.join(known)}" if known else "as fast as what lies beneath"
    return f"{told}, by a {model['kind']} model" if (model := facts.get("model")) else told


def _keys(settings: Settings) -> dict[str, Node]:
    """Return the storages of a checkpoint target by their keys in the settings."""
    return {key_of(role): storage for role, storage in storages(settings).items()}
