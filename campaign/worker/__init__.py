"""Code that runs on a compute node: a worker reads its work list, runs the cells, and forks a process for each run."""
