"""Run cells on this machine or as Slurm's jobs; conclude their states, their price, their progress and their end."""
