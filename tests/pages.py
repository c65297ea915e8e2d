"""Write the pages of docs/reference that follow from the code: commands, checks, claims, exit codes, the record.

    python -m tests.pages

The pages of keys and columns have writers of their own (CONTRIBUTING.md). The help of a command is worded by argparse,
which differs from one version of Python to the next: that page is of Python 3.11.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from analysis.__main__ import VERBS
from analysis.claims import chien2018, nersc2018, tfdarshan2020
from analysis.page.evidence import PROVES
from campaign.config import reference
from campaign.verbs import TASKS
from jobs.model.__main__ import OF_VERDICTS
from jobs.model.codes import ExitCode
from jobs.model.record import Record

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "reference"
ALSO = {
    ExitCode.DONE: "with `detach=true`: submitted",
    ExitCode.NOT_DONE: "also: a cell is not done; `compare` or `verdicts` found a difference; you refused the cost",
    ExitCode.USAGE: "also: the cost is above `site.ask_above_node_hours`, and there is no terminal for the question;"
    " `compare` has nothing to compare",
    ExitCode.ENVIRONMENT: "also: a check of `doctor` FAILED",
    ExitCode.SCHEDULER: "no job, or not every job, was submitted or cancelled",
    ExitCode.INTERRUPTED: "on Slurm, the front process has ended, and the jobs continue",
    ExitCode.READER_ENDED: "as in `… | head -1`; all files are written; `python -m analysis` and `python -m jobs` also"
    " use this code",
}
"""What the exit code means beyond its `meaning`."""
WORDS = """\
## Words and flags

- `KEY=VALUE` sets what is measured and how, and is stored in the record; `python -m campaign help KEY` explains a key.
- A flag, such as `--json`, sets what one call prints, asks, writes or omits.
- If a verb computes the value of a key itself, the verb has a flag: `stall` and `feed` have `--runs N`, and refuse
  `runs=N`. `python -m jobs` has flags in place of keys: `--batch-size 8`.
- A flag may be anywhere in the command, also before the verb. After `--`, nothing is a flag. Flags cannot be shortened.
- The folder of a campaign needs no flag: `status results` or `status campaign_dir=results`. The default is `results`.
- A flag has the same meaning in all verbs:

| flag | meaning |
| --- | --- |
| `--json` | prints one JSON document on stdout; all other output, errors included, is on stderr |
| `--dry-run` | prints the plan, and starts nothing |
| `--yes` | asks no question; `CAMPAIGN_YES=1` does the same for questions about time and node-hours |
| `--only CELL` | only the cells whose id or hash begins with CELL |
| `--data PATH` | your own data |
| `--out DIR` | writes the files into DIR instead of the campaign folder |
| `--config-dir DIR` | the folder of your own sites and recipes; `CAMPAIGN_CONFIG_DIR` does the same |
| `--version` | prints the version (`python -m campaign` and `python -m analysis`) |
| `--help` | prints the help of the verb |

## Completion

`eval "$(tfio-campaign -sc install=bash)"` in `~/.bashrc`, or `install=zsh` in `~/.zshrc`, completes verbs, flags, keys
and choices of `tfio-campaign` and `python -m campaign`. `-sc uninstall=bash` removes the completion."""
"""How words and flags are told from each other: the rule that `tests/campaign/cli/test_words_and_flags.py` holds."""


def commands() -> Iterator[str]:
    """Yield the lines of commands.md: the help of each verb, as it prints it."""
    yield "# Commands\n"
    yield "This page has the output of `--help` for every command."
    yield f"\n{WORDS}"
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


def _command(level: str, *words: str) -> Iterator[str]:
    module, *verb = words
    if verb in (["compare"], ["verdicts"]):
        module = "analysis"  # the campaign's verb starts it as a process, whose output cannot be taken here
    printed = io.StringIO()
    with mock.patch.dict(os.environ, {"COLUMNS": "110"}), redirect_stdout(printed), suppress(SystemExit):
        import_module(f"{module}.__main__").main([*verb, "--help"])
    yield f"\n{level}python -m {' '.join(words)}\n\n```text\n{printed.getvalue().strip()}\n```"


def checks() -> Iterator[str]:
    """Yield the lines of checks.md: what each check proves, and the limits."""
    yield "# Checks\n"
    yield "This page lists what each check proves, and its limit. The result of a check is *holds*, *fails* or"
    yield "*unverifiable*. A run is invalid if a check fails. [How a run is measured](measuring.md) explains the"
    yield "checks. [What the proofs see](../proofs.md) tests the checks.\n"
    yield "| check | holds when |\n| --- | --- |"
    yield from (f"| `{rule}` | {what} |" for rule, what in PROVES.items())
    yield "\n## Limits\n\n| key | default | meaning |\n| --- | --- | --- |"
    for section in reference.list_sections():
        for key, each in section.rows:
            if key.startswith("checks."):
                yield f"| `{key}` | `{reference.format_default(each)}` | {each.setting.help} |"


def claims() -> Iterator[str]:
    """Yield the lines of claims.md: each paper's claims with their place, number and recipe."""
    yield "# Claims\n"
    yield "This page lists the statements of the papers that are tested, each with the recipe that measures it."
    yield "`python -m campaign RECIPE site=mysite` runs a recipe, `python -m campaign verdicts` judges all claims."
    for paper in (chien2018, tfdarshan2020, nersc2018):
        yield f"\n## {paper.PAPER}\n\n{len(paper.CLAIMS)} claims.\n"
        yield "| claim | place | published | recipe |\n| --- | --- | --- | --- |"
        for claim in paper.CLAIMS:
            yield f"| {claim.text} | {claim.place} | {claim.published} | `{claim.recipe}` |"


def exit_codes() -> Iterator[str]:
    """Yield the lines of exit-codes.md."""
    yield "# Exit codes\n"
    yield "This page lists the exit codes for scripts. Data goes to stdout, messages go to stderr.\n"
    yield "| code | meaning | note |\n| --- | --- | --- |"
    yield from (f"| {code:d} | {code.meaning} | {ALSO[code]} |" for code in ExitCode)


def record() -> Iterator[str]:
    """Yield the lines of record.md: the parts of a record with their keys, from the JSON Schema."""
    yield "# record.json\n"
    yield "This page lists the content of `record.json`, the record of a cell. A record has raw metrics and no"
    yield "verdicts; verdicts are computed when a record is read. There is also a [JSON Schema](record.schema.json)."
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


PAGES = {
    "commands.md": commands,
    "checks.md": checks,
    "claims.md": claims,
    "exit-codes.md": exit_codes,
    "record.md": record,
}
"""The pages with their writers."""


if __name__ == "__main__":
    for file_name, lines in PAGES.items():
        (FOLDER / file_name).write_text("\n".join(lines()) + "\n", encoding="utf-8")
