"""The benchmarks: each a module that says what it measures and how."""
