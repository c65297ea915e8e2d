"""Compute medians, ratios and all other values that are derived from the runs."""
