"""Staging: plan from a profile which files to copy to a faster storage, copy these files, and measure the gain."""
