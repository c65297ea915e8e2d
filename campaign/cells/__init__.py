"""Cells, their records, their folder, and the plan of which run when."""
