"""Functions that all figures use: captions, panels, colours, drawing and saving."""
