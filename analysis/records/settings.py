"""Flatten settings to names such as `dataset.name`, and make the keys that group comparable cells."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from sys import intern
from typing import Any

import msgspec

from analysis.records.runs import TRAINING
from jobs.model.settings import flat_items

Facts = Mapping[str, Any]

# The benchmark determines the kind, so two cells with different kinds also differ in the benchmark.
IMPLIED = "kind"
# With this limit, a file name with a prefix such as `fig4-` and an extension is below the 255 bytes of ext4 and NFS.
LONGEST_SUFFIX = 100
# The settings that every description of a chart contains.
PLAIN = (
    "dataset.name", "dataset.files", "threads", "batch_size", "prefetch", "cache", "accelerator.name",
    "accelerator.step_s",
)  # fmt: skip
# Values of `accelerator.name` that name no particular accelerator. Each run records the accelerator that it used.
ACCELERATOR_LEFT_ALONE = (None, "auto")
# The word that describes a cell without this setting. A cell lacks a setting that does not apply to the cell.
_UNSET = {
    "profile.posix": "not-profiled", "profile.tensorflow": "not-watched", "profile.every": "undivided",
    "staging": "not-staged", "sync": "sync-none",
}  # fmt: skip
# The main settings of each group of settings. If the main settings distinguish all cells, descriptions omit the other
# settings of the group.
_CHOSEN = (("dataset.name", "dataset.files"), ("benchmark.name",), ("checkpoint.name",), ("accelerator.name",))
EMULATED, MODELLED = " (emulated)", " (emulated, model)"


@dataclass(frozen=True, eq=False, slots=True)
class Settings:
    """Settings under flat names, used as a key that groups cells.

    Equal settings are one shared object in memory, so keys are compared by identity. Keys are sorted by `text`.
    """

    facts: Facts
    text: str

    @classmethod
    def of(cls, facts: Facts) -> Settings:
        """Return the shared object for settings with these facts."""
        with suppress(UnicodeEncodeError):  # the path of a dataset may contain a lone surrogate
            content = msgspec.json.encode(facts, order="deterministic")
            return _BY_CONTENT.get(content) or _BY_CONTENT.setdefault(content, cls._made(facts))
        return cls._made(facts)

    @classmethod
    def _made(cls, facts: Facts) -> Settings:
        ordered = {name: facts[name] for name in sorted(facts)}
        text = json.dumps({name: it for name, it in ordered.items() if name != IMPLIED})
        return _KNOWN.get(text) or _KNOWN.setdefault(text, cls(ordered, text))

    def __lt__(self, other: Settings) -> bool:
        """Return whether the text of this key sorts before the text of the other key."""
        return self.text < other.text

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a pickled form that another process unpickles as the shared object of that process."""
        return Settings.of, (dict(self.facts),)


_KNOWN: dict[str, Settings] = {}
_BY_CONTENT: dict[bytes, Settings] = {}
"""The objects of `_KNOWN` by their msgspec JSON, because this JSON is faster to make than `Settings.text`."""


