"""Whether a node, or a whole cluster, can measure and prove it."""
