"""What is observed of a run: counters, the system trace, the machine."""
