"""Datasets and the tf.data pipelines that read them. Scripts that read from copies use `staged_paths`."""

from jobs.data.staged_copies import staged_paths

__all__ = ["staged_paths"]
