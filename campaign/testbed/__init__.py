"""Emulate the paper's storages on one disk: loop devices that the kernel and models slow down to Table I's speeds."""
