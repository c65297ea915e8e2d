"""Emulate the paper's storages on one disk: loop devices that the kernel and models limit to the speeds of Table I."""
