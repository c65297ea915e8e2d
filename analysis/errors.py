"""The error that ends an analysis, with a hint how the user can cure it."""

from __future__ import annotations


class AnalysisError(Exception):
    """An error that ends the analysis: `str()` returns the message and the hint how to cure the error."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        """Return the text that the command line prints after `error: `: the message and the hint."""
        return f"{self.args[0]}\n\nhint: {self.hint}"
