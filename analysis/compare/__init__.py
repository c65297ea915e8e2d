"""Two campaigns beside each other: which cells are the same, and whether one is faster."""
