"""Call Slurm's commands and read their answers; this package knows nothing of campaigns."""
