"""How many accelerators a storage feeds: the search, its probes and the answer in words."""
