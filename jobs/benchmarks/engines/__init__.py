"""Engines that measure the speed of a storage alone (built-in, fio, IOR), and the files that they use."""
