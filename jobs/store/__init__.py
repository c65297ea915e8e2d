"""Stores, in a folder or a bucket: data are put as a whole and verified, and a killed task can resume."""
