"""The command line of a program of ours: a parser that names the cure of a wrong word, and the program's exit code.

A flag changes what one call prints, asks, writes or leaves out; ``KEY=VALUE`` sets what is measured, and how.
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
    """A parser whose errors are a sentence and a cure; it accepts no abbreviated flags.

    With ``open_ended=True``, `parse_known_args` returns flags that it does not know, for another parser.
    """

    def __init__(self, *words: Any, open_ended: bool = False, **options: Any) -> None:
        as_folded = argparse.RawDescriptionHelpFormatter
        super().__init__(*words, **{"allow_abbrev": False, "formatter_class": as_folded, **options})
        if "formatter_class" not in options:
            self.description, self.epilog = _fold(self.description), _fold(self.epilog)
        self._open_ended = open_ended

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return the options and the words that are none; refuse a flag that is not known."""
        options, rest = super().parse_known_args(args, namespace)
        before = rest[: rest.index(END_OF_FLAGS)] if END_OF_FLAGS in rest else rest
        unknown = [word for word in before if word.startswith("-") and word != "-"]
        if unknown and not self._open_ended:
            flag = unknown[0].partition("=")[0]
            self.refuse(f"unknown flag '{flag}'", nearest_hint(flag, self.flags))
        return options, rest

    @property
    def flags(self) -> list[str]:
        """Return the flags that this parser knows, one per line of its help."""
        return re.findall(r"(?<![\w-])--?\w[\w-]*", " ".join(_LINE_OF_FLAGS.findall(self.format_help())))

    def error(self, message: str) -> NoReturn:
        """Refuse the words as argparse's message says; the cure is the help."""
        self.refuse(message, f"{self.prog} --help")

    def refuse(self, message: str, hint: str) -> NoReturn:
        """Print what is wrong and its cure, and exit with 2."""
        complain(message, hint)
        sys.exit(ExitCode.USAGE)


def _fold(text: str | None) -> str | None:
    """Return a text whose paragraphs are folded to the terminal; those with columns stay as they are."""
    width = shutil.get_terminal_size().columns - 2  # as argparse folds the help of flags
    return text and "\n\n".join(
        each if "  " in each else textwrap.fill(" ".join(each.split()), width, break_on_hyphens=False)
        for each in text.strip().split("\n\n")
    )


def nearest_hint(word: str, legal: Iterable[str], prefix: str = "", otherwise: str = "") -> str:
    """Return a hint with the legal word nearest to `word`; `prefix` stands before each legal word.

    If none is near, the hint is `otherwise`, or the list of all legal words.
    """
    words = sorted(legal)
    close = difflib.get_close_matches(word, words, n=1)
    if close:
        return f"did you mean '{prefix}{close[0]}'?"
    return otherwise or f"legal here: {', '.join(prefix + word for word in words)}"


def put_verb_first(argv: Sequence[str], verbs: Collection[str], with_value: Collection[str]) -> list[str]:
    """Return the arguments with a verb before its flags: ``--json status`` is ``status --json``.

    The verb is the first word that is no flag, and no value of one of the flags `with_value`.
    """
    place = 0
    while place < len(argv) and argv[place].startswith("-"):
        place += 2 if argv[place] in with_value else 1
    found = argv[place : place + 1]
    return [*found, *argv[:place], *argv[place + 1 :]] if found and found[0] in verbs else [*argv]


def exit_code_of(program: Callable[[], int | None]) -> int:
    """Run a program and return its exit code, also where argparse ends it; 141 if the reader of its output has ended.

    Its standard streams are open, and a file name that is no valid text can be printed.
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
