"""Read the traces, profiles and time logs of runs, and make tables from these files."""
