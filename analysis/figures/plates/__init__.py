"""What each figure shows, as numbers."""
