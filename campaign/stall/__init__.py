"""Test whether a program waits for its storage: measure it with its data cold and warm, and compare."""
