"""The rules that decide whether cells may be compared, the only ones for all claims, tables and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from analysis.records.record import NAMED, one_device
from analysis.text import join_values

Cell = Mapping[str, Any]

AND = " + "
"""Separates the accelerators, or engines, of a cell whose runs had several."""
MIXED = {"host": "hosts", "accelerator": "accelerators", "engine": "engines", "tensorflow": "versions of TensorFlow"}
# The columns that a comparison of cells needs.
COLUMNS = (
    "cell",
    "n_valid",
    "spread_limit",
    "looser_checks",
    "series_key",
    "conditions",
    *MIXED,
    *dict.fromkeys(it for both in NAMED for it in both),
)
_UNSET = "unset"
# A campaign measures no fewer runs per cell (README, "What is measured"); with fewer the interval says nothing.
FEWEST_RUNS = 3
# The spread of runs on the paper's own machines (Section IV.B): with a larger tolerance any claim would hold.
WIDEST_SPREAD = 0.06
CURE_OF_LOOSER = "cure: measure without them, or put the tolerance into the site's file (conf/site)"


def forbidding_differences(cells: Sequence[Cell], *, across: bool = False, sizes: bool = False) -> str:
    """Return the differences between cells that forbid a comparison, in words; empty if there are none.

    `across`: the cells compare storages, which may be on several hosts; cells of one storage must still share the host.
    `sizes`: the cells compare dataset sizes; cells of one size must still share the data.
    """
    differences = [
        f"{word} {join_values(values)}" for name, word in MIXED.items() for values in _several(cells, name, across)
    ]
    differences += differing_conditions(cells)
    data = {(_size(cell) if sizes else (), found) for cell in cells if (found := _data(cell))}
    differences += ["datasets (their checksums differ)"] if len(data) > len({size for size, _ in data}) else []
    return f"mixed: {'; '.join(dict.fromkeys(differences))}" if differences else join_values(one_device(cells))


def reason_for_weak_proof(cells: Sequence[Cell]) -> str:
    """Return why cells prove too little, else empty: looser checks, replaced library calls, too few runs."""
    few = [cell["cell"] for cell in cells if cell["n_valid"] < FEWEST_RUNS]
    return (
        sentence_on_looser_checks(cells)
        or sentence_on_replaced_calls(cells)
        or (f"fewer than {FEWEST_RUNS} valid runs of {join_values(few)}" if few else "")
    )


def sentence_on_looser_checks(cells: Iterable[Cell]) -> str:
    """Return a sentence if a cell was judged by looser checks than the site's, which give no tolerance; else empty."""
    return next((why for cell in cells if (why := _looser(cell))), "")


def differing_conditions(cells: Sequence[Cell]) -> list[str]:
    """Return the conditions that differ between cells, each with its values.

    Conditions of the process must be equal in all cells, those of the machine and of a storage on each host.
    """
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for cell in cells:
        if conditions := _conditions(cell):
            groups.setdefault(("",), []).append(conditions["process"])
            groups.setdefault(("", cell["host"]), []).append(conditions["machine"])
            for name, facts in conditions["storages"].items():
                groups.setdefault((f" of {name}", cell["host"]), []).append(facts)
    differences = [
        f"{name}{of} {join_values(values)}" for (of, *_), facts in groups.items() for name, values in _apart(facts)
    ]
    differences += ["conditions, which some cells have not recorded"] * (
        len({bool(_conditions(cell)) for cell in cells}) > 1
    )
    return list(dict.fromkeys(differences))


def _apart(facts: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the values of each fact that differs between these mappings."""
    if all(each == facts[0] for each in facts):
        return
    for name in dict.fromkeys(name for each in facts for name in each):
        values = {str(each.get(name, _UNSET)) for each in facts}
        if len(values) > 1:
            yield name, sorted(values)


def _conditions(cell: Cell) -> Mapping[str, Any]:
    conditions = cell.get("conditions")
    return conditions if isinstance(conditions, dict) else {}


def sentence_on_replaced_calls(cells: Iterable[Cell]) -> str:
    """Return a sentence if a preloaded library replaced C library calls of a cell (effect unknown); else empty."""
    calls = (_conditions(cell).get("process", {}).get("interposed") for cell in cells)
    return next((f"a preloaded library has replaced calls of the C library ({words})" for words in calls if words), "")


def lines_on_looser_checks(cells: Sequence[Cell]) -> list[str]:
    """Return one line per kind of looser checks: the number of cells judged by them, and the cure."""
    counts = Counter(words for cell in cells if (words := sentence_on_looser_checks([cell])))
    many = f"of {len(cells):,} cell{'s' * (len(cells) != 1)}"
    return [f"{n:,} {many} {words}; not compared with others; {CURE_OF_LOOSER}" for words, n in counts.items()]


def _several(cells: Sequence[Cell], name: str, across: bool) -> Iterator[list[str]]:  # noqa: FBT001
    """Yield the values of each group of cells that differ in the field `name` and must not."""
    groups: dict[Any, set[str]] = {}
    for cell in cells:
        group = cell["storage_name"] if across and name == "host" else None
        groups.setdefault(group, set()).update(_values(cell, name))
    yield from (sorted(values) for values in groups.values() if len(values) > 1)


def _values(cell: Cell, name: str) -> set[str]:
    value = cell.get(name)
    words = value if isinstance(value, str) else ""
    # Only baselines have an engine.
    return set(words.split(AND)) if words or name != "engine" else set()


def _data(cell: Cell) -> str:
    return str(cell["series_key"].facts["data"] or "")


def _size(cell: Cell) -> tuple[tuple[str, Any], ...]:
    """Return the facts that fix the size of a dataset: its parameters, or the folder that holds it."""
    facts = cell["series_key"].facts
    named = ("dataset.name", "dataset.seed")
    return tuple((name, it) for name, it in facts.items() if name.startswith("dataset.") and name not in named)


def _looser(cell: Cell) -> str:
    if words := cell["looser_checks"]:
        return f"judged by looser checks than the site's: {words}"
    limit = cell["spread_limit"]
    wide = f"judged by checks.spread_max={limit:g}, too wide to compare anything (at most {WIDEST_SPREAD:g})"
    return wide if limit > WIDEST_SPREAD else ""
