"""Decide whether cells may be compared. All claims, tables and figures use the rules in this module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from analysis.records.record import NAMED, sentences_on_shared_devices
from analysis.text import join_values
from jobs.judging.judge import refusal_by_limits

Cell = Mapping[str, Any]

AND = " + "
"""The separator between the accelerators (or engines) of a cell whose runs used several accelerators (or engines)."""
MIXED = {"host": "hosts", "accelerator": "accelerators", "engine": "engines", "tensorflow": "versions of TensorFlow"}
# The columns that the functions of this module need.
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
# The minimum number of valid runs of a cell that is compared, because the interval of fewer runs is meaningless. A
# campaign measures at least this number of runs per cell (README, "What is measured").
FEWEST_RUNS = 3


def forbidding_differences(cells: Sequence[Cell], *, across: bool = False, sizes: bool = False) -> str:
    """Return in words the differences between cells that forbid a comparison, or `""` if the cells may be compared.

    If `across` is true, the comparison is between storages, which may be on several hosts. Cells of one storage must
    then be from one host. If `sizes` is true, the comparison is between sizes of a dataset. Cells of one size must then
    have the same data.
    """
    differences = [
        f"{word} {join_values(values)}" for name, word in MIXED.items() for values in _several(cells, name, across)
    ]
    differences += differing_conditions(cells)
    data = {(_size(cell) if sizes else (), found) for cell in cells if (found := _data(cell))}
    differences += ["datasets (their checksums differ)"] if len(data) > len({size for size, _ in data}) else []
    return (
        f"mixed: {'; '.join(dict.fromkeys(differences))}"
        if differences
        else join_values(sentences_on_shared_devices(cells))
    )


def reason_for_weak_proof(cells: Sequence[Cell]) -> str:
    """Return the reason why the runs of some cell prove too little to compare the cell, or `""`.

    The reason is looser checks, replaced library calls, or too few runs.
    """
    few = [cell["cell"] for cell in cells if cell["n_valid"] < FEWEST_RUNS]
    return (
        sentence_on_looser_checks(cells)
        or sentence_on_replaced_calls(cells)
        or (f"fewer than {FEWEST_RUNS} valid runs of {join_values(few)}" if few else "")
    )


def sentence_on_looser_checks(cells: Iterable[Cell]) -> str:
    """Return a sentence if a cell was judged by looser checks than the checks of the site, or else `""`.

    Looser checks give no valid tolerance for a comparison.
    """
    return next((why for cell in cells if (why := refusal(cell)[0])), "")


def differing_conditions(cells: Sequence[Cell]) -> list[str]:
    """Return the conditions that differ between cells, with the values of each condition.

    Conditions of the process must be equal in all cells. Conditions of the machine and of a storage must be equal in
    all cells of one host.
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
    """Return a sentence if a preloaded library replaced C library calls of a cell, or else `""`.

    Such a cell cannot be compared, because the effect of the replaced calls is unknown.
    """
    calls = (_conditions(cell).get("process", {}).get("interposed") for cell in cells)
    return next((f"a preloaded library has replaced calls of the C library ({words})" for words in calls if words), "")


def lines_on_looser_checks(cells: Sequence[Cell]) -> list[str]:
    """Return one line per kind of looser checks, with the number of cells judged by these checks, and with the cure."""
    counts = Counter(refusal(cell) for cell in cells)
    many = f"of {len(cells):,} cell{'s' * (len(cells) != 1)}"
    return [f"{n:,} {many} {why}; not compared with others; {cure}" for (why, cure), n in counts.items() if why]


def _several(cells: Sequence[Cell], name: str, across: bool) -> Iterator[list[str]]:  # noqa: FBT001
    """Yield the values of the field `name` for each group of cells that should have only one value but has several."""
    groups: dict[Any, set[str]] = {}
    for cell in cells:
        group = cell["storage_name"] if across and name == "host" else None
        groups.setdefault(group, set()).update(_values(cell, name))
    yield from (sorted(values) for values in groups.values() if len(values) > 1)


def _values(cell: Cell, name: str) -> set[str]:
    value = cell.get(name)
    words = value if isinstance(value, str) else ""
    # A cell without an engine does not differ from other cells, because only baselines have an engine.
    return set(words.split(AND)) if words or name != "engine" else set()


def _data(cell: Cell) -> str:
    return str(cell["series_key"].facts["data"] or "")


def _size(cell: Cell) -> tuple[tuple[str, Any], ...]:
    """Return the settings that determine the size of a dataset: its parameters, or its folder."""
    facts = cell["series_key"].facts
    named = ("dataset.name", "dataset.seed")
    return tuple((name, it) for name, it in facts.items() if name.startswith("dataset.") and name not in named)


def refusal(cell: Cell) -> tuple[str, str]:
    """Return why the limits of a cell forbid to compare the cell with others, and the cure; two empty texts if not."""
    return refusal_by_limits(cell["looser_checks"], cell["spread_limit"])
