"""Put what follows from the code into the pages of the docs, when mkdocs builds the site (`hooks` in mkdocs.yml).

A page of docs/reference has a part that begins with ``<!-- made: NAME -->`` and ends with ``<!-- end -->``. The lines
between are for those who read the page without the site; the site has what the function of this name yields.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stdout, suppress
from importlib import import_module
from typing import Any
from unittest import mock

import msgspec

from analysis.__main__ import VERBS
from analysis.claims import chien2018, nersc2018, tfdarshan2020
from analysis.output.csv_columns import page_lines
from analysis.page.evidence import PROVES
from campaign.config import reference
from campaign.verbs import TASKS
from jobs.model.__main__ import OF_VERDICTS
from jobs.model.record import Record


def commands() -> Iterator[str]:
    """Yield the help of each verb, as it prints it."""
    yield from _command("## ", "campaign")
    for task, verbs in TASKS.items():
        yield f"\n## {task.capitalize()}"
        for verb in verbs:
            if verb != "help":
                yield from _command("### ", "campaign", verb)
    yield "\n## Analysis, which needs no TensorFlow"
    yield from _command("### ", "analysis")
    for verb in sorted(VERBS):
        yield from _command("### ", "analysis", verb)


def _command(level: str, module: str, *verb: str) -> Iterator[str]:
    # The campaign's verb starts that of the analysis as a process, whose output cannot be taken here.
    asked = "analysis" if verb in (("compare",), ("verdicts",)) else module
    printed = io.StringIO()
    with mock.patch.dict(os.environ, {"COLUMNS": "110"}), redirect_stdout(printed), suppress(SystemExit):
        import_module(f"{asked}.__main__").main([*verb, "--help"])
    yield f"\n{level}python -m {' '.join((module, *verb))}\n\n```text\n{printed.getvalue().strip()}\n```"


def checks() -> Iterator[str]:
    """Yield what each check proves, and the limits."""
    yield "| check | holds when |\n| --- | --- |"
    yield from (f"| `{rule}` | {what} |" for rule, what in PROVES.items())
    yield "\n## Limits\n\n| key | default | meaning |\n| --- | --- | --- |"
    for section in reference.list_sections():
        for key, each in section.rows:
            if key.startswith("checks."):
                yield f"| `{key}` | `{reference.format_default(each)}` | {each.setting.help} |"


def claims(paper: Any) -> Iterator[str]:
    """Yield a paper's claims with their place, number and recipe."""
    yield f"{len(paper.CLAIMS)} claims.\n\n| claim | place | published | recipe |\n| --- | --- | --- | --- |"
    yield from (f"| {each.text} | {each.place} | {each.published} | `{each.recipe}` |" for each in paper.CLAIMS)


def record() -> Iterator[str]:
    """Yield the parts of a record with their keys, from the JSON Schema."""
    for name, part in msgspec.json.schema(Record)["$defs"].items():
        about = re.sub(r"\s+", " ", part.get("description", "")).replace("``", "`")
        yield f"\n## {name}\n\n{about}"
        if "enum" in part:
            yield "\nOne of " + ", ".join(f"`{word}`" for word in part["enum"]) + "."
            continue
        yield "\n| key | value |\n| --- | --- |"
        left_out = OF_VERDICTS if name in ("Record", "RecordedRun") else ()
        yield from (f"| `{key}` | {_kind(value)} |" for key, value in part["properties"].items() if key not in left_out)


def _kind(schema: Mapping[str, Any]) -> str:
    """Return the type of a value in words, with a link where it is a part of its own."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(map(_kind, schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    of = f" of {_kind(schema['items'])}" if isinstance(schema.get("items"), dict) and schema["items"] else ""
    return schema.get("type", "any") + of


def _below_title(lines: Iterable[str]) -> str:
    """Return the page that a command prints, without its title, which the page of the docs has."""
    return re.sub(r"\A# .*\n", "", "\n".join(lines))


MADE = {
    "commands": commands,
    "checks": checks,
    "chien2018": lambda: claims(chien2018),
    "tfdarshan2020": lambda: claims(tfdarshan2020),
    "nersc2018": lambda: claims(nersc2018),
    "record": record,
    "keys": lambda: [_below_title(reference.format_markdown())],
    "columns": lambda: [_below_title(page_lines())],
}
"""The parts by their names."""


def on_page_markdown(markdown: str, **_: object) -> str:
    """Fill the parts of a page; mkdocs calls this for each page."""
    part = re.compile(r"<!-- made: (\w+) -->\n.*?<!-- end -->", re.DOTALL)
    return part.sub(lambda found: "\n".join(MADE[found[1]]()), markdown)
