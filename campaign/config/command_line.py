"""Parse a command line: flags, which may stand anywhere, and overrides (``KEY=VALUE`` and ``GROUP=CHOICE``)."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from campaign.errors import UsageError
from jobs.parser import END_OF_FLAGS, nearest_hint

GROUPS = ("benchmark", "dataset", "site", "storage", "accelerator", "checkpoint", "cluster", "paper", "measure", "size")
CONFIG_DIR_VARIABLE = "CAMPAIGN_CONFIG_DIR"
_DRY_RUN = "--dry-run"
_YES = "--yes"
_JSON = "--json"
_ONLY = "--only"
_OWN_FLAGS = (_DRY_RUN, _YES, _JSON)
_REDO = "redo="  # what is measured by now is not measured anew once more
_REPEATABLE = "paper"  # +paper=fig4 +paper=fig5 are two recipes
# Words for Hydra itself, whatever package they name (`x@hydra.y=…`): it would read other files.
_FOR_HYDRA = re.compile(r"(?:^|[@:]|_global_)[\s.+~]*hydra")
_OVERRIDE = re.compile(r"\+{0,2}([^=]+)=(.*)", re.DOTALL)
_NO_CHOICE = re.compile(r"\s*\[|.*\$\{", re.DOTALL)  # a list or an interpolation
MULTIRUN = ("-m", "--multirun")
CONFIG_DIR = ("-cd", "--config-dir")
_HYDRA_FLAGS = ("--hydra-help", "-c", "--cfg", "-i", "--info", "-sc", "--shell-completion", "--resolve")
FLAGS_WITH_VALUE = ("-c", "--cfg", *CONFIG_DIR, _ONLY)
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
_NOT_RECORDED = ("cluster.", "hydra.")  # for Slurm, and for Hydra
# Their values are words for sbatch and no lists: n[1-4],n7 needs no quotes of Hydra's.
LITERAL_KEYS = (
    "partition",
    "account",
    "qos",
    "constraint",
    "pool",
    "exclude",
    "dependency",
    "licenses",
    "wckey",
    "comment",
)
FLAGS = {*_OWN_FLAGS, "--help", *MULTIRUN, *_HYDRA_FLAGS, *FLAGS_WITH_VALUE}


@dataclass(frozen=True)
class CommandLine:
    """A parsed command line."""

    overrides: tuple[str, ...]  # what is said of groups and keys
    hydra_flags: tuple[
        str, ...
    ] = ()  # flags with which Hydra shows a configuration and runs nothing, with their values
    config_dir: str | None = None  # folder of the user's own configuration
    dry_run: bool = False  # print the plan and start nothing
    assume_yes: bool = False  # spend node-hours without asking
    as_json: bool = False  # one JSON document on stdout, and all else on stderr
    only: tuple[str, ...] = ()  # cells, by the beginning of an id or hash; empty: all
    of_recipes: bool = False  # whether they are for recipes that none of the words names

    @property
    def config_dir_flags(self) -> tuple[str, ...]:
        """Return the flag for the folder of the user's own configuration, if there is one."""
        return ("--config-dir", self.config_dir) if self.config_dir else ()

    @property
    def notes(self) -> list[str]:
        """Return notes for the user: on repeated keys, recorded values of variables, and recipes of another size."""
        keys = [word.partition("=")[0] for word in self.overrides]
        repeated = dict.fromkeys(key for key in keys if keys.count(key) > 1 and not key.startswith("+"))
        variable_keys = [
            word.partition("=")[0] for word in self.overrides if _ENVIRONMENT_VALUE in word.replace("\\$", "")
        ]
        with_recipe = self.of_recipes or any(word.startswith("+paper=") for word in self.overrides)
        return [
            *(
                f"{word} changes the size of the recipe: its cells are not called the paper's"
                for word in (resizing_overrides(self.overrides) if with_recipe else ())
            ),
            *(f"{key} is given more than once; the last one counts" for key in repeated),
            *(
                f"{key}: what {_ENVIRONMENT_VALUE}…}} stands for is in work lists and records; put no secret there"
                for key in variable_keys
                if not key.lstrip("+").startswith(_NOT_RECORDED)
            ),
        ]


def resizing_overrides(overrides: Sequence[str]) -> list[str]:
    """Return the overrides that change the size of a recipe; none if one names a size itself."""
    is_size_given = any(override.startswith(SIZES) for override in overrides)
    return [] if is_size_given else [override for override in overrides if depends_on_size(override)]


def depends_on_size(override: str) -> bool:
    """Return whether an override sets a number that differs between the sizes of a recipe."""
    return override.lstrip("+").partition("=")[0] in _KEYS_OF_SIZE


