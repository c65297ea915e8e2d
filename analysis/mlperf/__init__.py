"""The referee of published runs of MLPerf Storage: what DLIO wrote, recomputed from the steps of its ranks."""
