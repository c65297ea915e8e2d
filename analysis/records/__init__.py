"""Read the records of a campaign from disk, judge the records, and return pandas frames of runs and cells."""
