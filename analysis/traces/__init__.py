"""Traces beside the records, read."""
