"""Call Slurm's commands and read their answers; this room knows nothing of campaigns."""
