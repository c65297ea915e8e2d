"""Our windows in TensorFlow's profiles, and both in TensorBoard."""
