"""Run cells on this machine or as Slurm jobs, estimate the price of the jobs, and follow them until they end."""
