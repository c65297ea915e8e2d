"""The configuration: words, schemas, values and their limits; Hydra is imported here and nowhere else."""
