"""Settings under flat names, and the keys that decide which cells may be compared."""

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

# This field follows from the benchmark, so it distinguishes no settings.
IMPLIED = "kind"
# A file name stays below the 255 bytes of ext4 and NFS, with room for `fig4-` and the ending.
LONGEST_SUFFIX = 100
# Shown in every description, in this order.
PLAIN = (
    "dataset.name", "dataset.files", "threads", "batch_size", "prefetch", "cache", "accelerator.name",
    "accelerator.step_s",
)  # fmt: skip
# Values that name no accelerator; the runs record which one they had.
ACCELERATOR_LEFT_ALONE = (None, "auto")
# The word for a cell that lacks the setting because it does not apply.
_UNSET = {
    "profile.posix": "not-profiled", "profile.tensorflow": "not-watched", "profile.every": "undivided",
    "staging": "not-staged", "sync": "sync-none",
}  # fmt: skip
# The main settings of each group; the others are left out if these distinguish all cells.
_CHOSEN = (("dataset.name", "dataset.files"), ("benchmark.name",), ("checkpoint.name",), ("accelerator.name",))
EMULATED, MODELLED = " (emulated)", " (emulated, model)"


@dataclass(frozen=True, eq=False, slots=True)
class Settings:
    """Settings that cells share, under flat names; equal ones share one object, and their text defines the order."""

    facts: Facts
    text: str

    @classmethod
    def of(cls, facts: Facts) -> Settings:
        """Return the shared object of these settings."""
        with suppress(UnicodeEncodeError):  # half a pair of surrogates, in the path of data
            content = msgspec.json.encode(facts, order="deterministic")
            return _BY_CONTENT.get(content) or _BY_CONTENT.setdefault(content, cls._made(facts))
        return cls._made(facts)

    @classmethod
    def _made(cls, facts: Facts) -> Settings:
        ordered = {name: facts[name] for name in sorted(facts)}
        text = json.dumps({name: it for name, it in ordered.items() if name != IMPLIED})
        return _KNOWN.get(text) or _KNOWN.setdefault(text, cls(ordered, text))

    def __lt__(self, other: Settings) -> bool:
        """Return whether this key sorts before the other, by its text."""
        return self.text < other.text

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the pickled form, which becomes the shared object in the other process too."""
        return Settings.of, (dict(self.facts),)


_KNOWN: dict[str, Settings] = {}
_BY_CONTENT: dict[bytes, Settings] = {}
"""The same objects by their JSON, which is faster to make than their text."""


def flatten(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings as `{"dataset.name": …}`; a list becomes JSON text so that it can be compared."""
    plain = ((name, json.dumps(value) if isinstance(value, list) else value) for name, value in flat_items(settings))
    return {intern(name): intern(value) if isinstance(value, str) else value for name, value in plain}


def is_storage(name: str) -> bool:
    """Return whether a flat setting describes the storage."""
    return name == "storage" or name.startswith("storage.")


def storage_name(flat: Facts) -> str:
    """Return the name of the storage, or `""` if the benchmark has none."""
    return str(flat.get("storage.name", flat.get("storage", "")))


def add_emulation_remark(name: str, facts: Facts, key: str) -> str:
    """Return the storage's name at this key of the settings, followed by a remark if it was emulated."""
    mark = facts.get(f"{key}.emulated")
    return f"{name}{MODELLED if isinstance(mark, str) else EMULATED}" if mark else name


def without_emulation_remarks(label: str) -> str:
    """Return a label of storages without the remarks about emulation (`add_emulation_remark`)."""
    return label.replace(MODELLED, "").replace(EMULATED, "")


def model_texts(facts: Facts) -> list[str]:
    """Return the models (in words) of the storages of a cell if all its storages are models; else an empty list."""
    target = ["checkpoint"] if facts.get("checkpoint.name", "none") != "none" else []
    sides = [role for role in ("checkpoint.fast", "checkpoint.slow") if f"{role}.name" in facts]
    marks = [facts.get(f"{role}.emulated") for role in ("storage", *(sides or target))]
    words = [mark for mark in marks if isinstance(mark, str)]
    return words if len(words) == len(marks) else []


