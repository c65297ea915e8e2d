"""Records on disk, read and checked, as frames."""
