"""Snapshots in a run: written where the settings say, timed, read back and verified."""
