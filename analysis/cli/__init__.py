"""The command line of the analysis."""