def flatten(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings as a flat dictionary with keys such as `dataset.name`.

    A list becomes JSON text, so that the values of two cells can be compared.
    """
    plain = ((name, json.dumps(value) if isinstance(value, list) else value) for name, value in flat_items(settings))
    return {intern(name): intern(value) if isinstance(value, str) else value for name, value in plain}


def is_storage(name: str) -> bool:
    """Return whether a flat setting describes the storage."""
    return name == "storage" or name.startswith("storage.")


def storage_name(flat: Facts) -> str:
    """Return the name of the storage, or `""` if the benchmark has none."""
    return str(flat.get("storage.name", flat.get("storage", "")))


def add_emulation_remark(name: str, facts: Facts, key: str) -> str:
    """Return the name of a storage, followed by a remark if the storage was emulated.

    `key` is the settings key of the storage, for example `checkpoint.fast`.
    """
    mark = facts.get(f"{key}.emulated")
    return f"{name}{MODELLED if isinstance(mark, str) else EMULATED}" if mark else name


def without_emulation_remarks(label: str) -> str:
    """Return a label of storages without the remarks about emulation (`add_emulation_remark`)."""
    return label.replace(MODELLED, "").replace(EMULATED, "")


def model_texts(facts: Facts) -> list[str]:
    """Return the models of a cell's emulated storages, in words.

    If a storage of the cell is not emulated by a model, return an empty list.
    """
    target = ["checkpoint"] if facts.get("checkpoint.name", "none") != "none" else []
    sides = [role for role in ("checkpoint.fast", "checkpoint.slow") if f"{role}.name" in facts]
    marks = [facts.get(f"{role}.emulated") for role in ("storage", *(sides or target))]
    words = [mark for mark in marks if isinstance(mark, str)]
    return words if len(words) == len(marks) else []


def plain_storage_name(label: str) -> str:
    """Return the name of a storage in lower case and without a remark in brackets: `HDD (emulated)` gives `hdd`."""
    return label.casefold().partition(" (")[0]


def series_key(facts: Facts) -> Settings:
    """Return the key that all cells of one curve share, which has all settings except the number of threads."""
    return Settings.of({name: it for name, it in facts.items() if name != "threads"})


@cache
def set_key(series: Settings) -> Settings:
    """Return the key that all cells of one chart share, which has all settings except threads and storage."""
    return Settings.of({name: it for name, it in series.facts.items() if not is_storage(name)})


@cache
def reduced_set_key(key: Settings, free: frozenset[str], held: tuple[tuple[str, Any], ...] = ()) -> Settings:
    """Return a set key without the settings named in `free`, in which the settings in `held` have the given values."""
    facts = {**key.facts, **dict(held)}
    return Settings.of({name: facts[name] for name in facts if name not in free})


def differing_names(many: Sequence[Facts]) -> list[str]:
    """Return the sorted names of the settings in which cells differ. A cell that lacks a setting differs too."""
    names = sorted({name for facts in many for name in facts} - {IMPLIED})
    return [name for name in names if len({_word(name, facts) for facts in many}) > 1]


def distinguishing_names(many: Sequence[Facts]) -> list[str]:
    """Return the names of the settings that are needed to distinguish the cells.

    A setting whose value follows from another setting is left out. If the main settings of a group (`dataset.name`,
    `dataset.files`) distinguish all cells, the other settings of the group are left out. A setting that only some
    benchmarks have is left out if the setting has one value per benchmark.
    """
    names = [name for name in differing_names(many) if name != "staging.emulated"]  # the setting `staging` differs too
    for chosen in _CHOSEN:
        group = chosen[0].partition(".")[0]
        parts = [name for name in names if name.startswith(f"{group}.") or (group == "dataset" and name == "data")]
        first = [name for name in parts if name in chosen]
        if first and len(_distinct(many, parts)) == len(_distinct(many, first)):
            names = [name for name in names if name in first or name not in parts]
    if "benchmark" not in names:
        return names
    benchmarks = len(_distinct(many, ["benchmark"]))
    of_some = {name for name in names if any(name not in facts for facts in many)} | {"benchmark.name"}
    return [name for name in names if name not in of_some or len(_distinct(many, ["benchmark", name])) > benchmarks]


def file_name_suffixes(keys: Sequence[Settings]) -> dict[Settings, str]:
    """Return a short, distinct file-name suffix for each key. A single key gets the suffix `""`."""
    if len(keys) == 1:
        return {keys[0]: ""}
    names = _fewest([key.facts for key in keys])
    texts = {key: "-".join(filter(None, (_word(name, key.facts) for name in names))) for key in keys}
    texts = {key: re.sub(r"[^A-Za-z0-9._-]+", "_", text) for key, text in texts.items()}
    # Suffixes are compared in lower case, because some file systems do not distinguish upper from lower case.
    alike = len({text.casefold()[:LONGEST_SUFFIX] for text in texts.values()}) < len(keys)
    return {
        key: f"{text[:LONGEST_SUFFIX]}-{_digest(key.text)}" if alike or len(text) > LONGEST_SUFFIX else text
        for key, text in texts.items()
    }


def _fewest(many: Sequence[Facts]) -> list[str]:
    """Return few names of settings that together distinguish all cells.

    `benchmark` and `dataset.name` are among the names if they distinguish some cells.
    """
    names = distinguishing_names(many)
    first: list[str] = []
    for name in ("benchmark", "dataset.name"):
        first += [name] * (len(_distinct(many, [*first, name])) > len(_distinct(many, first)))
    needed = list(dict.fromkeys((*first, *names)))
    for name in reversed(needed[len(first) :]):
        rest = [other for other in needed if other != name]
        needed = rest if len(_distinct(many, rest)) == len(_distinct(many, names)) else needed
    return needed


def storage_labels(keys: Iterable[Settings]) -> dict[Settings, str]:
    """Return the storage name of each series key.

    If two storages of one chart have the same name, the differing settings are added to the name.
    """
    by_name: dict[tuple[Settings, str], list[Settings]] = {}
    for key in keys:
        name = add_emulation_remark(storage_name(key.facts), key.facts, "storage")
        by_name.setdefault((set_key(key), name), []).append(key)
    labels = {}
    for (_, name), same in by_name.items():
        names = differing_names([key.facts for key in same]) if len(same) > 1 else []
        for key in same:
            more = ", ".join(f"{part.removeprefix('storage.')}={key.facts.get(part)}" for part in names)
            labels[key] = f"{name} ({more})" if more else name
    return labels


def describe_settings(
    facts: Facts, more: Iterable[str] = (), ran_on: Iterable[str] = (), sizes: Iterable[str] = ()
) -> str:
    """Return a short description of the settings behind a chart or table.

    Parameters
    ----------
    more
        Names of further settings to show.
    ran_on
        The accelerators that the runs recorded. If this is empty, the description has the setting `accelerator.name`.
    sizes
        The sizes that users chose for the campaigns. A campaign without a size has `""`.
    """
    phrases = [f"dataset {facts['dataset.name']}" if facts.get("dataset.name") is not None else ""]
    if facts.get("dataset.files") is not None:
        phrases[0] += f" ({facts['dataset.files']:,} files)" if isinstance(facts["dataset.files"], int) else ""
    phrases += [f"threads {facts['threads']}" if facts.get("threads") is not None else ""]
    phrases += [f"batch {facts['batch_size']}" if facts.get("batch_size") is not None else ""]
    phrases += [f"prefetch {facts['prefetch']}" if facts.get("prefetch") is not None else ""]
    trains = facts.get(IMPLIED) == TRAINING
    if trains and "iterations" in facts:
        phrases += ["one epoch" if facts["iterations"] is None else f"iterations {facts['iterations']}"]
    phrases += [f"{facts['cache']} cache" if facts.get("cache") else ""]
    phrases += [accelerators(facts, ran_on)]
    plain = (*PLAIN, "benchmark", "benchmark.name", *(["iterations"] if trains else []))
    phrases += [_word(name, facts, " ") for name in more if name not in plain]
    phrases += [f"size {' and '.join(sorted(set(sizes) - {''}))}" if set(sizes) - {""} else ""]
    return ", ".join(filter(None, phrases))


def accelerators(facts: Facts, ran_on: Iterable[str]) -> str:
    """Return the accelerators in words, or `""` if neither the runs nor the settings name an accelerator.

    An emulated accelerator is followed by its seconds per step.
    """
    chosen = facts.get("accelerator.name")
    names = sorted({each for each in ran_on if each}) or [str(chosen)] * (chosen not in ACCELERATOR_LEFT_ALONE)
    step_s = facts.get("accelerator.step_s")
    words = [f"{name}, {step_s:g} s a step" if name == "emulated" and step_s else name for name in names]
    return f"accelerator{'s' * (len(words) > 1)} {' and '.join(words)}" if words else ""


def _word(name: str, facts: Facts, joint: str = "-") -> str:
    """Return a setting as one word, for example `warm`, `batch_size-64` or `no-autotune`; `joint` joins its parts.

    If the cell lacks the setting, return the word in `_UNSET`, or `""` if `_UNSET` has no such word.
    """
    if name not in facts:
        return _UNSET.get(name, "").replace("-", joint)
    value, last = facts[name], name.rpartition(".")[2]
    if name in {"data", "benchmark_version"}:
        return f"data{joint}{_digest(str(value))}" if name == "data" else f"version{joint}{value}"
    if name == "checkpoint.name":
        return f"no{joint}checkpoint" if value == "none" else f"checkpoint{joint}{value}"
    if last in {"name", "benchmark"} or name == "cache":
        return str(value)
    if isinstance(value, bool):
        return last if value else f"no{joint}{last}"
    return f"{last}{joint}{'none' if value is None else value}"


def _distinct(many: Sequence[Facts], names: Sequence[str]) -> set[tuple[str, ...]]:
    return {tuple(_word(name, facts) for name in names) for facts in many}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:6]