def plain_storage_name(label: str) -> str:
    """Return the storage's name in lower case, without the remark in brackets: `HDD (emulated)` gives `hdd`."""
    return label.casefold().partition(" (")[0]


def series_key(facts: Facts) -> Settings:
    """Return the key that all points of one curve share: all settings except the number of threads."""
    return Settings.of({name: it for name, it in facts.items() if name != "threads"})


@cache
def set_key(series: Settings) -> Settings:
    """Return the key that all points of one chart share: all settings except threads and storage."""
    return Settings.of({name: it for name, it in series.facts.items() if not is_storage(name)})


@cache
def reduced_set_key(key: Settings, free: frozenset[str], held: tuple[tuple[str, Any], ...] = ()) -> Settings:
    """Return a set key without the settings in `free`, and with those in `held` at the given values."""
    facts = {**key.facts, **dict(held)}
    return Settings.of({name: facts[name] for name in facts if name not in free})


def differing_names(many: Sequence[Facts]) -> list[str]:
    """Return the sorted names of the settings whose values differ between cells, or that some cells lack."""
    names = sorted({name for facts in many for name in facts} - {IMPLIED})
    return [name for name in names if len({_word(name, facts) for facts in many}) > 1]


def distinguishing_names(many: Sequence[Facts]) -> list[str]:
    """Return the differing names without those that follow from other differing names.

    If the first settings of a group (`dataset.name`, `dataset.files`) distinguish all its cells, its other settings are
    left out; so are settings that only some benchmarks have, if each has one value per benchmark.
    """
    names = [name for name in differing_names(many) if name != "staging.emulated"]  # staging says it already
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
    """Return for each key a short file-name suffix that distinguishes it from the others; `""` for a single key."""
    if len(keys) == 1:
        return {keys[0]: ""}
    names = _fewest([key.facts for key in keys])
    texts = {key: "-".join(filter(None, (_word(name, key.facts) for name in names))) for key in keys}
    texts = {key: re.sub(r"[^A-Za-z0-9._-]+", "_", text) for key, text in texts.items()}
    # Some file systems do not distinguish upper from lower case.
    alike = len({text.casefold()[:LONGEST_SUFFIX] for text in texts.values()}) < len(keys)
    return {
        key: f"{text[:LONGEST_SUFFIX]}-{_digest(key.text)}" if alike or len(text) > LONGEST_SUFFIX else text
        for key, text in texts.items()
    }


def _fewest(many: Sequence[Facts]) -> list[str]:
    """Return the fewest names that distinguish all; benchmark and dataset stay if they distinguish any."""
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
    """Return the storage name of each series key, with the differing settings if two storages have one name."""
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
        The accelerators that the runs really had; if the runs do not record any, the setting is shown.
    sizes
        The sizes that the campaigns asked for, `""` for none.
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
    phrases += [_word(name, facts).replace("-", " ") for name in more if name not in plain]
    phrases += [f"size {' and '.join(sorted(set(sizes) - {''}))}" if set(sizes) - {""} else ""]
    return ", ".join(filter(None, phrases))


def accelerators(facts: Facts, ran_on: Iterable[str]) -> str:
    """Return the accelerators in words, an emulated one with its seconds per step; empty if none is named."""
    chosen = facts.get("accelerator.name")
    names = sorted({each for each in ran_on if each}) or [str(chosen)] * (chosen not in ACCELERATOR_LEFT_ALONE)
    step_s = facts.get("accelerator.step_s")
    words = [f"{name}, {step_s:g} s a step" if name == "emulated" and step_s else name for name in names]
    return f"accelerator{'s' * (len(words) > 1)} {' and '.join(words)}" if words else ""


def _word(name: str, facts: Facts) -> str:
    """Return a setting as one word: `warm`, `batch_size-64`, `no-autotune`; `""` if unset and not in `_UNSET`."""
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
