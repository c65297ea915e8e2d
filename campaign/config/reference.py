"""The settings for people: the body of ``--help``, and docs/reference/keys.md, which this writes.

::

    python -m campaign.config.reference > docs/reference/keys.md
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

from campaign.config.tree import CHOICES, NODES
from jobs.model.conduct import Running
from jobs.model.declared import MISSING, Declared, Keys, declared
from jobs.model.settings import Common

_SCHEMA = re.compile(r"/schema/\w+/(\w+)@_here_")
_BASE = re.compile(r"defaults:\s*(?:\[|-) *(\w+)")
_SAYS_ENOUGH = (
    "text",
    "true or false",
    "list, as in [one,other]",
    "mapping, as in {key: value}",
)  # of a legal value, without a word of ours


class Choice(NamedTuple):
    """A choice of a group: its name, what it is, and the lines of its values."""

    name: str
    about: str
    values: str


class Section(NamedTuple):
    """The settings of one node, and the choices that have them."""

    key: str  # of the node; empty for the keys at the top
    about: str
    kind: type[Keys]
    choices: tuple[Choice, ...] = ()

    @property
    def rows(self) -> Iterator[Declared]:
        """The settings; a name is what the choices are told by."""
        return (each for name, each in declared(self.kind).items() if name != "name")


def sections() -> Iterator[Section]:
    """Yield all settings: those at the top, those of the nodes, those of the groups by kind."""
    at_the_top: tuple[type[Keys], ...] = (Common, Running)
    yield from (Section("", _first(kind), kind) for kind in at_the_top)
    yield from (Section(name, _first(kind), kind) for name, kind in NODES.items())
    for group, kinds in CHOICES.items():
        chosen = [*_choices(group)]
        for name, kind in kinds.items():
            those = tuple(choice for schema, choice in chosen if schema == name)
            yield Section(group, _first(kind), kind, those)


def _first(kind: type[Keys]) -> str:
    return " ".join((kind.__doc__ or "").split())


def _choices(group: str) -> Iterator[tuple[str, Choice]]:
    """Yield the choices of a group that come with this project, each with the name of its kind."""
    texts = {
        file.name.removesuffix(".yaml"): file.read_text(encoding="utf-8") for file in yaml_files(files("conf") / group)
    }
    for name, text in sorted(texts.items()):
        base = text
        while not (schema := _SCHEMA.search(base)):
            above = _BASE.search(base)
            base = texts[above[1]] if above else f"/schema/{group}/{group}@_here_"
        about, _, values = text.partition("defaults:")
        about = about.replace("\n#", "").strip("# \n")
        yield schema[1], Choice(name, about, _values(values))


def _values(text: str) -> str:
    """Return the lines below a defaults list, but for the name."""
    body = re.sub(r"\A(?: \[[^\n]*\n|\n(?: +-[^\n]*\n)*)", "", text)
    return re.sub(r"^name: .*\n?", "", body, flags=re.MULTILINE).strip("\n")


def yaml_files(entry: Traversable) -> Iterator[Traversable]:
    """Yield the YAML files of a folder; none of what is no folder."""
    if entry.is_dir():
        yield from (file for file in entry.iterdir() if file.name.endswith(".yaml"))


def default_of(each: Declared) -> str:
    """Return a default as it is typed; an ellipsis for a setting that the choice or the user must give."""
    if each.node is each.type:
        return "a storage"
    if each.default == MISSING:
        return "…"
    smoke = f" (smoke: {_typed(each.setting.smoke)})" if each.setting.smoke is not None else ""
    return _typed(each.default) + smoke


def _typed(value: Any) -> str:
    return value or '""' if isinstance(value, str) else json.dumps(value)


def as_text() -> Iterator[str]:
    """Yield the sections for a terminal."""
    for key, about, kind, choices in sections():
        section = Section(key, about, kind, choices)
        rows = [*section.rows]
        yield (
            f"\nKeys{_title(section)}:\n  # {about}"
            if rows
            else f"\n{', '.join(f'{key}={each.name}' for each in choices)}:"
        )
        for each in rows:
            legal = "" if each.legal.removesuffix(", or null") in _SAYS_ENOUGH else each.legal
            said = all(word in each.setting.help for word in each.words) and bool(each.words)
            beside = ", ".join(filter(None, (each.setting.unit, "" if said else legal)))
            text = f"{each.setting.help} ({beside})" if beside else each.setting.help
            yield f"  {each.name}: {default_of(each)} ".ljust(21) + (f"# {text}" if text else "")
        for choice in choices:
            yield f"  {key}={choice.name}  # {choice.about}"
            yield from (f"    {line}" for line in choice.values.splitlines())


def _title(section: Section) -> str:
    names = f"={', '.join(choice.name for choice in section.choices)}" if section.choices else ""
    return f" of {section.key}{names} ({section.key}.KEY=VALUE)" if section.key else ""


def as_markdown() -> Iterator[str]:
    """Yield the lines of docs/reference/keys.md."""
    yield "# Keys of the configuration\n"
    yield "<!-- Written by `python -m campaign.config.reference`, from the declarations of the settings. -->\n"
    yield "Several values for one key (`threads=1,2,4`) make a grid. A default may be another one with `+size=smoke`."
    for section in sections():
        rows = [*section.rows]
        names = ", ".join(f"`{section.key}={each.name}`" for each in section.choices)
        yield f"\n## {names or section.key or section.kind.__name__}\n"
        yield section.about
        if section.choices:
            yield ""
            yield from (f"- `{section.key}={choice.name}`: {choice.about}" for choice in section.choices)
        if rows:
            yield "\n| key | default | legal | meaning |\n| --- | --- | --- | --- |"
        for each in rows:
            key = f"{section.key}.{each.name}" if section.key else each.name
            unit = f" ({each.setting.unit})" if each.setting.unit else ""
            outside = "" if each.setting.cell or not section.key else " No part of what a cell is."
            meaning = f"{each.setting.help}{unit}".replace("|", "\\|")
            legal = each.legal.replace("|", "\\|")
            yield f"| `{key}` | `{default_of(each)}` | {legal} | {meaning}.{outside} |"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in as_markdown())
