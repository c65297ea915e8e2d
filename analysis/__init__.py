"""Records in, medians and figures out; needs no TensorFlow, no Hydra and nothing else of this project."""
