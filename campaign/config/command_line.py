"""Parse a command line: flags, in any place, and overrides (``KEY=VALUE`` and ``GROUP=CHOICE``)."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from campaign.errors import UsageError
from jobs.model.conduct import SBATCH_TEXTS
from jobs.parser import END_OF_FLAGS, nearest_hint

GROUPS = ("benchmark", "dataset", "site", "storage", "accelerator", "checkpoint", "cluster", "paper", "measure", "size")
CONFIG_DIR_VARIABLE = "CAMPAIGN_CONFIG_DIR"
_DRY_RUN = "--dry-run"
_YES = "--yes"
_JSON = "--json"
_ONLY = "--only"
_OWN_FLAGS = (_DRY_RUN, _YES, _JSON)
_REDO = "redo="  # a command that continues a campaign must not measure the finished runs again
_REPEATABLE = "paper"  # a key that may be given twice: +paper=fig4 +paper=fig5 are two recipes
# Overrides of Hydra's own settings, in any package (`x@hydra.y=…`). They are refused, because Hydra would then read
# other files.
_FOR_HYDRA = re.compile(r"(?:^|[@:]|_global_)[\s.+~]*hydra")
_OVERRIDE = re.compile(r"\+{0,2}([^=]+)=(.*)", re.DOTALL)
_NO_CHOICE = re.compile(r"\s*\[|.*\$\{", re.DOTALL)  # a list or an interpolation
MULTIRUN = ("-m", "--multirun")
CONFIG_DIR = ("-cd", "--config-dir")
_HYDRA_FLAGS = ("--hydra-help", "-c", "--cfg", "-i", "--info", "-sc", "--shell-completion", "--resolve")
FLAGS_WITH_VALUE = ("-c", "--cfg", *CONFIG_DIR, _ONLY)
_INFO = ("-i", "--info")  # a flag with an optional value
_INFO_VALUES = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
_IDLE_FLAGS = {
    "-r": "leave it out: a single point needs no flag",
    "--run": "leave it out: a single point needs no flag",
    "-p": "--cfg job prints the whole configuration",
    "--package": "--cfg job prints the whole configuration",
    "-cp": "--config-dir adds a folder with your own configuration",
    "--config-path": "--config-dir adds a folder with your own configuration",
    "-cn": "write your own recipe into the folder of --config-dir, and choose it: +paper=mine",
    "--config-name": "write your own recipe into the folder of --config-dir, and choose it: +paper=mine",
}
SIZES = ("+size=", "size=", "++size=")
# The settings of recipes that have other values with another size.
_KEYS_OF_SIZE = (
    "iterations", "batch_size", "nodes", "accelerator.step_s", "benchmark.file_mb", "benchmark.image_size",
    "benchmark.width", "dataset", *(f"dataset.{key}" for key in (
        "files", "classes", "height", "width", "median_bytes", "train_files", "validation_files", "samples",
    )),
)  # fmt: skip
_ENVIRONMENT_VALUE = "${oc.env:"
_BEFORE_QUOTE = re.compile(r'(\\*)("|\Z)')
_BEFORE_VALUE = re.compile(r"(\\*)\$\{")
_BARE = re.compile(r"[^'\"\\${}]+")
_NOT_RECORDED = ("cluster.", "hydra.")  # prefixes of keys whose values no record contains
FLAGS = {*_OWN_FLAGS, "--help", *MULTIRUN, *_HYDRA_FLAGS, *FLAGS_WITH_VALUE}


@dataclass(frozen=True)
class CommandLine:
    """A parsed command line."""

    overrides: tuple[str, ...]  # the words KEY=VALUE and GROUP=CHOICE
    hydra_flags: tuple[str, ...] = ()  # flags with which Hydra only prints a configuration, with their values
    config_dir: str | None = None  # folder of the user's own configuration
    dry_run: bool = False  # print the plan and start nothing
    assume_yes: bool = False  # do not ask before using node-hours
    as_json: bool = False  # print one JSON document on stdout, and all other output on stderr
    only: tuple[str, ...] = ()  # cells to run, named by the start of an id or hash; empty for all cells
    of_recipes: bool = False  # whether the command runs recipes that its overrides do not name (`reproduce`)

    @property
    def config_dir_flags(self) -> tuple[str, ...]:
        """Return ``--config-dir`` with its folder, or nothing if the user has no own configuration folder."""
        return ("--config-dir", self.config_dir) if self.config_dir else ()

    @property
    def notes(self) -> list[str]:
        """Return notes for the user: on repeated keys, recorded environment variables, changed sizes of recipes."""
        keys = [word.partition("=")[0] for word in self.overrides]
        repeated = dict.fromkeys(key for key in keys if keys.count(key) > 1 and not key.startswith("+"))
        variable_keys = [
            word.partition("=")[0] for word in self.overrides if _ENVIRONMENT_VALUE in word.replace("\\$", "")
        ]
        with_recipe = self.of_recipes or any(word.startswith("+paper=") for word in self.overrides)
        return [
            *(
                f"{word} changes the size of the recipe, so tables do not call its cells the paper's"
                for word in (resizing_overrides(self.overrides) if with_recipe else ())
            ),
            *(f"{key} is given more than once; the last one counts" for key in repeated),
            *(
                f"{key}: work lists and records will contain the value of {_ENVIRONMENT_VALUE}…}}; use no secret"
                for key in variable_keys
                if not key.lstrip("+").startswith(_NOT_RECORDED)
            ),
        ]


def resizing_overrides(overrides: Sequence[str]) -> list[str]:
    """Return the overrides that change the size of a recipe, or an empty list if an override names a size."""
    is_size_given = any(override.startswith(SIZES) for override in overrides)
    return [] if is_size_given else [override for override in overrides if depends_on_size(override)]


def depends_on_size(override: str) -> bool:
    """Return whether an override sets a number that differs between the sizes of a recipe."""
    return override.lstrip("+").partition("=")[0] in _KEYS_OF_SIZE


def _quote_literal(override: str) -> str:
    """Quote the value of an override for sbatch, so that Hydra does not interpret the value.

    Other overrides are returned unchanged.
    """
    key, _, value = override.partition("=")
    node, _, name = key.partition(".")
    is_literal = node in ("cluster", "site") and name in SBATCH_TEXTS
    return f"{key}='{value}'" if is_literal and value != "null" and _BARE.fullmatch(value) else override


def parse_command_line(argv: Sequence[str]) -> CommandLine:
    """Parse the arguments of a command line; raises UsageError for wrong flags.

    The flag ``-m`` is accepted but not needed, because every command line is a sweep with at least one point.
    """
    overrides: list[str] = []
    flags: list[tuple[str, str | None]] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word == END_OF_FLAGS:
            overrides += rest
            break
        if word.startswith("-"):
            flags.append(_take_flag(word, rest))
        else:
            overrides.append(word)
    _require_effect(overrides)
    names, values = {name for name, _ in flags}, dict(flags)
    return CommandLine(
        tuple(map(_quote_literal, overrides)),
        tuple(part for name, value in flags if name in _HYDRA_FLAGS for part in (name, value) if part is not None),
        next((values[name] for name in CONFIG_DIR if name in values), os.environ.get(CONFIG_DIR_VARIABLE) or None),
        _DRY_RUN in names,
        _YES in names,
        _JSON in names,
        tuple(cell for name, value in flags if name == _ONLY for cell in str(value).split(",")),
    )


def _take_flag(word: str, rest: list[str]) -> tuple[str, str | None]:
    """Return the name and the value of a flag, or None for no value.

    If the value is the next argument, it is removed from `rest`.
    """
    name, has_value, value = word.partition("=")
    if name in _IDLE_FLAGS:
        raise UsageError(f"{name} has no effect here", _IDLE_FLAGS[name])
    if name not in FLAGS:
        raise UsageError(f"unknown flag '{name}'", nearest_hint(name, FLAGS))
    if has_value and name not in (*FLAGS_WITH_VALUE, *_INFO, "-sc", "--shell-completion"):
        raise UsageError(f"{name} takes no value", f"write {name} alone, or leave it out")
    if not has_value and (name in FLAGS_WITH_VALUE or (name in _INFO and rest[:1] and rest[0] in _INFO_VALUES)):
        value, has_value = (rest.pop(0), "=") if rest else ("", "")
    if name == _ONLY and (not value or value.startswith("-") or "=" in value):
        raise UsageError(f"{_ONLY} needs cells", f"{_ONLY} CELL[,CELL…]: name each cell by the start of its id or hash")
    if name in FLAGS_WITH_VALUE and not value:
        raise UsageError(f"{name} needs a value", "see `python -m campaign --hydra-help`")
    return name, value if has_value else None


def strip_verb(words: Sequence[str]) -> list[str]:
    """Return the arguments of a recorded request without the verb and the verb's own arguments."""
    if words[:1] == ["measure"]:
        return [word for word in words[2:] if not word.startswith("--data=")]
    return [word for word in words if word != "reproduce"]


