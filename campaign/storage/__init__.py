"""What a campaign keeps on storages: datasets, baseline files, locks, places for snapshots."""
