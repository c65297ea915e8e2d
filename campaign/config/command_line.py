"""The words of the command line: flags, which may stand anywhere, and what is said of groups and keys."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from campaign.errors import UsageError, nearest

GROUPS = ("benchmark", "dataset", "site", "storage", "accelerator", "checkpoint", "cluster", "paper", "measure", "size")
CONFIG_DIR_VARIABLE = "CAMPAIGN_CONFIG_DIR"
TASKS = {
    "measure": {
        "stall": "whether any program waits for its storage",
        "measure": "what a storage gives, and TensorFlow gets of it",
        "reproduce": "a whole paper: baselines, recipes, report",
        "stage": "copies of some files on a faster storage",
    },
    "see": {
        "status": "what is done, what is not, and why",
        "watch": "the same while it runs",
        "why": "every run of a cell with every check",
        "advise": "what bounds a cell, and what would test that",
        "report": "tables, figures and report.html again",
        "verdicts": "each claim of a paper and what was measured",
        "compare": "two campaigns, cell by cell",
        "tensorboard": "the cells in TensorBoard",
    },
    "prepare and end": {
        "doctor": "whether this machine or cluster can measure",
        "testbed": "emulated storages to rehearse with",
        "cancel": "ends the Slurm jobs of a campaign",
        "clean": "lists and removes the data that were made",
        "help": "what a KEY, GROUP or VERB is; help recipes|keys",
    },
}
"""The verbs by what they are for, each with what it does; `campaign.__main__` has the function of each."""
VERBS = {verb: does for verbs in TASKS.values() for verb, does in verbs.items()}
_DRY_RUN = "--dry-run"
_YES = "--yes"
_ONLY = "--only"
_OURS = (_DRY_RUN, _YES)
_REDO = "redo="  # what is measured by now is not measured anew once more
_SEVERAL = "paper"  # +paper=fig4 +paper=fig5 are two recipes
# Words for Hydra itself, whatever package they name (`x@hydra.y=…`): it would read other files.
_FOR_HYDRA = re.compile(r"(?:^|[@:]|_global_)[\s.+~]*hydra")
_WORD = re.compile(r"\+{0,2}([^=]+)=(.*)", re.DOTALL)
_NO_CHOICE = re.compile(r"\s*\[|.*\$\{", re.DOTALL)  # a list or an interpolation
_MULTIRUN = ("-m", "--multirun")
_CONFIG_DIR = ("-cd", "--config-dir")
_SHOWING = ("--hydra-help", "-c", "--cfg", "-i", "--info", "-sc", "--shell-completion", "--resolve")
_WITH_VALUE = ("-c", "--cfg", *_CONFIG_DIR, _ONLY)
_INFO = ("-i", "--info")  # its value is optional
_INFO_VALUES = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
_IDLE_FLAGS = {
    "-r": "a single point needs no flag",
    "--run": "a single point needs no flag",
    "-p": "the whole configuration is shown: --cfg job",
    "--package": "the whole configuration is shown: --cfg job",
    "-cp": "--config-dir adds a folder of your own to ours",
    "--config-path": "--config-dir adds a folder of your own to ours",
    "-cn": "a recipe of your own in --config-dir says what is different: +paper=mine",
    "--config-name": "a recipe of your own in --config-dir says what is different: +paper=mine",
}
SIZES = ("+size=", "size=", "++size=")
# What a recipe has in another number with another size.
_SIZED = (
    "iterations", "batch_size", "nodes", "accelerator.step_s", "benchmark.file_mb", "benchmark.image_size",
    "benchmark.width", "dataset", *(f"dataset.{key}" for key in (
        "files", "classes", "height", "width", "median_bytes", "train_files", "validation_files", "samples",
    )),
)  # fmt: skip
_VARIABLE = "${oc.env:"
_BEFORE_QUOTE = re.compile(r'(\\*)("|\Z)')
_BARE = re.compile(r"[^'\"\\${}]+")
_NOT_RECORDED = ("cluster.", "hydra.")  # for Slurm, and for Hydra
# Their values are words for sbatch and no lists: n[1-4],n7 needs no quotes of Hydra's.
LITERAL = ("partition", "account", "qos", "constraint", "pool", "exclude", "dependency", "licenses", "wckey", "comment")
_FLAGS = {*_OURS, "--help", *_MULTIRUN, *_SHOWING, *_WITH_VALUE}


@dataclass(frozen=True)
class Words:
    """A parsed command line."""

    overrides: tuple[str, ...]  # what is said of groups and keys
    shown: tuple[str, ...] = ()  # flags with which Hydra shows a configuration and runs nothing, with their values
    config_dir: str | None = None  # folder of the user's own configuration
    dry_run: bool = False  # print the plan and start nothing
    sure: bool = False  # spend node-hours without asking
    only: tuple[str, ...] = ()  # cells, by id, start or hash; empty: all
    of_recipes: bool = False  # whether they are for recipes that none of the words names

    @property
    def flags(self) -> tuple[str, ...]:
        """The flag that says where the user's own configuration is, if there is any."""
        return ("--config-dir", self.config_dir) if self.config_dir else ()

    @property
    def notes(self) -> list[str]:
        """Notes for the user: a key is given twice; the value of a variable is recorded; a recipe has another size."""
        keys = [word.partition("=")[0] for word in self.overrides]
        repeated = dict.fromkeys(key for key in keys if keys.count(key) > 1 and not key.startswith("+"))
        recorded = [word.partition("=")[0] for word in self.overrides if _VARIABLE in word]
        with_recipe = self.of_recipes or any(word.startswith("+paper=") for word in self.overrides)
        return [
            *(
                f"{word} changes the size of the recipe: its cells are not called the paper's"
                for word in (resizing(self.overrides) if with_recipe else ())
            ),
            *(f"{key} is given more than once; the last one counts" for key in repeated),
            *(
                f"{key}: what {_VARIABLE}…}} stands for is in work lists and records; put no secret there"
                for key in recorded
                if not key.lstrip("+").startswith(_NOT_RECORDED)
            ),
        ]


