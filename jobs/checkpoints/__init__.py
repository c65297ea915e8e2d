"""Snapshots of a training: saved, drained to a slower storage or a bucket, and restored; also those of a run."""
