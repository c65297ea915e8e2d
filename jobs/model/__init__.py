"""Declarations of all values that cross a boundary: settings, requests, results, records and work lists."""
