"""Judge cells and runs when a record is read, and calculate the number of runs that a cell still needs."""
