"""Code that runs on the node: it reads work lists, works on one cell after the other, and forks the runs."""
