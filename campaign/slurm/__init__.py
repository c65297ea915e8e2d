"""The campaign on a Slurm cluster: submission, the scheduler's word, and the front process's part."""
