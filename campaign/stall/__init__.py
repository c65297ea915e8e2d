"""The test whether a program waits for its storage: two cells, its data cold and warm, and their difference."""
