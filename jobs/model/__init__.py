"""What crosses a boundary: settings, requests, results, records and work lists; imports nothing of the other rooms."""
