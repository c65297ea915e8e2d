"""The benchmarks: one module declares each of them, and several share the other modules."""
