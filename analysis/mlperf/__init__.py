"""Check published runs of MLPerf Storage: recompute the results of DLIO from the step times of the ranks."""
