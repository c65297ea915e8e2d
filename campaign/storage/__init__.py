"""A campaign's data on storages: datasets, baseline files, locks, folders for snapshots."""
