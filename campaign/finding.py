"""What `doctor` finds out, one thing after the other."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """What one look found.

    Attributes
    ----------
    passed
        False: campaigns will fail here. None: they will run, with a figure worse or less proved.
    """

    what: str
    passed: bool | None
    message: str
    hint: str = ""
