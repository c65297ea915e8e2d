"""The part of the report page about machines: hardware, software, storages and devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from markupsafe import Markup

from analysis.output.text_table import TextTable
from analysis.page.part import MOST_LINES, Results, count_sentence, paragraphs_and_tables
from analysis.page.summary import ROLES
from analysis.records.record import Record, emulation_mark
from analysis.records.settings import add_emulation_remark, storage_name
from analysis.statistics.training import NO_TARGET
from analysis.text import NONE, as_typed_by_user, percentage

# The settings keys of the storages of a checkpoint target, and the role of each storage, in the order of the record.
ONLY, SIDES = {"checkpoint": "only"}, {"checkpoint.fast": "fast", "checkpoint.slow": "slow"}


def machine_tables(results: Results) -> Markup:
    """Return a table of the machines with their software, and a table of the storages with their devices."""
    records = results.found.records
    kinds = [_kind(each) for each in records]
    of_kind, counts = dict(zip(kinds, records, strict=True)), Counter(kinds)
    alike = [(of_kind[kind], count) for kind, count in counts.items()]
    return paragraphs_and_tables(
        *_listing(alike, partial(_machines, _held_back(results)), "machines"), *_listing(alike, _storages, "storages")
    )


def _listing(
    alike: Sequence[tuple[Record, int]], facts: Callable[[Record], list[dict[str, str]]], what: str
) -> Iterator[TextTable | str]:
    """Yield a table with one row per distinct set of facts, and with the number of cells that have these facts.

    `alike` has one record per kind of record, with the number of such records. `facts` returns the facts of a record.
    """
    groups: Counter[tuple[tuple[str, str], ...]] = Counter()
    for record, count in alike:
        for each in facts(record):
            groups[tuple(each.items())] += count
    rows = [[*(value for _, value in known), f"{count:,}"] for known, count in list(groups.items())[:MOST_LINES]]
    headings = [*facts(alike[0][0])[0], "cells"]
    yield TextTable(headings, rows, [*[True] * (len(headings) - 1), False])
    yield count_sentence(len(rows), len(groups), what, "the records")


def _kind(record: Record) -> tuple[Any, ...]:
    """Return a key that is equal for two records with the same rows in both tables."""
    targets = [(_name_at(record, key), record.settings.get(f"{key}.root")) for key in _targets(record)]
    return id(record.provenance), record.host, _name(record), *targets, *_sources(record).items()


def _held_back(results: Results) -> dict[int, float]:
    """Return for each machine with a CPU quota the largest share of a run in which the quota throttled the run.

    The key of a machine is the `id` of the mapping `Record.provenance`, which the records of a machine share.
    """
    runs = results.runs.reindex(columns=["cell", "throttled_s", "elapsed_s"])
    of_run = (runs["throttled_s"] / runs["elapsed_s"]).where(runs["elapsed_s"] > 0)
    of_cell = of_run.groupby(runs["cell"]).max().fillna(0.0).to_dict()
    shares: dict[int, float] = {}
    for record in results.found.records:
        if record.quota_cores is not None:
            machine = id(record.provenance)
            shares[machine] = max(shares.get(machine, 0.0), of_cell.get(record.cell, 0.0))
    return shares


def _machines(held_back: Mapping[int, float], record: Record) -> list[dict[str, str]]:
    facts, git, versions = record.provenance, _part(record, "git"), _part(record, "versions")
    memory = facts.get("memory_bytes")
    commit = str(git.get("commit", ""))[:12]
    changed = " with changes" if git.get("dirty") is True else ""
    facts = {
        "host": record.host or NONE,
        "processor": _word(facts.get("cpu")),
        "cores": _word(facts.get("cores")),
        **({"CPU quota": _quota(record, held_back)} if held_back else {}),
        "memory": f"{memory / 2**30:.0f} GiB" if isinstance(memory, int) else NONE,
        "kernel": _word(facts.get("kernel")),
        "Python": _word(facts.get("python")),
        "software": ", ".join(f"{name} {version}" for name, version in versions.items()) or NONE,
        "commit": f"{commit}{changed}" if commit else NONE,
    }
    return [facts]


def _quota(record: Record, held_back: Mapping[int, float]) -> str:
    if record.quota_cores is None:
        return "none"
    most = held_back.get(id(record.provenance), 0.0)
    return f"{record.quota_cores:g} cores, used up for {percentage(most)} of a run at most"


def _storages(record: Record) -> list[dict[str, str]]:
    """Return the storage of the dataset, then the storages of the checkpoint target.

    For a storage of the checkpoint target the root folder is returned, because its mount point is not recorded.
    """
    mount, device = _part(record, "mount"), _part(record, "device")
    described = ", ".join(f"{name} {_word(value)}" for name, value in device.items())
    lines = [_storage(record, _name(record), mount.get("point"), mount, described)]
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
    """Return the settings keys of the storages that get snapshots, with the role of each storage."""
    if record.settings.get("checkpoint.name") in (None, NO_TARGET):
        return {}
    return SIDES if "checkpoint.fast.name" in record.settings else ONLY


def _sources(record: Record) -> dict[str, str]:
    """Return the devices (as `dsk/<name>`) that have the snapshots, as recorded by the runs.

    The keys are `source_fast`, `source_slow` and `source_only`.
    """
    named = (texts.items() for texts in dict.fromkeys(kind.texts for kind in record.runs.kinds))
    return {name: text for texts in named for name, text in texts if name.startswith("source_")}


def _name_at(record: Record, key: str) -> str:
    return _marked(_word(record.settings.get(f"{key}.name")), record, key)


def _name(record: Record) -> str:
    return _marked(_word(storage_name(record.settings)), record, "storage")


def _marked(name: str, record: Record, key: str) -> str:
    facts = record.emulated.get(key)
    return name if facts is None else add_emulation_remark(name, {f"{key}.emulated": emulation_mark(facts)}, key)


def _part(record: Record, name: str) -> Mapping[str, Any]:
    """Return a group of facts in the provenance, or an empty mapping if the provenance has only the word `unknown`."""
    part = record.provenance.get(name)
    return part if isinstance(part, dict) else {}


def _word(value: Any) -> str:
    return NONE if value is None or value == "" else as_typed_by_user(value)
