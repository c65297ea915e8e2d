"""Parse the command lines of this project's programs, and calculate the exit code of a program.

If a word of the command line is wrong, the parser says what the user can do. A flag changes what one call prints, asks,
writes or leaves out. ``KEY=VALUE`` sets what is measured, and how.
"""

from __future__ import annotations

import argparse
import difflib
import io
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NoReturn

from jobs.model.codes import ExitCode
from jobs.terminal import complain, open_streams

END_OF_FLAGS = "--"
_LINE_OF_FLAGS = re.compile(r"^ +(-.*?)(?:  |$)", re.MULTILINE)


class ProgramParser(argparse.ArgumentParser):
    """An argument parser whose errors are a sentence and a hint; abbreviated flags are not accepted.

    With ``open_ended=True``, `parse_known_args` returns unknown flags, so that another parser can read these flags.
    """

    def __init__(self, *words: Any, open_ended: bool = False, **options: Any) -> None:
        as_folded = argparse.RawDescriptionHelpFormatter
        super().__init__(*words, **{"allow_abbrev": False, "formatter_class": as_folded, **options})
        if "formatter_class" not in options:
            self.description, self.epilog = _fold(self.description), _fold(self.epilog)
        self._open_ended = open_ended

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return the options, and all words that are not options; exit with an error for an unknown flag."""
        options, rest = super().parse_known_args(args, namespace)
        before = rest[: rest.index(END_OF_FLAGS)] if END_OF_FLAGS in rest else rest
        unknown = [word for word in before if word.startswith("-") and word != "-"]
        if unknown and not self._open_ended:
            flag = unknown[0].partition("=")[0]
            self.refuse(f"unknown flag '{flag}'", nearest_hint(flag, self.flags))
        return options, rest

    @property
    def flags(self) -> list[str]:
        """Return all flags of this parser, as listed in the help text."""
        return re.findall(r"(?<![\w-])--?\w[\w-]*", " ".join(_LINE_OF_FLAGS.findall(self.format_help())))

    def error(self, message: str) -> NoReturn:
        """Print an error message of argparse with a hint to the help text, and exit with code 2."""
        self.refuse(message, f"{self.prog} --help")

    def refuse(self, message: str, hint: str) -> NoReturn:
        """Print what is wrong and what the user can do, and exit with code 2."""
        complain(message, hint)
        sys.exit(ExitCode.USAGE)


def _fold(text: str | None) -> str | None:
    """Return a text with its paragraphs wrapped to the width of the terminal; tables are not wrapped."""
    width = shutil.get_terminal_size().columns - 2  # the width to which argparse wraps the help of flags
    return text and "\n\n".join(
        each if "  " in each else textwrap.fill(" ".join(each.split()), width, break_on_hyphens=False)
        for each in text.strip().split("\n\n")
    )


def nearest_hint(word: str, legal: Iterable[str], prefix: str = "", otherwise: str = "") -> str:
    """Return a hint that suggests the legal word that is most similar to `word`.

    If no legal word is similar, the hint is `otherwise` or, if `otherwise` is empty, the list of all legal words. In
    the hint, `prefix` precedes every legal word.
    """
    words = sorted(legal)
    close = difflib.get_close_matches(word, words, n=1)
    if close:
        return f"did you mean '{prefix}{close[0]}'?"
    return otherwise or f"legal here: {', '.join(prefix + word for word in words)}"


def put_verb_first(argv: Sequence[str], verbs: Collection[str], with_value: Collection[str]) -> list[str]:
    """Return the arguments with the verb moved before its flags: ``--json status`` becomes ``status --json``.

    The verb is the first word that is neither a flag nor the value of a flag. `with_value` lists the flags that have a
    value.
    """
    place = 0
    while place < len(argv) and argv[place].startswith("-"):
        place += 2 if argv[place] in with_value else 1
    verb = argv[place : place + 1]
    return [*verb, *argv[:place], *argv[place + 1 :]] if verb and verb[0] in verbs else [*argv]


def exit_code_of(program: Callable[[], int | None]) -> int:
    """Run a program and return its exit code, or 141 if the process that reads the output has ended.

    Before the program starts, closed standard streams are opened, and the output is set up so that file names that are
    not valid text can be printed.
    """
    open_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            code = program() or 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has ended; https://docs.python.org/3/library/signal.html#note-on-sigpipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.READER_ENDED
    return code
