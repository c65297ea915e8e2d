"""Text for a reader: numbers and units in words, HTML."""
