"""Run `help` and `--help`. The texts come from declarations and YAML files, because Hydra starts slowly."""

from __future__ import annotations

import importlib
import itertools
import os
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path

from campaign.config.command_line import CONFIG_DIR_VARIABLE
from campaign.errors import UsageError
from campaign.verbs import TASKS, VERBS
from jobs.model.codes import ExitCode
from jobs.parser import nearest_hint

_USAGE = """\
Measure how fast TensorFlow reads from a storage, and prove each number.
python -m campaign [KEY=VALUE[,VALUE...] ...]   measure a grid
python -m campaign VERB ...                     each verb has --help"""
_MEASURE = {
    "threads=1,2,4 storage=/mnt/a": "measures a grid; recorded cells are not repeated",
    "+paper=fig4 +size=smoke": "measures a figure in minutes (see help recipes)",
    "--dry-run | --yes | --only ID": "start nothing | ask nothing | only these cells",
    "--json | --version": "print JSON on stdout | print the version",
    "--config-dir | --hydra-help": "folder of your own settings | flags of Hydra",
}
_WIDTH = max(map(len, _MEASURE))
_TOPICS = ("recipes", "keys")
_ALL = "python -m campaign help keys lists all keys"


def main(argv: list[str]) -> int:
    """Print the overview of all verbs, or the help on a key, a group, ``recipes`` or ``keys``; return 0."""
    topics = [word for word in argv if word not in ("-h", "--help")]
    lines = itertools.chain.from_iterable(map(_help_on, topics)) if {*topics} - {"help"} else _overview()
    print("\n".join(_fold_lines(lines, shutil.get_terminal_size((120, 24)).columns)).strip("\n"))
    return 0


def _overview() -> Iterator[str]:
    """Yield the lines of ``--help``."""
    yield _USAGE
    for task, verbs in TASKS.items():
        yield f"{task[0].upper()}{task[1:]}"
        for word, does in {**(_MEASURE if task == "measure" else {}), **verbs}.items():
            yield f"  {word:{_WIDTH}} {does}"
    yield "Exit codes: " + ", ".join(f"{code} {code.meaning}" for code in ExitCode) + "."


def _help_on(word: str) -> Iterator[str]:
    """Yield the help on a key, group, verb or topic; raises UsageError if no help exists."""
    reference = importlib.import_module("campaign.config.reference")  # imported late: the overview needs no reference
    word = word.lstrip("+").partition("=")[0]
    own = _choices_of_groups()
    if word in ("recipes", "paper"):
        yield "Recipes (+paper=NAME[,NAME...]; +size=smoke, lab or paper):"
        yield from (f"  {name:16} # {about}" for name, about in sorted(own["paper"].items(), key=_number_key))
        return
    sections = [each for each in reference.list_sections() if word in ("keys", each.key, each.verb.partition(" ")[0])]
    lines = [*reference.describe_key(word)] if word != "keys" else []
    for section in sections if word else ():
        lines += reference.format_section(section)
    choices = own.get(word, {}).items() - {(choice.name, choice.about) for each in sections for choice in each.choices}
    lines += [f"  {word}={name}  # {about}" for name, about in sorted(choices) if name]
    if not lines:
        topics = {*reference.list_keys(), *own, *VERBS, *_TOPICS}
        raise UsageError(f"no help on '{word}'", nearest_hint(word, topics, otherwise=_ALL) if word else _ALL)
    yield from lines


def _number_key(recipe: tuple[str, str]) -> list[object]:
    """Return a sort key that orders recipe names by their numbers, so that fig10 follows fig9."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", recipe[0])]


def _choices_of_groups() -> dict[str, dict[str, str]]:
    """Return the choices of each group with their descriptions, including choices in the user's configuration folder.

    The first comment line of a YAML file is the description of its choice.
    """
    own = os.environ.get(CONFIG_DIR_VARIABLE)
    groups: dict[str, dict[str, str]] = {}
    for root in (files("conf"), *([Path(own)] if own and Path(own).is_dir() else [])):
        for folder in (each for each in root.iterdir() if each.is_dir()):
            for file in folder.iterdir():
                if file.name.endswith(".yaml"):
                    lines = file.read_text(encoding="utf-8").splitlines()
                    comments = [line[1:].strip() for line in itertools.takewhile(lambda line: line[:1] == "#", lines)]
                    about = [comment for comment in comments if comment and not comment.startswith("@")]
                    groups.setdefault(folder.name, {})[file.name.removesuffix(".yaml")] = about[0] if about else ""
    return groups


def _fold_lines(texts: Iterable[str], width: int) -> Iterator[str]:
    """Yield the lines of texts, and fold every line that is wider than `width`.

    The folded part starts below the comment of the line, or below its second word.
    """
    for line in itertools.chain.from_iterable(text.split("\n") for text in texts):
        below = re.match(r"[^#]*# |  \w+ +|\s*", line)
        indent = re.sub("[^#]", " ", below[0]) if below else ""
        if not indent or len(indent) > width // 2:
            indent = "    # " if "#" in line else "    "
        yield from textwrap.wrap(
            line, max(width, 40), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        ) or [""]
