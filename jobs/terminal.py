"""Print to a terminal. File names, logs and records are escaped, because they may contain control characters."""

from __future__ import annotations

import os
import sys

_STANDARD = 3  # number of standard file descriptors: input, output and error


def visible(text: str) -> str:
    """Return a text as one line that is safe to print: all unprintable characters except tabs become escapes."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character == "\t"
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def open_streams() -> None:
    """Connect each standard stream that the parent process closed (``2>&-``) to /dev/null.

    Otherwise, the next opened file would get the file descriptor of the closed stream, and libraries would print into
    this file.
    """
    null = os.open(os.devnull, os.O_RDWR)
    while null < _STANDARD:
        null = os.dup(null)
    os.close(null)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - stays open until exit


def complain(message: str, hint: str = "") -> None:
    """Print an error message to standard error, with a hint that says what the user can do."""
    print(f"error: {visible(message)}" + (f"\n\nhint: {visible(hint)}" if hint else ""), file=sys.stderr)
