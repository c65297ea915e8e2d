"""Compare two campaigns: match their cells, and judge for each pair of cells whether one campaign is faster."""
