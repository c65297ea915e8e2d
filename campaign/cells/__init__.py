"""Hold cells, their records, their folder, and the plan of their runs."""
