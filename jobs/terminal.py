"""What is printed: text of others (file names, logs, records) is shown, and does not act on the terminal."""

from __future__ import annotations

import os
import sys

_STANDARD = 3  # descriptors: standard input, output and error


def visible(text: str) -> str:
    """Escape all characters but tabs that are not printable, as line ends and those of control sequences: one line."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each == "\t" else each.encode("unicode_escape").decode("ascii") for each in text
    )


def open_streams() -> None:
    """Open what the parent closed of standard input, output and error (``2>&-``).

    Else the next file to be opened takes that number, and receives what libraries print.
    """
    null = os.open(os.devnull, os.O_RDWR)
    while null < _STANDARD:
        null = os.dup(null)
    os.close(null)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - for as long as we live


def complain(message: str, hint: str = "") -> None:
    """Say on standard error what is wrong, and the cure where there is one."""
    print(f"error: {visible(message)}" + (f"\n\nhint: {visible(hint)}" if hint else ""), file=sys.stderr)
