"""What all figures share: panels, style, drawing, saving."""
