"""The configuration: words, values and their limits; Hydra is imported here and nowhere else."""
