"""Settings as flat names, and the keys that say which cells may stand beside each other."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from sys import intern
from typing import Any

from analysis.records.merit import TRAINING
from jobs.model.settings import flat

Facts = Mapping[str, Any]

# What follows from the benchmark, and so distinguishes no settings.
IMPLIED = "kind"
# A file name stays below the 255 bytes of ext4 and NFS, with room for `fig4-` and the ending.
LONGEST_SUFFIX = 100
# Shown in every description, in this order.
PLAIN = (
    "dataset.name", "dataset.files", "threads", "batch_size", "prefetch", "cache", "accelerator.name",
    "accelerator.step_s",
)  # fmt: skip
# Written where no accelerator was named; the runs say which one they had.
ACCELERATOR_LEFT_ALONE = (None, "auto")
# What a cell is that does not name a setting because it is nothing to it.
_UNSET = {
    "profile.posix": "not-profiled", "profile.tensorflow": "not-watched", "profile.every": "undivided",
    "staging": "not-staged", "sync": "sync-none",
}  # fmt: skip
# The settings of a group that tell most of it, where they are enough.
_CHOSEN = (("dataset.name", "dataset.files"), ("benchmark.name",), ("checkpoint.name",), ("accelerator.name",))
EMULATED, MODELLED = " (emulated)", " (emulated, model)"


@dataclass(frozen=True, eq=False, slots=True)
class Settings:
    """Settings that cells share, under flat names; equal ones are one object, ordered by their text."""

    facts: Facts
    text: str

    @classmethod
    def of(cls, facts: Facts) -> Settings:
        """Return the one object of these settings."""
        ordered = {name: facts[name] for name in sorted(facts)}
        text = json.dumps({name: it for name, it in ordered.items() if name != IMPLIED})
        return _KNOWN.get(text) or _KNOWN.setdefault(text, cls(ordered, text))

    def __lt__(self, other: Settings) -> bool:
        """Say which comes first where sets of cells are sorted."""
        return self.text < other.text

    def __reduce__(self) -> tuple[Any, ...]:
        """Stay the one object in another process, too."""
        return Settings.of, (dict(self.facts),)


_KNOWN: dict[str, Settings] = {}


def flatten(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings as `{"dataset.name": …}`; a list becomes its JSON text, to be comparable."""
    told = ((name, json.dumps(value) if isinstance(value, list) else value) for name, value in flat(settings))
    return {intern(name): intern(value) if isinstance(value, str) else value for name, value in told}


def is_storage(name: str) -> bool:
    """Say whether a flat setting describes the storage."""
    return name == "storage" or name.startswith("storage.")


def storage_name(flat: Facts) -> str:
    """Return the name of the storage, `""` for a benchmark that has none."""
    return str(flat.get("storage.name", flat.get("storage", "")))


def with_emulated(name: str, facts: Facts, key: str) -> str:
    """Return the name of the storage at a key of the settings, and that it was emulated if it was."""
    mark = facts.get(f"{key}.emulated")
    return f"{name}{MODELLED if isinstance(mark, str) else EMULATED}" if mark else name


def models(facts: Facts) -> list[str]:
    """Return the models in words of the storages of a cell, where each of its storages is one; else nothing."""
    target = ["checkpoint"] if facts.get("checkpoint.name", "none") != "none" else []
    sides = [role for role in ("checkpoint.fast", "checkpoint.slow") if f"{role}.name" in facts]
    marks = [facts.get(f"{role}.emulated") for role in ("storage", *(sides or target))]
    told = [mark for mark in marks if isinstance(mark, str)]
    return told if len(told) == len(marks) else []


def bare(label: str) -> str:
    """Return the name of a storage without what a label says behind it, in lower case: `HDD (emulated)`, `hdd`."""
    return label.casefold().partition(" (")[0]


def series_key(facts: Facts) -> Settings:
    """Return what all points of one curve share: everything but the number of threads."""
    return Settings.of({name: it for name, it in facts.items() if name != "threads"})


@cache
def set_key(series: Settings) -> Settings:
    """Return what all points of one figure share: everything but threads and storage."""
    return Settings.of({name: it for name, it in series.facts.items() if not is_storage(name)})


@cache
def family_key(key: Settings, free: frozenset[str], held: tuple[tuple[str, Any], ...] = ()) -> Settings:
    """Return a set key with some settings set free, so that they may differ, and others held at a value."""
    facts = {**key.facts, **dict(held)}
    return Settings.of({name: facts[name] for name in facts if name not in free})


def differing(many: Sequence[Facts]) -> list[str]:
    """Return the sorted names of the settings that are not the same in all, or missing in some."""
    names = sorted({name for facts in many for name in facts} - {IMPLIED})
    return [name for name in names if len({_word(name, facts) for facts in many}) > 1]


def distinguishing(many: Sequence[Facts]) -> list[str]:
    """Return the differing names without those that others of them imply.

    What a group's first settings (`dataset.name`, `dataset.files`) tell apart needs none of the others of the group;
    what only some benchmarks know, each at one value, needs none beside the benchmark.
    """
    names = [name for name in differing(many) if name != "staging.emulated"]  # staging says it already
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


