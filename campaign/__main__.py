"""Run the verb of a `python -m campaign` command line, or the campaign that a command line without verb describes."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Callable

from campaign.config.command_line import FLAGS_WITH_VALUE
from campaign.errors import run_to_exit_code
from campaign.verbs import VERBS
from jobs.parser import put_verb_first

_VERBS_ELSEWHERE = {
    "compare": "campaign.cli.analyse:compare_campaigns",
    "report": "campaign.cli.analyse:make_report",
    "verdicts": "campaign.cli.analyse:judge_claims",
}
"""``module:function`` of each verb that has no module of its own in `campaign.cli` with a function `main`."""
_EXPLAINED_BY_HELP = {"help", "testbed"}
"""The verbs for which `help VERB` is not the text of `VERB --help`; `help testbed` lists the keys of `testbed up`."""


def main(argv: list[str]) -> int:
    """Run the verb or the campaign of a command line; return the exit code (`jobs.model.codes.ExitCode`)."""
    argv = put_verb_first(argv, VERBS, FLAGS_WITH_VALUE)
    if argv[:1] == ["--version"]:
        print(f"tfio-campaign {_version()}")
        return 0
    if argv[:1] == ["help"] and argv[1:] and argv[1] in VERBS.keys() - _EXPLAINED_BY_HELP:
        argv = [*argv[1:], "--help"]
    if argv and argv[0] in VERBS:
        module, _, function = _VERBS_ELSEWHERE.get(argv[0], f"campaign.cli.{argv[0]}:main").partition(":")
        return int(getattr(importlib.import_module(module), function)(argv[1:]))
    if argv[:1] in (["-sc"], ["--shell-completion"]):
        from campaign.cli import completion  # noqa: PLC0415 - needed only for shell completion

        return completion.main(argv[1:])
    if {"-h", "--help"}.intersection(argv):
        from campaign.cli import help as usage  # noqa: PLC0415 - needed only for --help

        return usage.main([])
    from campaign.cli import run  # noqa: PLC0415 - imports Hydra, which most verbs do not need

    return run.main(argv)


def _version() -> str:
    try:
        return importlib.metadata.version("tfio-campaign")
    except importlib.metadata.PackageNotFoundError:
        return "(a checkout that is not installed)"


def entry() -> int:
    """Run the console script `tfio-campaign`, which does the same as `python -m campaign`; return the exit code."""
    os.environ["PYTHONSAFEPATH"] = "1"  # for the child processes of this process
    return run_guarded(sys.argv[1:])


def run_guarded(argv: list[str], act: Callable[[list[str]], int] = main) -> int:
    """Run `act` with the arguments, print its errors with their cures, and return the exit code."""
    return run_to_exit_code(argv, act)


if __name__ == "__main__":
    sys.exit(run_guarded(sys.argv[1:]))
