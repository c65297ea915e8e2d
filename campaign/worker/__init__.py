"""Run on the node: work lists, sessions on cells, and runs forked from one process."""
