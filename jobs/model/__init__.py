"""Declare what crosses a boundary: settings, requests, results, records and work lists."""
