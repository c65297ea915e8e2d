"""Call Slurm's commands and read their output; this package does not depend on campaigns or cells."""
