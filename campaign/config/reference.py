"""Write the reference of all settings: the text of ``help``, and the page docs/reference/keys.md.

To write the page::

    python -m campaign.config.reference > docs/reference/keys.md
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

import msgspec

from campaign.config.tree import CHOICES, NODES
from campaign.testbed.spec import Testbed
from jobs.model.conduct import ConductKeys
from jobs.model.declared import MISSING, DeclaredSetting, Keys, declared_settings
from jobs.model.settings import Common

_DECLARED = re.compile(r"/declared/\w+/(\w+)@_here_")
_BASE = re.compile(r"defaults:\s*(?:\[|-) *(\w+)")
_SHOWN_BY_ITS_DEFAULT = ("text", "true or false", "list, as in one,other")  # types that the default value makes clear
_OF_TESTBED = "testbed up"
_INTRODUCTION = """\
A command line has words `KEY=VALUE` (`threads=4`, `checks.spread_max=0.1`) and `GROUP=CHOICE` (`storage=hdd`).
A choice has the keys of its section: `storage=hdd storage.root=/mnt/hdd`. Several values for one key or group
(`threads=1,2,4`) make a grid. The title of each section shows what to type, and what it means.

In the tables, `…` means that a key has no default, and "smoke" marks the default with `+size=smoke`. Type numbers
without commas. 1 MB is 10^6 bytes, 1 GB is 10^9 bytes, 1 MiB is 2^20 bytes.
"""


class Choice(NamedTuple):
    """A choice of a group: its name, its description, and the lines with the values that it sets."""

    name: str
    about: str
    values: str


class Section(NamedTuple):
    """A section of the reference: the settings of one node, and the choices of a group that have these settings."""

    key: str  # key of the node in the configuration; empty for the top-level keys
    kind: type[Keys]
    choices: tuple[Choice, ...] = ()
    verb: str = ""  # the verb that takes these settings; empty for a campaign

    @property
    def about(self) -> str:
        """Return the description of the section in one line."""
        return " ".join((self.kind.__doc__ or "").split()).removesuffix(".")

    @property
    def details(self) -> str:
        """Return the description without its first sentence, which the title contains; the result may be empty."""
        details = self.about.partition(". ")[2]
        return f"{details}." if details else ""

    @property
    def typed_form(self) -> str:
        """Return what a user types to choose from this section or, if it has no choices, to set a key."""
        names = ", ".join(choice.name for choice in self.choices)
        return f"{self.key}={names}" if names else f"{self.verb} {f'{self.key}.KEY=VALUE'.lstrip('.')}".lstrip()

    @property
    def rows(self) -> Iterator[tuple[str, DeclaredSetting]]:
        """Return the dotted keys and settings of the section, except ``name``, which is the name of the choice."""
        prefix = f"{self.key}." if self.key else ""
        rows = ((prefix + key, declaration) for key, declaration in _list_rows(self.kind) if key != "name")
        if not self.verb:
            return rows
        if not self.key:
            return ((key, declaration) for key, declaration in rows if "." not in key)
        defaults = msgspec.to_builtins(declared_settings(Testbed)[self.key].default)
        return ((key, replace(declaration, default=defaults[declaration.name])) for key, declaration in rows)

    @property
    def title(self) -> str:
        """Return the title of the section: what a user types, and the first sentence of the description."""
        first = self.about.partition(". ")[0]
        return f"`{self.typed_form}`: {first[0].lower()}{first[1:]}"


def _list_rows(kind: type[Keys], prefix: str = "") -> Iterator[tuple[str, DeclaredSetting]]:
    """Yield the keys and settings of a node and of all nodes below it.

    In a key, NAME stands for a name that the user chooses, such as the name of a storage.
    """
    for name, declaration in declared_settings(kind).items():
        if declaration.node is not declaration.type:
            yield prefix + name, declaration
        if declaration.node:
            yield from _list_rows(
                declaration.node,
                f"{prefix}{name}." if declaration.node is declaration.type else f"{prefix}{name}.NAME.",
            )


def list_sections() -> Iterator[Section]:
    """Yield all sections of the reference.

    There is a section for the top-level keys, for each node, and, in each group, for each set of choices with the same
    keys.
    """
    yield from (Section("", kind) for kind in (Common, ConductKeys))
    yield from (Section(name, kind) for name, kind in NODES.items())
    for group, kinds in CHOICES.items():
        choices = [*_list_choices(group)]
        for name, kind in kinds.items():
            yield Section(group, kind, tuple(choice for base, choice in choices if base == name))
    yield Section("", Testbed, verb=_OF_TESTBED)
    for name, declaration in declared_settings(Testbed).items():
        if declaration.node is not None:
            yield Section(name, declaration.node, verb=_OF_TESTBED)


def _list_choices(group: str) -> Iterator[tuple[str, Choice]]:
    """Yield the choices of a group in conf/, each with the name of its kind, that is, of its set of keys."""
    texts = {
        file.name.removesuffix(".yaml"): file.read_text(encoding="utf-8")
        for file in list_yaml_files(files("conf") / group)
    }
    for name, text in sorted(texts.items()):
        base = text
        while not (schema := _DECLARED.search(base)):
            base_choice = _BASE.search(base)
            base = texts[base_choice[1]] if base_choice else f"/declared/{group}/{group}@_here_"
        about, _, values = text.partition("defaults:")
        about = about.replace("\n#", "").strip("# \n")
        yield schema[1], Choice(name, about, _strip_defaults_list(values))


def _strip_defaults_list(text: str) -> str:
    """Remove the defaults list and the line ``name: …`` from the text of a choice; return the lines with its values."""
    body = re.sub(r"\A(?: \[[^\n]*\n|\n(?: +-[^\n]*\n)*)", "", text)
    return re.sub(r"^name: .*\n?", "", body, flags=re.MULTILINE).strip("\n")


def list_yaml_files(entry: Traversable) -> Iterator[Traversable]:
    """Yield the YAML files of a folder; yield nothing if `entry` is a file."""
    if entry.is_dir():
        yield from (file for file in entry.iterdir() if file.name.endswith(".yaml"))


def format_default(declaration: DeclaredSetting) -> str:
    """Return the default of a setting as a user types it, or an ellipsis if the setting has no default."""
    if declaration.default == MISSING:
        return "…"
    smoke = f" (smoke: {_format_value(declaration.setting.smoke)})" if declaration.setting.smoke is not None else ""
    return _format_value(declaration.default) + smoke


def _format_value(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value or '""' if isinstance(value, str) else json.dumps(value)


def format_section(section: Section) -> Iterator[str]:
    """Yield the lines of a section as ``help`` prints them on a terminal."""
    yield f"\n{section.title.replace('`', '')}"
    if section.details:
        yield f"  # {section.details}"
    for key, declaration in section.rows:
        choices_explained = bool(declaration.words) and all(
            word in declaration.setting.help for word in declaration.words
        )
        hidden = choices_explained or declaration.legal.removesuffix(", or null") in _SHOWN_BY_ITS_DEFAULT
        yield (
            f"  {key}={format_default(declaration)} ".ljust(21)
            + f"# {declaration.setting.help}"
            + f" ({declaration.legal})" * (not hidden)
        )
    for choice in section.choices:
        yield f"  {section.key}={choice.name}" + (f"  # {choice.about}" if choice.about else "")
        yield from (f"    {line}" for line in choice.values.splitlines() if "${" not in line)


def describe_key(word: str) -> Iterator[str]:
    """Yield the lines on one setting as ``help KEY`` prints them on a terminal.

    `word` is the dotted key of the setting, or the last part of the key.
    """
    for section in list_sections():
        for key, declaration in section.rows:
            if word in (key, key.rpartition(".")[2]):
                yield f"\n{key}".ljust(21) + f" {section.title.replace('`', '')}"
                yield from (f"  {name:9} {text}" for name, text in _describe_setting(declaration).items() if text)


def _describe_setting(declaration: DeclaredSetting) -> dict[str, str]:
    """Return the facts of a setting (type, range, unit, default) by their labels; a missing fact is an empty text."""
    type_text = f"one of {', '.join(declaration.words)}" if declaration.words else declaration.legal_type
    return {
        "meaning": declaration.setting.help,
        "type": type_text + ", or null" * declaration.nullable,
        "range": declaration.legal.removesuffix(", or null") if declaration.bounds else "",
        "unit": declaration.setting.unit,
        "default": format_default(declaration).replace("…", "none: you must set a value"),
        "cell": "" if declaration.setting.cell else "this setting does not change the id of the cell",
    }


def list_keys() -> set[str]:
    """Return the dotted keys of all settings."""
    return {key for section in list_sections() for key, _ in section.rows}


def format_markdown() -> Iterator[str]:
    """Yield the lines of the page docs/reference/keys.md."""
    yield "# Keys of the configuration\n"
    yield "<!-- Written by `python -m campaign.config.reference`, from the declarations of the settings. -->\n"
    yield _INTRODUCTION
    yield from (f"- [{section.title}](#{_heading_anchor(section.title)})" for section in list_sections())
    for section in list_sections():
        yield f"\n## {section.title}"
        if section.details:
            yield f"\n{section.details}"
        if section.choices:
            yield ""
            yield from (f"- `{section.key}={choice.name}`: {choice.about}" for choice in section.choices)
        if rows := [*section.rows]:
            yield "\n| key | default | legal | meaning |\n| --- | --- | --- | --- |"
            yield from (_format_table_row(key, declaration) for key, declaration in rows)


def _heading_anchor(title: str) -> str:
    """Return the anchor that GitHub makes from the title of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _format_table_row(key: str, declaration: DeclaredSetting) -> str:
    same_cell = "" if declaration.setting.cell else " Does not change the id of the cell."
    return (
        f"| `{key}` | `{format_default(declaration)}` | {declaration.legal} | {declaration.setting.help}.{same_cell} |"
    )


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in format_markdown())
