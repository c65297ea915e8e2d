"""Which files to read from a faster storage: planned from a profile, copied, and measured as cells."""
