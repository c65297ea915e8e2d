"""Manage what campaigns keep on storages: datasets, files of baselines, locks, and folders for snapshots."""
