"""Observe the system during a run: page cache, files, devices, CPUs, threads and storages."""
