"""Functions that all figures share: panels, style, drawing, saving."""
