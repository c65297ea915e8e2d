"""The report as one HTML file that needs nothing else: no network, no script, no font but the reader's own."""
