"""Medians, ratios and all other values derived from the runs."""
