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
    ExitCode.NOT_DONE: "or is not done; of verbs that compare: something differs, is slower or failed; or you answered"
    " no to the cost",
    ExitCode.USAGE: "a cost above `site.ask_above_node_hours`, and no terminal to ask on; of `compare`: nothing can be"
    " compared",
    ExitCode.ENVIRONMENT: "`doctor`: something FAILED",
    ExitCode.SCHEDULER: "nothing, or not all, was submitted or cancelled",
    ExitCode.INTERRUPTED: "on Slurm: detached, and the jobs go on",
    ExitCode.READER_ENDED: "`… | head -1`; of `python -m analysis` and `python -m jobs`, too; files are written",
}
"""What the exit code means beyond its `meaning`."""
WORDS = """\
## Words and flags

- `KEY=VALUE` is what is measured and how, and is recorded; `python -m campaign help KEY` explains it. A flag (`--json`)
  is what one call prints, asks, writes or leaves out. A number that a verb itself sets is a flag of that verb: `stall`
  and `feed` have `--runs N`, and refuse `runs=N`. `python -m jobs` has no campaign: there a key is a flag,
  `--batch-size 8`.
- A flag may stand anywhere, also before the verb; behind `--` nothing is a flag. Flags are not shortened.
- The folder of a campaign is a word without a flag: `status results`, or `status campaign_dir=results`; the default is
  `results`.
- The same flag is the same in all verbs:

| flag | meaning |
| --- | --- |
| `--json` | one JSON document on stdout; all else, errors too, is on stderr |
| `--dry-run` | says what would be done, and starts nothing |
| `--yes` | asks nothing; for what costs time or node-hours also `CAMPAIGN_YES=1` |
| `--only CELL` | these cells alone, by the beginning of an id or hash |
| `--data PATH` | your own data |
| `--out DIR` | where files are written, in place of the campaign's folder |
| `--config-dir DIR` | your own sites and recipes, also `CAMPAIGN_CONFIG_DIR` |
| `--version`, `--help` | of `python -m campaign` and `python -m analysis`: the version; of every verb: its help |

## Completion

`eval "$(tfio-campaign -sc install=bash)"` in `~/.bashrc`, or `install=zsh` in `~/.zshrc`, completes verbs, flags, keys
and choices, of `tfio-campaign` and of `python -m campaign`. `-sc uninstall=bash` takes it away."""
"""How words and flags are told from each other: the rule that `tests/campaign/cli/test_words_and_flags.py` holds."""


def commands() -> Iterator[str]:
    """Yield the lines of commands.md: the help of each verb, as it prints it."""
    yield "# Commands\n"
    yield "Look up here what a command takes. Each text is what `--help` prints."
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
    yield "Look up here what a check proves, and by which limit. A check holds, fails or is *unverifiable*; a run whose"
    yield "check fails is invalid. [How it is measured](measuring.md) explains them,"
    yield "[what the proofs see](../proofs.md) tests them.\n"
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
    yield "Look up here which statements of the papers are tested, and what measures each of them."
    yield "`python -m campaign RECIPE site=mysite` measures one, `python -m campaign verdicts` judges all."
    for paper in (chien2018, tfdarshan2020, nersc2018):
        yield f"\n## {paper.PAPER}\n\n{len(paper.CLAIMS)} claims.\n"
        yield "| claim | place | published | recipe |\n| --- | --- | --- | --- |"
        for claim in paper.CLAIMS:
            yield f"| {claim.text} | {claim.place} | {claim.published} | `{claim.recipe}` |"


def exit_codes() -> Iterator[str]:
    """Yield the lines of exit-codes.md."""
    yield "# Exit codes\n"
    yield "Look up here what a script can learn from the exit code. Data goes to stdout, messages go to stderr.\n"
    yield "| code | means | also |\n| --- | --- | --- |"
    yield from (f"| {code:d} | {code.meaning} | {ALSO[code]} |" for code in ExitCode)


def record() -> Iterator[str]:
    """Yield the lines of record.md: the parts of a record with their keys, from the JSON Schema."""
    yield "# record.json\n"
    yield "Look up here what stands in the record of a cell. A record has raw metrics and no verdict; whoever reads it"
    yield "judges it. The same as a [JSON Schema](record.schema.json)."
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
