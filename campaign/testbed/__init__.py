"""Emulate the paper's storages on one disk with loop devices, which the kernel and models slow down to Table I."""
