"""Test whether a program waits for its storage: run it with its data cold and warm, and compare the runtimes."""
