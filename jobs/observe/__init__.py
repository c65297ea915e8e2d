"""Observers of the system during a run."""
