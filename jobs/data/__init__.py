"""Make datasets, and read datasets with tf.data. A user's script calls `staged_paths` to read staged copies."""

from jobs.data.staged_copies import staged_paths

__all__ = ["staged_paths"]
