"""Engines that measure the speed of a storage alone (built-in, fio, IOR), and the data files that the engines use."""
