"""What is read from the system beside a run."""
