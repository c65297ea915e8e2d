"""Readers of the traces and profiles that lie beside the records."""
