"""A twin of the paper's testbed on one disk: loop devices that the kernel throttles to Table I's figures."""
