"""The verdicts on cells and runs, computed when a record is read, and the number of runs that a cell still needs."""
