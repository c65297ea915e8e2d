"""The words of the command line, in the order that Hydra's parser needs."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from campaign.errors import UsageError, nearest

GROUPS = ("benchmark", "dataset", "site", "storage", "accelerator", "checkpoint", "cluster", "paper", "size")
CONFIG_DIR_VARIABLE = "CAMPAIGN_CONFIG_DIR"
VERBS = (
    "advise", "cancel", "clean", "compare", "doctor", "report", "reproduce", "stage", "status", "tensorboard",
    "testbed", "verdicts", "watch", "why",
)  # fmt: skip
"""The verbs; `campaign.__main__` has the function of each."""
_DRY_RUN = "--dry-run"
_YES = "--yes"
_ONLY = "--only"
_OURS = (_DRY_RUN, _YES)
_REDO = "redo="  # what is measured by now is not measured anew once more
_SEVERAL = "paper"  # +paper=fig4 +paper=fig5 are two recipes
# Words for Hydra itself, whatever package they name (`x@hydra.y=…`): it would instantiate classes and read other files.
_FOR_HYDRA = re.compile(r"(?:^|[@:]|_global_)[\s.+~]*hydra")
_HARMLESS = re.compile(r"hydra/sweeper=\w+")
_WORD = re.compile(r"\+{0,2}([^=]+)=(.*)", re.DOTALL)
_NO_CHOICE = re.compile(r"\s*\[|.*\$\{", re.DOTALL)  # a list or an interpolation
_MULTIRUN = ("-m", "--multirun")
_CONFIG_DIR = ("-cd", "--config-dir")
_SHOWING = ("--hydra-help", "-c", "--cfg", "-i", "--info", "-sc", "--shell-completion", "--resolve")
_WITH_VALUE = ("-c", "--cfg", "-cp", "--config-path", "-cn", "--config-name", *_CONFIG_DIR)
_INFO = ("-i", "--info")  # its value is optional
_INFO_VALUES = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
_IDLE_FLAGS = {
    "-r": "a single point needs no flag",
    "--run": "a single point needs no flag",
    "-p": "the whole configuration is shown: --cfg job",
    "--package": "the whole configuration is shown: --cfg job",
}
_VARIABLE = "${oc.env:"
_BARE = re.compile(r"[^'\"\\${}]+")
_NOT_RECORDED = ("cluster.", "hydra.")  # for Slurm, and for Hydra
# Their values are words for sbatch and no lists: n[1-4],n7 needs no quotes of Hydra's.
LITERAL = ("partition", "account", "qos", "constraint", "pool", "exclude", "dependency", "licenses", "wckey", "comment")
_FLAGS = {*_OURS, _ONLY, "--help", *_MULTIRUN, *_SHOWING, *_WITH_VALUE}


@dataclass(frozen=True)
class Words:
    """A parsed command line."""

    flags: tuple[str, ...]  # Hydra's own, with their values
    overrides: tuple[str, ...]  # what is said of groups and keys
    dry_run: bool  # print the plan and start nothing
    sure: bool  # spend node-hours without asking
    only: tuple[str, ...] = ()  # cells, by id, start or hash; empty: all

    @property
    def shown(self) -> str | None:
        """The flag with which Hydra shows a configuration and runs nothing; None without one."""
        return next((flag for flag in self.flags if flag.partition("=")[0] in _SHOWING), None)

    @property
    def notes(self) -> list[str]:
        """Notes for the user: a key is given twice and the last value counts; the value of a variable is recorded."""
        keys = [word.partition("=")[0] for word in self.overrides]
        repeated = dict.fromkeys(key for key in keys if keys.count(key) > 1 and not key.startswith("+"))
        recorded = [word.partition("=")[0] for word in self.overrides if _VARIABLE in word]
        return [
            *(f"{key} is given more than once; the last one counts" for key in repeated),
            *(
                f"{key}: what {_VARIABLE}…}} stands for is in work lists and records; put no secret there"
                for key in recorded
                if not key.lstrip("+").startswith(_NOT_RECORDED)
            ),
        ]

    @property
    def hydra(self) -> tuple[str, ...]:
        """The words for Hydra: flags first, then overrides; its parser reads no other order."""
        return *self.flags, *map(_quoted, self.overrides)


def _quoted(word: str) -> str:
    key, _, value = word.partition("=")
    is_literal = key.removeprefix("cluster.") in LITERAL and key.startswith("cluster.")
    return f"{key}='{value}'" if is_literal and value != "null" and _BARE.fullmatch(value) else word


def split(argv: Sequence[str]) -> Words:
    """Parse a command line; raises UsageError.

    A grid needs no ``-m``: every call is a sweep with at least one point.
    """
    flags: list[str] = []
    overrides: list[str] = []
    only: list[str] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            overrides.append(word)
            continue
        name, has_value, value = word.partition("=")
        if name == _ONLY:
            value = value or (rest.pop(0) if rest else "")
            if not value or value.startswith("-") or "=" in value:
                raise UsageError(f"{_ONLY} needs cells", f"{_ONLY} CELL[,CELL…]: an id, the start of it, or its hash")
            only += value.split(",")
            continue
        if name in _IDLE_FLAGS:
            raise UsageError(f"{name} has no effect here", _IDLE_FLAGS[name])
        if name not in _FLAGS:
            raise UsageError(f"unknown flag '{name}'", nearest(name, _FLAGS))
        flags.append(word)
        takes = name in _WITH_VALUE or (name in _INFO and bool(rest) and rest[0] in _INFO_VALUES)
        if takes and not has_value:
            if not rest:
                raise UsageError(f"{name} needs a value", "see `python -m campaign --hydra-help`")
            flags.append(rest.pop(0))
    _require_effect(overrides)
    return Words(tuple(_for_hydra(flags)), tuple(overrides), _DRY_RUN in flags, _YES in flags, tuple(only))


def config_folders(words: Sequence[str]) -> list[str]:
    """Return the flags that name the user's configuration folder, with their values."""
    places = [place for place, word in enumerate(words) if word.partition("=")[0] in _CONFIG_DIR]
    return [each for place in places for each in words[place : place + (1 if "=" in words[place] else 2)]]


