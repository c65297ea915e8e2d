"""What keeps cells from being compared: decided here alone, for every claim, table and figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from analysis.records.shared_devices import NAMED, one_device
from analysis.text.plain import listed

Cell = Mapping[str, Any]

AND = " + "
"""Between the accelerators, or engines, of a cell whose runs had several."""
MIXED = {"host": "hosts", "accelerator": "accelerators", "engine": "engines", "tensorflow": "versions of TensorFlow"}
# What a cell must say of itself to be compared.
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
# Of fewer runs the campaign makes no cell (README, "What is measured"), and the interval would say nothing.
FEWEST_RUNS = 3
# As much as the runs of the paper's own machines vary (Section IV.B): as a tolerance more would let anything hold.
WIDEST_SPREAD = 0.06
CURE_OF_LOOSER = "cure: measure without them, or put the tolerance into the site's file (conf/site)"


def unlike(cells: Sequence[Cell], *, across: bool = False, sizes: bool = False) -> str:
    """Return what differs between cells and must not: host, conditions, software, data; or a device of several names.

    `across`: storages are compared, which may be of several hosts; the cells of one must be of one host all the same.
    `sizes`: data sets of several sizes are compared; those of one size must be the same all the same.
    """
    told = [f"{word} {listed(values)}" for name, word in MIXED.items() for values in _several(cells, name, across)]
    told += other_conditions(cells)
    data = {(_size(cell) if sizes else (), found) for cell in cells if (found := _data(cell))}
    told += ["datasets (their checksums differ)"] if len(data) > len({size for size, _ in data}) else []
    return f"mixed: {'; '.join(dict.fromkeys(told))}" if told else listed(one_device(cells))


def weak(cells: Sequence[Cell]) -> str:
    """Return why some cells prove too little by themselves: looser checks, calls that were replaced, too few runs."""
    few = [cell["cell"] for cell in cells if cell["n_valid"] < FEWEST_RUNS]
    return looser(cells) or replaced(cells) or (f"fewer than {FEWEST_RUNS} valid runs of {listed(few)}" if few else "")


def looser(cells: Iterable[Cell]) -> str:
    """Return that some cells were judged by looser checks than their site's: of that no tolerance can be made."""
    return next((why for cell in cells if (why := _looser(cell))), "")


def other_conditions(cells: Sequence[Cell]) -> list[str]:
    """Return each condition that differs between cells, with its values.

    Those of the process must be the same everywhere, of the machine on each host, of a storage wherever it is used.
    """
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for cell in cells:
        if conditions := _conditions(cell):
            groups.setdefault(("",), []).append(conditions["process"])
            groups.setdefault(("", cell["host"]), []).append(conditions["machine"])
            for name, facts in conditions["storages"].items():
                groups.setdefault((f" of {name}", cell["host"]), []).append(facts)
    told = [f"{name}{of} {listed(values)}" for (of, *_), facts in groups.items() for name, values in _apart(facts)]
    told += ["conditions, which some cells have not recorded"] * (len({bool(_conditions(cell)) for cell in cells}) > 1)
    return list(dict.fromkeys(told))


def _apart(facts: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the values of each fact that is not the same in all of these."""
    if all(each == facts[0] for each in facts):
        return
    for name in dict.fromkeys(name for each in facts for name in each):
        values = {str(each.get(name, _UNSET)) for each in facts}
        if len(values) > 1:
            yield name, sorted(values)


def _conditions(cell: Cell) -> Mapping[str, Any]:
    found = cell.get("conditions")
    return found if isinstance(found, dict) else {}


def replaced(cells: Iterable[Cell]) -> str:
    """Return that calls of some cells were another library's: it may answer to each cell in another way."""
    told = (_conditions(cell).get("process", {}).get("interposed") for cell in cells)
    return next((f"a preloaded library has replaced calls of the C library ({words})" for words in told if words), "")


def looser_cells(cells: Sequence[Cell]) -> list[str]:
    """Return a line for those cells that were judged by the same looser checks: how many they are, and the cure."""
    counts = Counter(words for cell in cells if (words := looser([cell])))
    many = f"of {len(cells):,} cell{'s' * (len(cells) != 1)}"
    return [f"{n:,} {many} {words}; not compared with others; {CURE_OF_LOOSER}" for words, n in counts.items()]


def _several(cells: Sequence[Cell], name: str, across: bool) -> Iterator[list[str]]:  # noqa: FBT001
    """Yield the values of each group of cells that must agree in them and does not."""
    groups: dict[Any, set[str]] = {}
    for cell in cells:
        group = cell["storage_name"] if across and name == "host" else None
        groups.setdefault(group, set()).update(_values(cell, name))
    yield from (sorted(values) for values in groups.values() if len(values) > 1)


def _values(cell: Cell, name: str) -> set[str]:
    value = cell.get(name)
    words = value if isinstance(value, str) else ""
    # Only what reads or writes a storage by itself has an engine.
    return set(words.split(AND)) if words or name != "engine" else set()


def _data(cell: Cell) -> str:
    return str(cell["series_key"].facts["data"] or "")


def _size(cell: Cell) -> tuple[tuple[str, Any], ...]:
    """Return what says how large a data set is: its parameters, or the folder that it is in."""
    facts = cell["series_key"].facts
    named = ("dataset.name", "dataset.seed")
    return tuple((name, it) for name, it in facts.items() if name.startswith("dataset.") and name not in named)


def _looser(cell: Cell) -> str:
    if words := cell["looser_checks"]:
        return f"judged by looser checks than the site's: {words}"
    limit = cell["spread_limit"]
    wide = f"judged by checks.spread_max={limit:g}, too wide to compare anything (at most {WIDEST_SPREAD:g})"
    return wide if limit > WIDEST_SPREAD else ""
