"""Whether a program waits for its storage: two cells, its data cold and warm, and what their difference says."""
