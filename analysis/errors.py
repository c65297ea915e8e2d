"""The error that ends an analysis, with its cure."""

from __future__ import annotations


class AnalysisError(Exception):
    """An error that ends the analysis: `str()` gives the message and the hint how to cure it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        """Return the message and the hint as they are printed after `error: `."""
        return f"{self.args[0]}\n\nhint: {self.hint}"
