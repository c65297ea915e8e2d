"""Datasets and the tf.data pipelines that read them; `staged` for scripts that read from copies."""

from jobs.data.staged_copies import staged

__all__ = ["staged"]
