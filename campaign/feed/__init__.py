"""Find how many accelerators a storage can supply with data: search the number, run the probes, print the answer."""
