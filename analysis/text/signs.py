"""The signs of typography that look like others, by their names."""

from __future__ import annotations

DASH = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"
MINUS = "\N{MINUS SIGN}"
DAGGER = "\N{DAGGER}"
UP = "\N{UPWARDS ARROW}"
# Joins a word and its number where lines are wrapped.
JOINT = "\N{NO-BREAK SPACE}"
