"""Run cells on this machine or as Slurm jobs, estimate the price of the jobs, and follow the jobs until their end."""
