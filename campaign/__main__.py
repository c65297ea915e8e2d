"""`python -m campaign`: the first word is a verb, or else the words describe a grid."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Callable

from campaign.config.command_line import VERBS
from campaign.ending import ended

_VERBS_ELSEWHERE = {
    "compare": "campaign.cli.analyse:compare",
    "report": "campaign.cli.analyse:report",
    "tensorboard": "campaign.tensorboard.write_trials:main",
    "verdicts": "campaign.cli.analyse:verdicts",
    "watch": "campaign.cli.status:watched",
}
"""``module:function`` of the verbs that are not done by `main` of their own module in `campaign.cli`."""


def main(argv: list[str]) -> int:
    """Do what the command line asks and return the exit code (`jobs.model.codes.ExitCode`)."""
    if argv[:1] == ["--version"]:
        print(f"tfio-campaign {_version()}")
        return 0
    if argv[:1] == ["help"] and argv[1:] and argv[1] in VERBS.keys() - {"help"}:
        argv = [argv[1], "--help"]
    if argv and argv[0] in VERBS:
        module, _, function = _VERBS_ELSEWHERE.get(argv[0], f"campaign.cli.{argv[0]}:main").partition(":")
        return int(getattr(importlib.import_module(module), function)(argv[1:]))
    if {"-h", "--help"}.intersection(argv):
        from campaign.cli import help as usage  # noqa: PLC0415 - as fast as can be

        return usage.main([])
    from campaign.cli import run  # noqa: PLC0415 - Hydra is not on the way to the other verbs

    return run.main(argv)


def _version() -> str:
    try:
        return importlib.metadata.version("tfio-campaign")
    except importlib.metadata.PackageNotFoundError:
        return "(a checkout that is not installed)"


def entry() -> int:
    """Be `tfio-campaign`, which does what `python -m campaign` does wherever one stands."""
    os.environ["PYTHONSAFEPATH"] = "1"  # of the processes that this one starts
    return guarded(sys.argv[1:])


def guarded(argv: list[str], act: Callable[[list[str]], int] = main) -> int:
    """Run `main`, or what else the words are for, and return the exit code."""
    return ended(argv, act)


if __name__ == "__main__":
    sys.exit(guarded(sys.argv[1:]))
