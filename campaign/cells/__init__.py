"""Make cells, read and write their records, lay out the campaign folder, and plan the missing runs."""
