"""Ask the operating system below a run: page cache, devices, file systems, processes, durable writes."""
