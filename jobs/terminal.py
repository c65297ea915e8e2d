"""What is printed: text of others (file names, logs, records) is shown, and does not act on the terminal."""

from __future__ import annotations

import sys


def visible(text: str) -> str:
    """Escape all characters but line ends and tabs that are not printable, as those of control sequences."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode("ascii") for each in text
    )


def complain(message: str, hint: str = "") -> None:
    """Say on standard error what is wrong, and the cure where there is one."""
    print(visible(f"error: {message}" + (f"\n\nhint: {hint}" if hint else "")), file=sys.stderr)
