"""Output to a terminal: text from outside (file names, logs, records) is escaped, so that it cannot act on it."""

from __future__ import annotations

import os
import sys

_STANDARD = 3  # descriptors: standard input, output and error


def visible(text: str) -> str:
    """Return a text as one line that cannot act on a terminal: unprintable characters except tabs become escapes."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character == "\t"
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def open_streams() -> None:
    """Open the standard streams that the parent process closed (``2>&-``), to /dev/null.

    Otherwise the next opened file would get that descriptor, and receive the output of libraries.
    """
    null = os.open(os.devnull, os.O_RDWR)
    while null < _STANDARD:
        null = os.dup(null)
    os.close(null)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - for as long as we live


def complain(message: str, hint: str = "") -> None:
    """Print an error, with its cure if there is one, to standard error."""
    print(f"error: {visible(message)}" + (f"\n\nhint: {visible(hint)}" if hint else ""), file=sys.stderr)