def again(words: Sequence[str], cell: str = "") -> str:
    """Return the shell command that continues an earlier command, or one cell of it."""
    kept = [word for word in words if word not in _OURS and not word.startswith(_REDO)]
    if not cell:
        return shlex.join(["python", "-m", "campaign", *kept])
    while found := [place for place, word in enumerate(kept) if word.partition("=")[0] == _ONLY]:
        del kept[found[0] : found[0] + (1 if "=" in kept[found[0]] else 2)]
    return again([*kept, _ONLY, cell.rpartition("-")[2]])


def refuse_for_hydra(words: Iterable[str]) -> None:
    """Refuse words that are for Hydra itself and not for the campaign."""
    for word in words:
        if _FOR_HYDRA.search(word.partition("=")[0]) and not _HARMLESS.fullmatch(word):
            hint = "campaign_dir=… is where results go, --config-dir where your own configuration is"
            raise UsageError(f"'{word}' is for Hydra itself, which runs nothing here", hint)


def check_words(overrides: Iterable[str]) -> None:
    """Refuse words for Hydra itself, a choice that is no word, and an empty mapping."""
    overrides = list(overrides)
    refuse_for_hydra(overrides)
    for word in overrides:
        if not (parts := _WORD.fullmatch(word)):
            continue
        key, value = parts.groups()
        if key in GROUPS and _NO_CHOICE.match(value):
            raise UsageError(f"{key}={value} is no choice of a group", f"one word, or several: {key}=one,other")
        if re.fullmatch(r"\s*\{\s*\}\s*", value):
            raise UsageError(f"{word} changes nothing", f"name a key of it: {key}.…=…")


def _require_effect(overrides: Sequence[str]) -> None:
    """Refuse a key that is also added (``+key=``), which Hydra would silently accept."""
    seen: set[str] = set()
    for word in overrides:
        key = word.partition("=")[0].lstrip("+")
        if key in seen and word.startswith("+") and key != _SEVERAL:
            raise UsageError(f"{key} is given twice", f"once, with its values: {key}=one,other")
        seen.add(key)


def _for_hydra(flags: Sequence[str]) -> list[str]:
    """Return the flags for Hydra: without ours, with the user's configuration folder, and ``-m`` if none shows."""
    kept = [flag for flag in flags if flag not in (*_OURS, *_MULTIRUN)]
    names = {flag.partition("=")[0] for flag in flags}
    if not names.intersection(_SHOWING):
        kept.insert(0, "-m")
    folder = os.environ.get(CONFIG_DIR_VARIABLE)
    if folder and not names.intersection(_CONFIG_DIR):
        kept += ["--config-dir", folder]
    return kept
