"""Datasets and the tf.data pipelines that read them; `staged` for scripts that read from copies."""

from jobs.data.staging import staged

__all__ = ["staged"]
