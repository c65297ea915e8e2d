"""Where it ran: machines with their software, storages, those of checkpoints too, with what lay behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from analysis.output.page.results import MOST_LINES, Results, some
from analysis.output.page.summary import ROLES
from analysis.records.emulation import mark
from analysis.records.record import Record
from analysis.records.settings import storage_name, with_emulated
from analysis.statistics.saving_costs import NO_TARGET
from analysis.text.html import Markup, joined, table, tag
from analysis.text.plain import NONE, share, typed

# The storages of a checkpoint target: their keys in the settings, and their roles in a run, in the order of a record.
ONLY, SIDES = {"checkpoint": "only"}, {"checkpoint.fast": "fast", "checkpoint.slow": "slow"}


def machines(results: Results) -> Markup:
    """Return the machines with their software, and the storages with what lay behind them."""
    records = results.found.records
    kinds = [_kind(each) for each in records]
    of_kind, counts = dict(zip(kinds, records, strict=True)), Counter(kinds)
    alike = [(of_kind[kind], count) for kind, count in counts.items()]
    return joined(
        [*_listing(alike, partial(_machines, _held_back(records)), "machines"), *_listing(alike, _storages, "storages")]
    )


def _listing(
    alike: Sequence[tuple[Record, int]], facts: Callable[[Record], list[dict[str, str]]], what: str
) -> Iterator[Markup]:
    """Yield a table of these facts of a record of each kind, with the number of cells that are of it."""
    groups: Counter[tuple[tuple[str, str], ...]] = Counter()
    for record, count in alike:
        for each in facts(record):
            groups[tuple(each.items())] += count
    rows = [[*(value for _, value in known), f"{count:,}"] for known, count in list(groups.items())[:MOST_LINES]]
    headings = [*facts(alike[0][0])[0], "cells"]
    yield table(headings, rows, [*[True] * (len(headings) - 1), False])
    yield tag("p", some(len(rows), len(groups), what, "the records"))


def _kind(record: Record) -> tuple[Any, ...]:
    """Return what records agree in that have the same lines."""
    targets = [(_name_at(record, key), record.settings.get(f"{key}.root")) for key in _targets(record)]
    return id(record.provenance), record.host, _name(record), *targets, *_sources(record).items()


def _held_back(records: Sequence[Record]) -> dict[int, float]:
    """Return by machine (equal ones are one object) with a CPU quota the largest share of a run that it held up."""
    shares: dict[int, float] = {}
    for record in records:
        for run in record.runs if record.quota_cores is not None else ():
            held_s, elapsed_s = (run.figures.get(name, 0.0) for name in ("throttled_s", "elapsed_s"))
            held = held_s / elapsed_s if elapsed_s > 0 else 0.0
            shares[id(record.provenance)] = max(held, shares.get(id(record.provenance), 0.0))
    return shares


def _machines(held_back: Mapping[int, float], record: Record) -> list[dict[str, str]]:
    told, git, versions = record.provenance, _part(record, "git"), _part(record, "versions")
    memory = told.get("memory_bytes")
    commit = str(git.get("commit", ""))[:12]
    changed = " with changes" if git.get("dirty") is True else ""
    facts = {
        "host": record.host or NONE,
        "processor": _word(told.get("cpu")),
        "cores": _word(told.get("cores")),
        **({"CPU quota": _quota(record, held_back)} if held_back else {}),
        "memory": f"{memory / 2**30:.0f} GiB" if isinstance(memory, int) else NONE,
        "kernel": _word(told.get("kernel")),
        "Python": _word(told.get("python")),
        "software": ", ".join(f"{name} {version}" for name, version in versions.items()) or NONE,
        "commit": f"{commit}{changed}" if commit else NONE,
    }
    return [facts]


def _quota(record: Record, held_back: Mapping[int, float]) -> str:
    if record.quota_cores is None:
        return "none"
    most = held_back.get(id(record.provenance), 0.0)
    return f"{record.quota_cores:g} cores, used up for {share(most)} of a run at most"


def _storages(record: Record) -> list[dict[str, str]]:
    """Return the storage of the data, then those of the checkpoint target, whose mount points no record has."""
    mount, device = _part(record, "mount"), _part(record, "device")
    told = ", ".join(f"{name} {_word(value)}" for name, value in device.items())
    lines = [_storage(record, _name(record), mount.get("point"), mount, told)]
    known, sources = record.provenance.get("target_filesystems"), _sources(record)
    below = known if isinstance(known, list) else []
    for place, (key, role) in enumerate(_targets(record).items()):
        mounted = below[place] if place < len(below) and isinstance(below[place], dict) else {}
        name, root = f"{_name_at(record, key)}, {ROLES[key]}", f"root {_word(record.settings.get(f'{key}.root'))}"
        counter = sources.get(f"source_{role}", "")
        lines.append(_storage(record, name, root, mounted, counter and f"name {counter.removeprefix('dsk/')}"))
    return lines


def _storage(record: Record, name: str, place: Any, mounted: Mapping[str, Any], device: str) -> dict[str, str]:
    return {
        "storage": name,
        "host": record.host or NONE,
        "mount": _word(place),
        "source": _word(mounted.get("source")),
        "file system": _word(mounted.get("fstype")),
        "options": _word(mounted.get("options")),
        "device": device or NONE,
    }


def _targets(record: Record) -> Mapping[str, str]:
    """Return the keys of the storages that snapshots go to, with their roles."""
    if record.settings.get("checkpoint.name") in (None, NO_TARGET):
        return {}
    return SIDES if "checkpoint.fast.name" in record.settings else ONLY


def _sources(record: Record) -> dict[str, str]:
    """Return by role the kernel's counters of the devices that snapshots went to, as its runs name them."""
    named = (run.texts.items() for run in record.runs)
    return {name: text for texts in named for name, text in texts if name.startswith("source_")}


def _name_at(record: Record, key: str) -> str:
    return _marked(_word(record.settings.get(f"{key}.name")), record, key)


def _name(record: Record) -> str:
    return _marked(_word(storage_name(record.settings)), record, "storage")


def _marked(name: str, record: Record, key: str) -> str:
    facts = record.emulated.get(key)
    return name if facts is None else with_emulated(name, {f"{key}.emulated": mark(facts)}, key)


def _part(record: Record, name: str) -> Mapping[str, Any]:
    """Return a group of facts of a record's provenance, nothing where it is a mere `unknown`."""
    part = record.provenance.get(name)
    return part if isinstance(part, dict) else {}


def _word(value: Any) -> str:
    return NONE if value is None or value == "" else typed(value)
