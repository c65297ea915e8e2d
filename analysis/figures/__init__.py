"""How each figure is drawn: numbers in, `matplotlib.figure.Figure` out; nothing is decided and nothing written here."""