def _quote_literal(override: str) -> str:
    """Return an override with its value quoted where sbatch reads the value and Hydra must not."""
    key, _, value = override.partition("=")
    node, _, name = key.partition(".")
    is_literal = node in ("cluster", "site") and name in LITERAL_KEYS
    return f"{key}='{value}'" if is_literal and value != "null" and _BARE.fullmatch(value) else override


def parse_command_line(argv: Sequence[str]) -> CommandLine:
    """Return the parsed arguments of a command line; raises UsageError.

    A grid needs no ``-m``: every call is a sweep with at least one point.
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
    """Return the name and the value of a flag; a value that is the first of `rest` is removed from there."""
    name, has_value, value = word.partition("=")
    if name in _IDLE_FLAGS:
        raise UsageError(f"{name} has no effect here", _IDLE_FLAGS[name])
    if name not in FLAGS:
        raise UsageError(f"unknown flag '{name}'", nearest_hint(name, FLAGS))
    if not has_value and (name in FLAGS_WITH_VALUE or (name in _INFO and rest[:1] and rest[0] in _INFO_VALUES)):
        value, has_value = (rest.pop(0), "=") if rest else ("", "")
    if name == _ONLY and (not value or value.startswith("-") or "=" in value):
        raise UsageError(f"{_ONLY} needs cells", f"{_ONLY} CELL[,CELL…]: the beginning of an id or hash")
    if name in FLAGS_WITH_VALUE and not value:
        raise UsageError(f"{name} needs a value", "see `python -m campaign --hydra-help`")
    return name, value if has_value else None


def strip_verb(words: Sequence[str]) -> list[str]:
    """Return the arguments of a recorded request without its verb and the options of the verb."""
    if words[:1] == ["measure"]:
        return [word for word in words[2:] if not word.startswith("--data=")]
    return [word for word in words if word != "reproduce"]


def command_to_continue(words: Sequence[str], cell: str = "") -> str:
    """Return the shell command that continues an earlier command, or one cell of that command."""
    overrides = [word for word in words if word not in _OWN_FLAGS and not word.startswith(_REDO)]
    if not cell:
        return shlex.join(["python", "-m", "campaign", *overrides])
    while places := [place for place, word in enumerate(overrides) if word.partition("=")[0] == _ONLY]:
        del overrides[places[0] : places[0] + (1 if "=" in overrides[places[0]] else 2)]
    return command_to_continue([*overrides, _ONLY, cell.rpartition("-")[2]])


def quote_for_hydra(text: str) -> str:
    """Return a text in quotes for Hydra's grammar: a quote gets a backslash, and backslashes before it are doubled."""
    return '"' + _BEFORE_QUOTE.sub(lambda found: found[1] * 2 + ('\\"' if found[2] else ""), text) + '"'


def quote_literally(text: str) -> str:
    """Return a text in quotes so that the configuration reads it literally, also an interpolation (``${``) in it."""
    return quote_for_hydra(_BEFORE_VALUE.sub(lambda found: rf"{found[1] * 2}\${{", text))


def refuse_hydra_keys(overrides: Iterable[str]) -> None:
    """Refuse overrides of Hydra's own keys; raises UsageError."""
    for override in overrides:
        if _FOR_HYDRA.search(override.partition("=")[0]):
            hint = "campaign_dir=… is where results go, --config-dir where your own configuration is"
            raise UsageError(f"'{override}' is for Hydra itself, which runs nothing here", hint)


def check_overrides(overrides: Iterable[str]) -> None:
    """Refuse overrides of Hydra's own keys, choices that are no plain text, and empty mappings; raises UsageError."""
    overrides = list(overrides)
    refuse_hydra_keys(overrides)
    for word in overrides:
        if not (parts := _OVERRIDE.fullmatch(word)):
            continue
        key, value = parts.groups()
        if key in GROUPS and _NO_CHOICE.match(value):
            raise UsageError(f"{key}={value} is no choice of a group", f"one word, or several: {key}=one,other")
        if re.fullmatch(r"\s*\{\s*\}\s*", value):
            raise UsageError(f"{word} changes nothing", f"name a key of it: {key}.…=…")


def _require_effect(overrides: Sequence[str]) -> None:
    """Refuse a key that is set and also added (``+key=``), which Hydra would silently accept."""
    keys: set[str] = set()
    for word in overrides:
        key = word.partition("=")[0].lstrip("+")
        if key in keys and word.startswith("+") and key != _REPEATABLE:
            raise UsageError(f"{key} is given twice", f"once, with its values: {key}=one,other")
        keys.add(key)
