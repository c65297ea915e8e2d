"""Save the snapshots of a training, drain the snapshots to a slower storage or a bucket, and restore them."""
