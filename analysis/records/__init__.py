"""The records of a campaign: read from disk, checked, and returned as frames."""
