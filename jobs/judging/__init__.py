"""What a cell is judged by, when its record is read: the runs that it lacks, and those that do not count."""