def resizing(words: Sequence[str]) -> list[str]:
    """Return the words that change the size of a recipe; none if a word names a size itself."""
    named = any(word.startswith(SIZES) for word in words)
    return [] if named else [word for word in words if is_sized(word)]


def is_sized(word: str) -> bool:
    """Return whether a word sets a number that a size stands for."""
    return word.lstrip("+").partition("=")[0] in _SIZED


def _quoted(word: str) -> str:
    key, _, value = word.partition("=")
    node, _, name = key.partition(".")
    is_literal = node in ("cluster", "site") and name in LITERAL
    return f"{key}='{value}'" if is_literal and value != "null" and _BARE.fullmatch(value) else word


def split(argv: Sequence[str]) -> Words:
    """Parse a command line; raises UsageError.

    A grid needs no ``-m``: every call is a sweep with at least one point.
    """
    overrides: list[str] = []
    flags: list[tuple[str, str | None]] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word.startswith("-"):
            flags.append(_flag(word, rest))
        else:
            overrides.append(word)
    _require_effect(overrides)
    names, last = {name for name, _ in flags}, dict(flags)
    return Words(
        tuple(map(_quoted, overrides)),
        tuple(part for name, value in flags if name in _SHOWING for part in (name, value) if part is not None),
        next((last[name] for name in _CONFIG_DIR if name in last), os.environ.get(CONFIG_DIR_VARIABLE) or None),
        _DRY_RUN in names,
        _YES in names,
        tuple(cell for name, value in flags if name == _ONLY for cell in str(value).split(",")),
    )


def _flag(word: str, rest: list[str]) -> tuple[str, str | None]:
    """Return the name and the value of a flag; the value may be the first word of the `rest`, which is taken out."""
    name, has_value, value = word.partition("=")
    if name in _IDLE_FLAGS:
        raise UsageError(f"{name} has no effect here", _IDLE_FLAGS[name])
    if name not in _FLAGS:
        raise UsageError(f"unknown flag '{name}'", nearest(name, _FLAGS))
    if not has_value and (name in _WITH_VALUE or (name in _INFO and rest[:1] and rest[0] in _INFO_VALUES)):
        value, has_value = (rest.pop(0), "=") if rest else ("", "")
    if name == _ONLY and (not value or value.startswith("-") or "=" in value):
        raise UsageError(f"{_ONLY} needs cells", f"{_ONLY} CELL[,CELL…]: an id, the start of it, or its hash")
    if name in _WITH_VALUE and not value:
        raise UsageError(f"{name} needs a value", "see `python -m campaign --hydra-help`")
    return name, value if has_value else None


def without_verb(words: Sequence[str]) -> list[str]:
    """Return the words of a request without ``reproduce``, or ``measure PATH --data=DIR``."""
    if words[:1] == ["measure"]:
        return [word for word in words[2:] if not word.startswith("--data=")]
    return [word for word in words if word != "reproduce"]


def again(words: Sequence[str], cell: str = "") -> str:
    """Return the shell command that continues an earlier command, or one cell of it."""
    kept = [word for word in words if word not in _OURS and not word.startswith(_REDO)]
    if not cell:
        return shlex.join(["python", "-m", "campaign", *kept])
    while found := [place for place, word in enumerate(kept) if word.partition("=")[0] == _ONLY]:
        del kept[found[0] : found[0] + (1 if "=" in kept[found[0]] else 2)]
    return again([*kept, _ONLY, cell.rpartition("-")[2]])


def quoted(text: str) -> str:
    """Return a text as Hydra takes it for itself: a quote gets a backslash, and those before it are doubled."""
    return '"' + _BEFORE_QUOTE.sub(lambda found: found[1] * 2 + ('\\"' if found[2] else ""), text) + '"'


def refuse_for_hydra(words: Iterable[str]) -> None:
    """Refuse words that are for Hydra itself and not for the campaign."""
    for word in words:
        if _FOR_HYDRA.search(word.partition("=")[0]):
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
