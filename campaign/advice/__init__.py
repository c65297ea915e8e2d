"""Advise on a cell: what bounds it, by evidence, and the command that tests it; keep predictions and judge them."""