def command_to_continue(words: Sequence[str], cell: str = "") -> str:
    """Return the shell command that continues an earlier command, for all of its cells or only for `cell`."""
    overrides = [word for word in words if word not in _OWN_FLAGS and not word.startswith(_REDO)]
    if not cell:
        return shlex.join(["python", "-m", "campaign", *overrides])
    while places := [place for place, word in enumerate(overrides) if word.partition("=")[0] == _ONLY]:
        del overrides[places[0] : places[0] + (1 if "=" in overrides[places[0]] else 2)]
    return command_to_continue([*overrides, _ONLY, cell.rpartition("-")[2]])


def quote_for_hydra(text: str) -> str:
    """Return a text in double quotes for Hydra's grammar.

    Each double quote in the text gets a backslash, and the backslashes before a double quote are doubled.
    """
    return '"' + _BEFORE_QUOTE.sub(lambda found: found[1] * 2 + ('\\"' if found[2] else ""), text) + '"'


def quote_literally(text: str) -> str:
    """Return a text in quotes so that Hydra takes the text literally, even if it contains an interpolation (``${``)."""
    return quote_for_hydra(_BEFORE_VALUE.sub(lambda found: rf"{found[1] * 2}\${{", text))


def refuse_hydra_keys(overrides: Iterable[str]) -> None:
    """Raise UsageError if an override sets one of Hydra's own keys."""
    for override in overrides:
        if _FOR_HYDRA.search(override.partition("=")[0]):
            hint = "campaign_dir=… names the folder of the results, --config-dir the folder of your own configuration"
            raise UsageError(f"'{override}' is for Hydra itself, which runs nothing here", hint)


