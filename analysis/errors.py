"""What stops an analysis, each with its cure."""

from __future__ import annotations


class AnalysisError(Exception):
    """The analysis cannot go on; `str()` says what is wrong and `hint` how to cure it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        """Return the message with its hint, as it is printed after `error: `."""
        return f"{self.args[0]}\n\nhint: {self.hint}"
