"""The benchmarks: a module that defines ``BENCHMARK`` declares one benchmark; the other modules are shared code."""