def check_overrides(overrides: Iterable[str]) -> None:
    """Raise UsageError for an override of Hydra's own keys, a choice that is no plain text, or an empty mapping."""
    overrides = list(overrides)
    refuse_hydra_keys(overrides)
    for word in overrides:
        if not (parts := _OVERRIDE.fullmatch(word)):
            continue
        key, value = parts.groups()
        if key in GROUPS and _NO_CHOICE.match(value):
            raise UsageError(f"{key}={value} is no choice of a group", f"name one or several choices: {key}=one,other")
        if key == "dataset.path" and "," in value and Path(value).exists():
            cure = f"quote the name: {shlex.quote(f'{key}={quote_literally(value)}')}"
            raise UsageError(f"{word} names several folders, and {value} is one", cure)
        if re.fullmatch(r"\s*\{\s*\}\s*", value):
            raise UsageError(f"{word} changes nothing", f"name a key of {key}: {key}.…=…")


def _require_effect(overrides: Sequence[str]) -> None:
    """Raise UsageError for a key that is set and also added (``+key=``), because Hydra would silently use one value."""
    keys: set[str] = set()
    for word in overrides:
        key = word.partition("=")[0].lstrip("+")
        if key in keys and word.startswith("+") and key != _REPEATABLE:
            raise UsageError(f"{key} is given twice", f"give {key} once, with all of its values: {key}=one,other")
        keys.add(key)
