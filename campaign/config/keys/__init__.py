"""The keys of each group: types and limits together."""
