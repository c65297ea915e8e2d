"""Figures of NERSC's workloads."""
