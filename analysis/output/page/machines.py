"""Where it ran: machines with their software, storages with what lay behind them."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from analysis.output.page.results import MOST_LINES, some
from analysis.records.settings import EMULATED, storage_name
from analysis.text.html import joined, table, tag
from analysis.text.plain import NONE, share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from analysis.output.page.results import Results
    from analysis.records.record import Record
    from analysis.text.html import Markup


def machines(results: Results) -> Markup:
    """Return the machines with their software, and the storages with what lay behind them."""
    records = results.found.records
    return joined(
        [
            *_listing(records, partial(_machine, _held_back(records)), "machines"),
            *_listing(records, _storage, "storages"),
        ]
    )


def _listing(records: Sequence[Record], facts: Callable[[Record], dict[str, str]], what: str) -> Iterator[Markup]:
    """Yield a table of each kind of record by these facts, with its number of cells."""
    alike = Counter((id(each.provenance), each.host, _name(each)) for each in records)
    first = {(id(each.provenance), each.host, _name(each)): each for each in records}
    groups: Counter[tuple[tuple[str, str], ...]] = Counter()
    for kind, count in alike.items():
        groups[tuple(facts(first[kind]).items())] += count
    rows = [[*(value for _, value in known), f"{count:,}"] for known, count in list(groups.items())[:MOST_LINES]]
    headings = [*facts(records[0]), "cells"]
    yield table(headings, rows, [*[True] * (len(headings) - 1), False])
    yield tag("p", some(len(rows), len(groups), what, "the records"))


def _held_back(records: Sequence[Record]) -> dict[int, float]:
    """Return by machine (equal ones are one object) with a CPU quota the largest share of a run that it held up."""
    shares: dict[int, float] = {}
    for record in records:
        for run in record.runs if record.quota_cores is not None else ():
            held_s, elapsed_s = (run.figures.get(name, 0.0) for name in ("throttled_s", "elapsed_s"))
            held = held_s / elapsed_s if elapsed_s > 0 else 0.0
            shares[id(record.provenance)] = max(held, shares.get(id(record.provenance), 0.0))
    return shares


def _machine(held_back: Mapping[int, float], record: Record) -> dict[str, str]:
    told, git, versions = record.provenance, _part(record, "git"), _part(record, "versions")
    memory = told.get("memory_bytes")
    commit = str(git.get("commit", ""))
    return {
        "host": record.host or NONE,
        "processor": _word(told.get("cpu")),
        "cores": _word(told.get("cores")),
        **({"CPU quota": _quota(record, held_back)} if held_back else {}),
        "memory": f"{memory / 2**30:.0f} GiB" if isinstance(memory, int) else NONE,
        "kernel": _word(told.get("kernel")),
        "Python": _word(told.get("python")),
        "software": ", ".join(f"{name} {version}" for name, version in versions.items()) or NONE,
        "commit": f"{commit[:12]}{' with changes' if git.get('dirty') is True else ''}" or NONE,
    }


def _quota(record: Record, held_back: Mapping[int, float]) -> str:
    if record.quota_cores is None:
        return "none"
    most = held_back.get(id(record.provenance), 0.0)
    return f"{record.quota_cores:g} cores, used up for {share(most)} of a run at most"


def _storage(record: Record) -> dict[str, str]:
    mount, device = _part(record, "mount"), _part(record, "device")
    return {
        "storage": _name(record),
        "host": record.host or NONE,
        "mount": _word(mount.get("point")),
        "source": _word(mount.get("source")),
        "file system": _word(mount.get("fstype")),
        "options": _word(mount.get("options")),
        "device": ", ".join(f"{name} {_word(value)}" for name, value in device.items()) or NONE,
    }


def _name(record: Record) -> str:
    return _word(storage_name(record.settings)) + EMULATED * ("storage" in record.emulated)


def _part(record: Record, name: str) -> Mapping[str, Any]:
    """Return a group of facts of a record's provenance, nothing where it is a mere `unknown`."""
    part = record.provenance.get(name)
    return part if isinstance(part, dict) else {}


def _word(value: Any) -> str:
    if value is None or value == "":
        return NONE
    return value if isinstance(value, str) else json.dumps(value)
