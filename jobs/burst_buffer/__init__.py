"""How snapshots of a training are written, kept, drained and found again; `jobs.burst_buffer.buffer` is its face."""
