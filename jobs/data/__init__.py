"""Datasets and the tf.data pipelines that read them. Scripts that read from copies use `staged`."""

from jobs.data.staged_copies import staged

__all__ = ["staged"]
