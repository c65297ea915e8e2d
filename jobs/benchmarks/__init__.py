"""The benchmarks: each is declared in a module of its own; the other modules are shared."""
