"""Verdicts on cells and runs, computed when a record is read; and how many runs a cell still needs."""
