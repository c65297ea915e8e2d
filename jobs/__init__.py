"""Benchmarks and the probes around them; each runs by hand on a node without Hydra or Slurm."""
