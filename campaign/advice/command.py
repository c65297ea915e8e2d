"""The command that measures a cell with other settings: the words of its own, as few of them changed as can be."""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from campaign.cells.cell import flat, make_cell
from campaign.cells.contract import Record
from campaign.config import command_line

_OTHER_BENCHMARK = "benchmark.name"  # where it changes, the words of the cell's own mean nothing
_OF_IMAGES = ("benchmark", "accelerator", "checkpoint", "profile", "staging")
_RECIPES = ("reproduce", "+paper", "paper", "+size", "size")
_SPELT = ("dataset", "storage")  # what a recipe chooses, and a baseline needs
_SEVERAL = re.compile(r".*,.*|(range|choice|glob|sort|shuffle|interval)\(.*", re.DOTALL)
_PLAIN = re.compile(r"[\w./:@%+-]*", re.ASCII)  # what Hydra reads without quotes
_BEFORE_QUOTE = re.compile(r'(\\*)("|\Z)')


def cell_with(recorded: Record, changes: Mapping[str, Any]) -> str:
    """Return the id of the cell that differs in these settings, by dotted keys."""
    point: Any = copy.deepcopy(recorded["cell"]["settings"])
    for key, value in changes.items():
        node, (*path, last) = point, key.split(".")
        for part in path:
            node = node.setdefault(part, {})
        node[last] = value
    return make_cell(point).id


def words(recorded: Record, changes: Mapping[str, Any], folder: Path) -> list[str]:
    """Return the words that measure the cell with these settings in a campaign folder.

    A key that the cell's campaign swept has the cell's own value; where a grid may remain, ``--only`` names the cell.
    """
    settings = dict(flat(recorded["cell"]["settings"]))
    own = _own(recorded["campaign"].get("words", ()))
    of_recipe = any(_key(word) in _RECIPES for word in own)
    if _OTHER_BENCHMARK in changes:
        own = _without(own, *_OF_IMAGES, *_RECIPES, *(_SPELT if of_recipe else ()))
        own += [_word(key, value) for key, value in settings.items() if of_recipe and _group(key) in _SPELT]
    replaced = [*changes, *({"storage"} & {_group(key) for key in changes})]
    own = [_narrowed(word, settings) for word in _without(own, *replaced)]
    own += [_word(key, value) for key, value in changes.items() if value is not None]  # as it is without a word
    is_grid = of_recipe or any(_is_swept(word) for word in own)
    own += [] if folder == Path("results").resolve() else [_word("campaign_dir", str(folder))]
    if _OTHER_BENCHMARK not in changes and is_grid:
        own += ["--only", cell_with(recorded, changes).rpartition("-")[2]]
    return own


def in_words(found: Sequence[str]) -> str:
    """Return the command for a shell."""
    return shlex.join(["python", "-m", "campaign", *found])


def _own(recorded: Sequence[str]) -> list[str]:
    """Return the words of a campaign without those that say what of it is to be done, and where."""
    split = command_line.split([word for word in recorded if word != "reproduce"])
    verb = ["reproduce"] if "reproduce" in recorded else []
    return [*verb, *(flag for flag in split.flags if flag != "-m"), *_without(split.overrides, "redo", "campaign_dir")]


def _key(word: str) -> str:
    return word.partition("=")[0]


def _group(key: str) -> str:
    return key.partition(".")[0]


def _without(found: Sequence[str], *keys: str) -> list[str]:
    """Leave out the words that set these keys, or a key below them; ``benchmark.name`` is also the group."""
    gone = {key.removesuffix(".name") if key == _OTHER_BENCHMARK else key for key in keys}
    return [word for word in found if not any(f"{_key(word)}.".startswith(f"{key}.") for key in gone)]


def _narrowed(word: str, settings: Mapping[str, Any]) -> str:
    """Return a word with the cell's own value, where it has several."""
    key = _key(word)
    value = settings.get(key, settings.get(f"{key}.name"))
    if not _is_swept(word) or value is None or str(value) not in word.partition("=")[2].split(","):
        return word
    return _word(key, value)


def _is_swept(word: str) -> bool:
    return "=" in word and _SEVERAL.fullmatch(word.partition("=")[2]) is not None


def _word(key: str, value: Any) -> str:
    """Return a word of Hydra's; several values are a grid."""
    if isinstance(value, tuple):
        return f"{key}={','.join(map(str, value))}"
    plain = {"None": "null", "True": "true", "False": "false"}.get(str(value), value)
    quoted = _quoted(plain) if isinstance(plain, str) and not _PLAIN.fullmatch(plain) else plain
    return f"{'benchmark' if key == _OTHER_BENCHMARK else key}={quoted}"


def _quoted(text: str) -> str:
    """Return a text as Hydra takes it for itself: a quote gets a backslash, and those before it are doubled."""
    return '"' + _BEFORE_QUOTE.sub(lambda found: found[1] * 2 + ('\\"' if found[2] else ""), text) + '"'