def suffixes(keys: Sequence[Settings]) -> dict[Settings, str]:
    """Return for each key a short file-name suffix of settings that tell it from all others, `""` for a lone key."""
    if len(keys) == 1:
        return {keys[0]: ""}
    names = _fewest([key.facts for key in keys])
    made = {key: "-".join(filter(None, (_word(name, key.facts) for name in names))) for key in keys}
    made = {key: re.sub(r"[^A-Za-z0-9._-]+", "_", text) for key, text in made.items()}
    # Some file systems do not distinguish upper from lower case.
    alike = len({text.casefold()[:LONGEST_SUFFIX] for text in made.values()}) < len(keys)
    return {
        key: f"{text[:LONGEST_SUFFIX]}-{_digest(key.text)}" if alike or len(text) > LONGEST_SUFFIX else text
        for key, text in made.items()
    }


def _fewest(many: Sequence[Facts]) -> list[str]:
    """Return the distinguishing names without those that are not needed; benchmark and data set stay if they tell."""
    names = distinguishing(many)
    kept: list[str] = []
    for name in ("benchmark", "dataset.name"):
        kept += [name] * (len(_distinct(many, [*kept, name])) > len(_distinct(many, kept)))
    told = list(dict.fromkeys((*kept, *names)))
    for name in reversed(told[len(kept) :]):
        rest = [other for other in told if other != name]
        told = rest if len(_distinct(many, rest)) == len(_distinct(many, names)) else told
    return told


def storage_labels(keys: Iterable[Settings]) -> dict[Settings, str]:
    """Return for each series key the name of its storage, with what distinguishes two of one name."""
    by_name: dict[tuple[Settings, str], list[Settings]] = {}
    for key in keys:
        name = with_emulated(storage_name(key.facts), key.facts, "storage")
        by_name.setdefault((set_key(key), name), []).append(key)
    labels = {}
    for (_, name), same in by_name.items():
        names = differing([key.facts for key in same]) if len(same) > 1 else []
        for key in same:
            more = ", ".join(f"{part.removeprefix('storage.')}={key.facts.get(part)}" for part in names)
            labels[key] = f"{name} ({more})" if more else name
    return labels


def describe(facts: Facts, more: Iterable[str] = (), ran_on: Iterable[str] = (), sizes: Iterable[str] = ()) -> str:
    """Return what a figure or table is about in a few words.

    Parameters
    ----------
    more
        Names of further settings to show.
    ran_on
        The accelerators that its runs really had; where they do not say, the setting counts.
    sizes
        The sizes that the campaigns asked for, `""` for none.
    """
    told = [f"dataset {facts['dataset.name']}" if facts.get("dataset.name") is not None else ""]
    if facts.get("dataset.files") is not None:
        told[0] += f" ({facts['dataset.files']:,} files)" if isinstance(facts["dataset.files"], int) else ""
    told += [f"threads {facts['threads']}" if facts.get("threads") is not None else ""]
    told += [f"batch {facts['batch_size']}" if facts.get("batch_size") is not None else ""]
    told += [f"prefetch {facts['prefetch']}" if facts.get("prefetch") is not None else ""]
    trains = facts.get(IMPLIED) == TRAINING
    if trains and "iterations" in facts:
        told += ["one epoch" if facts["iterations"] is None else f"iterations {facts['iterations']}"]
    told += [f"{facts['cache']} cache" if facts.get("cache") else ""]
    told += [accelerators(facts, ran_on)]
    plain = (*PLAIN, "benchmark", "benchmark.name", *(["iterations"] if trains else []))
    told += [_word(name, facts).replace("-", " ") for name in more if name not in plain]
    told += [f"size {' and '.join(sorted(set(sizes) - {''}))}" if set(sizes) - {""} else ""]
    return ", ".join(filter(None, told))


def accelerators(facts: Facts, ran_on: Iterable[str]) -> str:
    """Return the accelerator in words, an emulated one with its seconds a step; empty where none is named."""
    chosen = facts.get("accelerator.name")
    names = sorted({each for each in ran_on if each}) or [str(chosen)] * (chosen not in ACCELERATOR_LEFT_ALONE)
    step_s = facts.get("accelerator.step_s")
    told = [f"{name}, {step_s:g} s a step" if name == "emulated" and step_s else name for name in names]
    return f"accelerator{'s' * (len(told) > 1)} {' and '.join(told)}" if told else ""


def _word(name: str, facts: Facts) -> str:
    """Return a setting as a word that stands alone: `warm`, `batch_size-64`, `no-autotune`; empty where it is unset."""
    if name not in facts:
        return _UNSET.get(name, "")
    value, last = facts[name], name.rpartition(".")[2]
    if name == "data":
        return f"data-{_digest(str(value))}"
    if name == "benchmark_version":
        return f"version-{value}"
    if last in {"name", "benchmark"} or name == "cache":
        return {"checkpoint.name": "no-checkpoint" if value == "none" else f"checkpoint-{value}"}.get(name, str(value))
    if isinstance(value, bool):
        return last if value else f"no-{last}"
    return f"{last}-{'none' if value is None else value}"


def _distinct(many: Sequence[Facts], names: Sequence[str]) -> set[tuple[str, ...]]:
    return {tuple(_word(name, facts) for name in names) for facts in many}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:6]
