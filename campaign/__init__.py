"""Decide, submit, watch and record benchmark campaigns of storage under TensorFlow."""
