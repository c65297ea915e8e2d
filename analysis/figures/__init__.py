"""Draw figures from tables as `matplotlib.figure.Figure`. Only `kit.save` writes files."""
