"""The comparison of two campaigns: which cells correspond, and whether one campaign is faster."""
