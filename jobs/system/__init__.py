"""The operating system below a run: page cache, devices, file systems, durable writes."""
