"""Medians, ratios and every other value that is derived from the runs."""
