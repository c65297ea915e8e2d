"""Snapshots of a training or of a run: saved, drained to a slower storage or a bucket, and restored."""
