"""Staging: the files to read from a faster storage are planned from a profile, copied, and measured as cells."""
