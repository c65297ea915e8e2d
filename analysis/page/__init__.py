"""The report as one HTML file without any other file: no network, no script, only the reader's fonts."""
