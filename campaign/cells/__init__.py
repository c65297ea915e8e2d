"""Cells, their records, the campaign folder, and the plan of the missing runs."""
