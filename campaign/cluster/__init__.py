"""Where cells run: on this machine or as Slurm's jobs; their states, price, progress and end."""
