"""How snapshots of a training are written, kept, drained and found again; usable alone: `BurstBuffer`."""

from jobs.burst_buffer.buffer import BurstBuffer

__all__ = ["BurstBuffer"]
