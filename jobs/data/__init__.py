"""Datasets and the tf.data pipelines that read them."""
