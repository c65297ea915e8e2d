"""Declare the types of all values that are stored or sent: settings, requests, results, records and work lists."""
