"""Call the operating system: page cache, devices, file systems, processes, durable writes."""
